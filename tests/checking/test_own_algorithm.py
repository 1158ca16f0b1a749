"""Mistakes in a module of the user's own that are found before an algorithm is made, and how findings are merged."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import toys
from shoal import algorithms
from shoal.checking import contract, specimen
from shoal.checking.findings import Finding
from shoal.checking.specimen import DISCRETE
from shoal.config.resolve import merged
from shoal.errors import InputError
from shoal.runs.build import check_build
from shoal.training.settings import Settings

HEAD = """
from dataclasses import dataclass
from typing import ClassVar
from shoal.algorithms import mappo
make = mappo.make
"""
FORGOTTEN = "class Config(mappo.Config):\n    ratio_coef: float = 0.5\n"
CONFIGS = {
    "not decorated": (
        FORGOTTEN,
        "The Config of 'mistaken' has the attribute 'ratio_coef', which is no field: write @dataclass(frozen=True) "
        "above the class Config.",
    ),
    "not decorated, with a known name": (
        "class Config(mappo.Config):\n    gamma: float = 0.5\n",
        "The Config of 'mistaken' has the attribute 'gamma', which is no field: write @dataclass(frozen=True) above "
        "the class Config.",
    ),
    "a base that is not decorated": (
        FORGOTTEN.replace("Config(", "Base(") + "@dataclass(frozen=True)\nclass Config(Base):\n    more: int = 1\n",
        "The Config of 'mistaken' has the attribute 'ratio_coef', which is no field: write @dataclass(frozen=True) "
        "above the class Base.",
    ),
    "without a type": (
        "@dataclass(frozen=True)\nclass Config(mappo.Config):\n    gamma = 0.5\n",
        "The Config of 'mistaken' has the attribute 'gamma', which is no field: give it a type, as in "
        "gamma: float = 0.9.",
    ),
}


@pytest.fixture
def mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes the module ``mistaken`` into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> Path:
        sys.modules.pop("mistaken", None)
        path = tmp_path / "mistaken.py"
        path.write_text(HEAD + text, encoding="utf-8")
        return path

    yield write
    sys.modules.pop("mistaken", None)


@pytest.mark.parametrize("mistake", CONFIGS)
def test_attributes_that_are_no_fields_are_refused(mistake: str, mistaken: Callable[[str], Path]) -> None:
    text, said = CONFIGS[mistake]
    mistaken(text)
    with pytest.raises(InputError) as refused:
        algorithms.get("mistaken")
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("reward_scale", "which every run has as a setting"),
        ("trust", "but the flag and the argument of this name belong to a call"),
    ],
)
def test_a_field_without_a_flag_of_its_own_is_refused(field: str, why: str, mistaken: Callable[[str], Path]) -> None:
    mistaken(f"@dataclass(frozen=True)\nclass Config(mappo.Config):\n    {field}: float = 5.0\n")
    with pytest.raises(InputError, match=f"mistaken has the field '{field}', {why}"):
        merged("mistaken", "matrix/climbing")
    with pytest.raises(InputError, match=f"has the field '{field}', {why}"):
        merged("mappo+mistaken", "mpe/simple_tag")
    (finding,) = contract.saved_config(algorithms.get("mistaken"))
    assert why in finding.sentence


def test_an_algorithm_that_cannot_be_made_for_acting_is_refused_before_it_trains(
    mistaken: Callable[[str], Path],
) -> None:
    mistaken(
        "from shoal.errors import InputError\nConfig = mappo.Config\n"
        "def make(spec, config, scale):\n    if scale.num_envs < 4:\n        raise InputError('Too few.')\n"
        "    return mappo.make(spec, config, scale)\n"
    )
    env, settings = toys.busy(), Settings(num_envs=4, rollout_length=4, devices=1)
    config = algorithms.get("mistaken").Config()
    with pytest.raises(InputError, match=r"can be trained but not act, .* with one minibatch: Too few\.$"):
        check_build("mistaken", env, config, settings)


def test_other_attributes_are_not_refused(mistaken: Callable[[str], Path]) -> None:
    mistaken(
        "@dataclass(frozen=True)\nclass Config(mappo.Config):\n    kinds: ClassVar[int] = 3\n    plain = 4\n"
        "    more: int = 1\n    def both(self): return self.more + self.plain\n"
    )
    assert algorithms.get("mistaken").Config().both() == 5


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        (f"@dataclass\n{FORGOTTEN}", "TypeError: cannot inherit non-frozen dataclass from a frozen one", 6),
        ("Config = mappo.Config\nx = 1 / 0\n", "ZeroDivisionError: division by zero", 7),
        ("x = int('seven')\n", "ValueError: invalid literal for int() with base 10: 'seven'", 6),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0", 7),
        ("x = (\n", "SyntaxError: '(' was never closed", 6),
        ("from shoal import nothing_such\n", "ImportError: cannot import name 'nothing_such' from 'shoal'", 6),
    ],
    ids=lambda x: x.split(":")[0] if isinstance(x, str) else "",
)
def test_an_exception_at_import_is_reported_with_its_line(
    text: str, said: str, line: int, mistaken: Callable[[str], Path]
) -> None:
    path = mistaken(text)
    with pytest.raises(InputError) as refused:
        algorithms.get("mistaken")
    message = str(refused.value)
    assert message.startswith(f"The module 'mistaken' cannot be imported: {said}")
    assert message.endswith(f"({path}, line {line}).") and "\n" not in message


PRESETS = """
Config = mappo.Config
PRESETS = {
    "mpe/*": {"gamma": 0.9, "num_envs": None, "steps": 1e6},
    "a": {"gama": 0.9},
    "b": {"gamma": "high"},
    "c": {"gamma": 2.0},
    "d": {"seeds": 0},
}
"""


def test_presets_are_checked(mistaken: Callable[[str], Path]) -> None:
    mistaken(PRESETS)
    module = algorithms.get("mistaken")
    findings = list(contract.valid_presets("mistaken:make", module))
    assert {(finding.level, finding.subject) for finding in findings} == {("error", "PRESETS")}
    name, *values = [finding.sentence for finding in findings]
    with pytest.raises(InputError) as refused:  # by training
        merged("mistaken", "a")
    assert name == str(refused.value) and "'gama'; did you mean 'gamma'?" in name
    assert values == [
        "in the preset of mistaken:make for b, gamma must be a number, not 'high'.",
        "in the preset of mistaken:make for c, gamma must be at least 0 and at most 1, not 2.",
        "in the preset of mistaken:make for d, seeds must be at least 1 and at most 65536, not 0.",
    ]
    mistaken("Config = mappo.Config\nPRESETS = [1]\n")
    (finding,) = contract.valid_presets("mistaken:make", algorithms.get("mistaken"))
    assert finding.sentence == "PRESETS of mistaken:make must be a dict from environments to flags, not [1]."
    assert list(contract.valid_presets("mappo", algorithms.get("mappo"))) == []


def test_a_near_module_is_suggested(mistaken: Callable[[str], Path], shoal: Callable) -> None:
    mistaken("Config = mappo.Config\n")
    meant = "did you mean your module 'mistaken'"
    for word in ("mis-taken", "mistakn", "mistaken.py", "Mistaken"):
        code, _, err = shoal("check", word)
        assert code == 2 and err.endswith(
            f"There is no algorithm, and no module in the working directory, of this name either; {meant}?\n"
        )
    code, _, err = shoal("train", "mistakn", "mpe/simple_spread")
    assert code == 2 and err.endswith(f"Or {meant} in the working directory?\n")
    assert "did you mean" not in shoal("check", "something")[2]


def test_equal_findings_are_one_with_the_teams() -> None:
    nan = Finding("error", "finite", "It is NaN.")
    here, there = (Finding("error", "exception", f"update raised ({n}).", "line 7") for n in (3, 2))
    alone = Finding("warning", "learning", "It changes nothing.")
    assert contract._once({"a": [nan, nan, alone], "b": []}) == [nan, alone]
    merged = contract._once({"a": [nan, here], "b": [nan, there, alone], "a recurrent net": [nan]})
    assert [(finding.sentence, finding.detail) for finding in merged] == [
        ("It is NaN. Found with a, b and a recurrent net.", ""),
        ("update raised (3). Found with a and b.", "line 7"),
        ("It changes nothing. Found with b.", ""),
    ]


def test_nan_is_not_attributed_to_dead_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "specimen", lambda *_: None)
    nothing: Any = None

    def metrics(_: Any) -> list[Finding]:
        return [Finding("error", "finite", "It is NaN.")]

    def resume(_: Any) -> list[Finding]:
        return [Finding("error", "resume", "It differs.")]

    rules = (metrics, contract.dead_agents_in_update, contract.no_agents_alive, resume)
    found = contract._played(nothing, nothing, DISCRETE, rules)
    assert [finding.subject for finding in found] == ["finite", "resume"]
    (broken,) = contract._played(nothing, nothing, DISCRETE, (contract.dead_agents_in_update,))
    assert broken.sentence.startswith("update raised ")


@pytest.mark.parametrize(("greedy", "sampled", "noted"), [(0.0, 0.1, True), (0.0, 0.2, False), (1.0, 0.1, False)])
def test_a_training_that_avoids_reward_is_noted(
    greedy: float, sampled: float, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "short_training", lambda _: specimen.TrialResult(greedy, sampled))
    text, notes = contract._trial(None)
    assert text == (
        f"mean reward {greedy:.2f} with greedy and {sampled:.2f} with sampled actions after 7,680 steps "
        f"(random 0.25, best 1.00)"
    )
    assert [(finding.level, finding.subject) for finding in notes] == [("note", "learning")] * noted


def test_an_exception_is_one_sentence() -> None:
    def update(_: Any) -> list[Finding]:
        raise error

    error: Exception = ValueError("shapes\ndiffer")
    error.add_note("For simplicity, JAX has removed its internal frames.")
    nothing: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "specimen", lambda *_: None)
        (found,) = contract._played(nothing, nothing, DISCRETE, (update,))
        error = InputError("A metric has a shape.")
        (refused,) = contract._played(nothing, nothing, DISCRETE, (update,))
    assert found.sentence == "act or update raised ValueError: shapes differ."
    assert "raise error" in found.detail and "contract.py" not in found.detail
    assert (refused.sentence, refused.detail) == ("act or update raises InputError: A metric has a shape.", "")
