"""Words of a command line as values of flags: every form that is accepted, and what is said of the others."""

from pathlib import Path
from typing import Any, Literal

import pytest

from shoal.cli.flags import REQUIRED, Flag, number_text, read_early, read_words
from shoal.errors import InputError
from shoal.options.convert import Anything, Words, convert_value, from_toml

FLAGS = [
    Flag("runs", tuple[Path, ...], REQUIRED, positional=True),
    Flag("steps", float, 5.0),
    Flag("num_envs", int | None, None),
    Flag("hidden", tuple[int, ...], (64,)),
    Flag("sharing", Literal["shared", "role"] | tuple[int, ...], "shared"),
    Flag("pair", tuple[float, float] | None, None),
    Flag("progress", bool, True),
    Flag("shared", bool | None, None, prefix="env."),
    Flag("free", Anything, None, prefix="env."),
    Flag("title", str | None, "x"),
    Flag("folder", Path | None, None),
    Flag("names", tuple[str, ...], ()),
]


def given(*words: str) -> dict[str, Any]:
    return {
        name.removeprefix("--"): value for name, value in read_words("shoal x", FLAGS, words).items() if value != ()
    }


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", {}),
        ("--steps 1e3", {"steps": 1000.0}),
        ("--steps=-1e3", {"steps": -1000.0}),
        ("--steps -inf", {"steps": float("-inf")}),
        ("--num_envs 1e2", {"num-envs": 100}),
        ("--num-envs None", {"num-envs": None}),
        ("--hidden 1 2 --steps 3", {"hidden": (1, 2), "steps": 3.0}),
        ("--hidden=-1 -2", {"hidden": (-1, -2)}),
        ("--sharing role", {"sharing": "role"}),
        ("--sharing 0 1", {"sharing": (0, 1)}),
        ("--pair 0 1 a b", {"pair": (0.0, 1.0), "RUNS": (Path("a"), Path("b"))}),
        ("--pair None", {"pair": None}),
        ("--progress", {"progress": True}),
        ("--no-progress a", {"progress": False, "RUNS": (Path("a"),)}),
        ("--progress false a", {"progress": False, "RUNS": (Path("a"),)}),
        ("--progress=True", {"progress": True}),
        ("--env.shared", {"env.shared": True}),
        ("--env.no-shared", {"env.shared": False}),
        ("--env.shared none", {"env.shared": None}),
        ("--env.free [1,2]", {"env.free": [1, 2]}),
        ("--env.free easy", {"env.free": "easy"}),
        ("--env.free false", {"env.free": False}),
        ("--env.free TRUE", {"env.free": True}),
        ("--env.free none", {"env.free": None}),
        ("--title=--steps", {"title": "--steps"}),
        ("--title=a=b", {"title": "a=b"}),
        ("--title=", {"title": ""}),
        ("--title None", {"title": None}),
        ("a --steps 1 b", {"steps": 1.0, "RUNS": (Path("a"), Path("b"))}),
        ("-- --steps -x", {"RUNS": (Path("--steps"), Path("-x"))}),
        ("-", {"RUNS": (Path("-"),)}),
    ],
)
def test_words_are_read(words: str, found: dict[str, Any]) -> None:
    assert given(*words.split()) == found
    assert {name: type(value) for name, value in given(*words.split()).items()} == {
        k: type(v) for k, v in found.items()
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--steps", "--steps needs a value: NUMBER"),
        ("--steps --progress", "--steps needs a value: NUMBER"),
        ("--steps many", "--steps cannot be 'many'; it takes NUMBER."),
        ("--num-envs 1.5", "--num-envs cannot be '1.5'; it takes INT|None."),
        ("--num-envs=", "--num-envs cannot be ''; it takes INT|None."),
        ("--hidden", "--hidden needs a value: INT..."),
        ("--hidden=", "--hidden needs a value: INT..."),
        ("--hidden 8 x", "--hidden cannot be '8 x'; it takes INT..."),
        ("--sharing rolle", "--sharing cannot be 'rolle'; it takes shared|role|INT..."),
        ("--pair 1", "--pair cannot be '1'; it takes NUMBER NUMBER|None."),
        ("--progress=maybe", "--progress cannot be 'Maybe'; it takes True|False."),
        ("--progress none", "--progress cannot be 'None'; it takes True|False."),
        ("--no-progress=True", "--no-progress takes no value; use --progress=True."),
        ("--folder=", "--folder needs a name; its value is empty."),
        ("--stepps 1", "shoal x has no flag --stepps; did you mean --steps?"),
        ("-x", "shoal x has no flag -x; shoal x --help lists all flags."),
        ("--steps 1 --steps 2", "--steps is given twice; give it once."),
        ("--num-envs=1 --num_envs=1", "--num-envs is given twice; give it once."),
        ("--hidden 64 --hidden 8", "--hidden is given twice; give all its values after one of them."),
        ("--progress --no-progress", "--progress and --no-progress contradict each other; give one of them."),
        ("--env.no-shared --env.no-shared", "--env.no-shared is given twice; give it once."),
        ("--names a b a", "--names has 'a' twice; give it once."),
        ("--steps ٣", "--steps cannot be '٣'; it takes NUMBER."),
        ("--steps -٣", "--steps needs a value: NUMBER"),
        ("--num-envs ３e2", "--num-envs cannot be '３e2'; it takes INT|None."),
        ("--hidden 8 ８", "--hidden cannot be '8 ８'; it takes INT..."),
        (f"--num-envs {'9' * 5000}", f"--num-envs cannot be '{'9' * 76}...; it takes INT|None."),
        ("--", ""),
        ("--hidden 8 8", ""),
    ],
)
def test_invalid_words_are_refused(words: str, said: str) -> None:
    if not said:
        assert given(*words.split()) == ({"hidden": (8, 8)} if "8" in words else {})
        return
    with pytest.raises(InputError) as caught:
        given(*words.split())
    assert str(caught.value) == said


def test_arguments_that_are_missing_or_too_many() -> None:
    flags = [Flag("run", Path, REQUIRED, positional=True), Flag("what", str, "x", positional=True)]
    flags += [Flag("size", int, REQUIRED, prefix="env."), Flag("dry", bool, False)]
    flags += [Flag("no_wind", Anything, None, prefix="env.")]
    assert read_words("shoal x", flags, ["a", "--env.size", "3"]) == {"RUN": Path("a"), "--env.size": 3}
    for words, said in (
        ([], "shoal x needs RUN; see shoal x --help."),
        (["a"], "--env.size needs a value: INT"),
        (["a", "b", "c", "--env.size=1"], "shoal x has no argument for 'c'; see shoal x --help."),
        (["a", "--env.size=1", "--env.no-wind"], "--env.no-wind needs a value: VALUE, such as --env.wind False"),
        (["a", "b", "--dry", "0"], "--dry takes True or False, not '0'; or write --no-dry."),
        (["a", "--dry", "b", "c"], "shoal x has no argument for 'c'; see shoal x --help."),
    ):
        with pytest.raises(InputError) as caught:
            read_words("shoal x", flags, words)
        assert str(caught.value) == said


def test_flags_that_are_read_early_have_the_values_that_they_have_later() -> None:
    early = [Flag("trust", bool, False), Flag("print_config", bool, False), Flag("resume", Path | None, None)]

    def read(words: str) -> list[Any]:
        return list(read_early("shoal x", early, words.split()).values())

    for words, found in {
        "": [False, False, None],
        "--steps 1 --trust --hidden 1 2 --resume a": [True, False, Path("a")],
        "--trust=True --print_config": [True, True, None],
        "--trust False --print-config=false --resume=a": [False, False, Path("a")],
        "--no-trust a --resume None": [False, False, None],
        "--no_trust --resume=None": [False, False, None],
        "--title=--trust --other -- --trust": [False, False, None],
    }.items():
        assert read(words) == found, words
    for words in ("--trust --no-trust", "--trust --trust", "--trust=maybe", "--resume", "--resume a --resume b"):
        with pytest.raises(InputError):
            read(words)


def test_numbers_are_printed_exactly() -> None:
    numbers = {1234567.0: "1234567", 1e7: "1e7", 2.5e-5: "2.5e-5", 1234567e-12: "1.234567e-6", 3.0: "3", 0.3: "0.3"}
    assert {number: number_text(number) for number in numbers} == numbers
    assert number_text(24691356.0) == "24691356" and number_text(float("inf")) == "inf"


def test_values_of_files_are_read_by_the_same_function() -> None:
    assert convert_value("x", from_toml(["None", [1]]), tuple[tuple[float, ...] | None, ...]) == (None, (1.0,))
    assert from_toml(["None"], tuple[str, ...]) == ("None",) and from_toml(["None"], tuple[str | None, ...]) == (None,)
    assert (
        from_toml(["None", "None"], tuple[str, int | None] | None) == ("None", None) and from_toml("None", int) is None
    )
    assert convert_value("x", Words(("None",)), str | None) is None and convert_value("x", "None", str | None) == "None"
    assert convert_value("x", Words(("3",)), str | int) == "3" and convert_value("x", "a/b", Path) == Path("a/b")
    with pytest.raises(
        InputError, match=r"^x must be a list or tuple with each item a whole number or None, not \(1,\)\.$"
    ):
        convert_value("x", (1,), tuple[int, int] | None)
    with pytest.raises(InputError, match=r"^x cannot be 'nan'; it takes NUMBER\.$"):
        convert_value("x", Words(("nan",)), float)
