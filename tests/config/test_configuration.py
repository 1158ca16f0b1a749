"""Configuration files: what is printed is read back, what is given by hand wins, and what is wrong is named."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shoal as library
import toys
from shoal import algorithms
from shoal.cli import train
from shoal.config import config_files, resolve
from shoal.config.resolve import as_toml, configured
from shoal.errors import InputError
from shoal.options.flags import flags_of, leaves, override
from shoal.presets import preset
from shoal.storage import manifest
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.trust.run_file import Described
from support import run_folders

SPREAD = "mpe/simple_spread"
SIZES: dict[str, Any] = {"num_envs": 2, "rollout_length": 4}
TINY = ["--num-envs", "2", "--rollout-length", "4", "--steps", "16", "--hidden", "4", "--epochs", "1"]
TINY += ["--minibatches", "1", "--eval-episodes", "0", "--no-tensorboard", "--no-progress"]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def of_run(folder: Path, algorithm: str = "mappo", environment: str = SPREAD, **env: Any) -> Path:
    """A folder with the run.json of a run that was never trained here."""
    config = algorithms.get("mappo").Config()
    folder.mkdir()
    spec = toys.coordination().spec
    manifest.write_run_json(folder, Described(algorithm, environment, env, True, Settings(), config, spec).as_json())
    return folder


def refusal(**given: Any) -> str:
    with pytest.raises(InputError) as caught:
        configured(given.pop("algorithm", None), given.pop("environment", None), **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is printed is read back


@pytest.mark.parametrize("name", [*algorithms.NAMES, "mappo+qmix"])
def test_a_printed_configuration_is_read_back(name: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"seeds": 3, "hidden": (8,), "frame_stack": 2, "num_envs": None, "gamma": 0.5}
    flags |= {"side2_gamma": 0.25} if "+" in name else {}
    found = configured(name, "mpe/simple_tag", env={"horizon": 300, "num_adversaries": 2}, flags=flags)
    text = as_toml(found)
    again = configured(None, None, config=written(tmp_path / "config.toml", text))
    assert "num_envs" in found.values.sized and not again.values.sized
    at_length = {size: {"num_envs": 8, "rollout_length": 128}[size] for size in found.values.sized}
    assert flags_of(again.values.settings) == flags_of(found.values.settings) | at_length
    assert (again.algorithm, again.name, again.env) == (found.algorithm, found.name, found.env)
    assert again.values.config == found.values.config and hash(again.values.config) == hash(found.values.config)
    plain = [[line.partition("  #")[0] for line in part.splitlines()] for part in (text, as_toml(again))]
    assert plain[0] == plain[1]


def test_every_value_has_its_origin(shoal: Callable, tmp_path: Path) -> None:
    text = f'environment = "{SPREAD}"\n[env]\nhorizon = 9\n[flags]\nclip = 0.3\nlam = 1\nnum_envs = "None"'
    file = written(tmp_path / "mine.toml", text)
    words = ["--config", file, "--print-config", "--lam", "0.5", "--env.num-agents", "2"]
    code, out, err = shoal("train", "mappo", SPREAD, *words)
    assert (code, err) == (0, "")
    lines = dict(line.split(" = ", 1) for line in out.splitlines() if " = " in line)
    assert lines["clip"] == f"0.3  # {file}" and lines["lam"] == "0.5  # flag"
    assert lines["horizon"] == f"9  # {file}" and lines["num_agents"] == "2  # flag"
    assert lines["num_envs"] == "8  # length of an episode" and lines["seeds"] == "1  # default"
    assert lines["gamma"] == f"{preset('mappo', SPREAD)['gamma']}  # preset"
    assert lines["# shared_reward"] == '"None"  # default', "what the environment takes is shown"
    assert tomllib.loads(out)["env"] == {"horizon": 9, "num_agents": 2}
    assert "\n# grid = [10, 10]  # default\n" in as_toml(configured("mappo", "grid/stag_hunt"))
    _, again, _ = shoal("train", "--config", written(tmp_path / "again.toml", out), "--print-config")
    assert tomllib.loads(again) == tomllib.loads(out)


def test_what_an_environment_prints_is_no_part_of_the_configuration(
    shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "from shoal.environments import registry", "print('read')", "def talks(n: int = 1):", "    print('built')"
    (tmp_path / "talking.py").write_text("\n".join((*lines, "    return registry.make('matrix/climbing')\n")))
    monkeypatch.chdir(tmp_path)
    code, out, err = shoal("train", "mappo", "talking:talks", "--print-config")
    assert code == 0 and "read\n" in err and "built\n" in err
    assert tomllib.loads(out)["environment"] == "talking:talks"


def test_values_that_toml_lacks_are_read_back(tmp_path: Path) -> None:
    options = {"words": ("a b", 'quo"te\n'), "limit": None, "rate": 1.5, "pair": (0.0, -1.0), "folder": Path("a b")}
    options |= {"text": "None", "title": "\x7f"}
    options["words"] += ("None",)
    text = as_toml(configured("mappo", "unbuilt:typed", env=options, flags=SIZES))
    assert configured(None, None, config=written(tmp_path / "a.toml", text)).env == options
    free = {"a": [1, {"b-c": True, "d": "x"}], "max_cycles": 1e300, "ünder": "x"}
    text = as_toml(configured("mappo", "unbuilt:flexible", env=free, flags=SIZES))
    found = configured(None, None, config=written(tmp_path / "b.toml", text)).env
    assert json.loads(json.dumps(found)) == free
    for value in (object(), {1: 2}, "\ud800"):
        with pytest.raises(InputError, match="cannot be written in a TOML file"):
            config_files.to_toml(value)


def test_the_text_none_is_read_back_or_refused(tmp_path: Path) -> None:
    """Where only texts are taken it is one; where None is taken as well it has no form in TOML."""
    found = configured("mappo", SPREAD, flags={"freeze": ("None",), "recurrent": None})
    text = as_toml(found)
    again = configured(None, None, config=written(tmp_path / "a.toml", text)).values.config
    assert again == found.values.config and again.freeze == ("None",)
    config_files.write_preset(path := tmp_path / "b.toml", "mappo", [], {"network": "None", "recurrent": None}, "")
    assert config_files.read_preset(path, "mappo") == {"network": "None", "recurrent": None}
    for environment, option in (("unbuilt:typed", "title"), ("unbuilt:typed", "anything"), ("unbuilt:flexible", "x")):
        for value in ("None", (1, "None")):
            with pytest.raises(InputError, match=rf"^{option} holds the text 'None', which is read as None in a TOML"):
                as_toml(configured("mappo", environment, env={option: value}, flags=SIZES))


def test_a_file_name_cannot_add_a_line(tmp_path: Path) -> None:
    file = written(tmp_path / 'a\nseeds = 9\n"', f'algorithm = "mappo"\nenvironment = "{SPREAD}"\n[flags]\nlam = 0.5')
    assert tomllib.loads(as_toml(configured(None, None, config=file)))["flags"]["seeds"] == 1


# What takes precedence


def test_flags_over_the_file_over_the_preset_file_over_the_preset(tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.toml"
    config_files.write_preset(tuned, "mappo", [SPREAD], {"clip": 0.4, "lam": 0.4, "gamma": 0.4}, "by hand")
    file = {"algorithm": "mappo", "environment": SPREAD, "flags": {"clip": 0.3, "lam": 0.3}}
    found = configured(None, None, config=file, preset=tuned, flags={"clip": 0.2}).values
    assert (found.config.clip, found.config.lam, found.config.gamma) == (0.2, 0.3, 0.4)
    assert found.config.epochs == preset("mappo", SPREAD)["epochs"] != algorithms.get("mappo").Config().epochs
    origins = [found.origins[name] for name in ("clip", "lam", "gamma", "epochs", "seeds")]
    assert origins == ["flag", "config", str(tuned), "preset", "default"]


def test_a_flag_of_all_sides_wins_over_a_files_flag_of_one() -> None:
    file = {"algorithm": "mappo+ippo", "environment": "mpe/simple_tag", "flags": {"side1_clip": 0.3, "lam": 0.3}}
    found = configured(None, None, config=file, flags={"clip": 0.4, "side2_lam": 0.4}).values
    assert (found.config.side1.clip, found.config.side2.clip) == (0.4, 0.4)
    assert (found.config.side1.lam, found.config.side2.lam) == (0.3, 0.4)
    assert (found.origins["side1_clip"], found.origins["side1_lam"], found.origins["side2_lam"]) == (
        "flag",
        "config",
        "flag",
    )


def test_what_is_typed_wins_over_what_the_file_names() -> None:
    file = {"algorithm": "mappo", "environment": SPREAD, "flags": {"clip": 0.3}}
    found = configured("ippo", "mpe/simple_tag", config=file)
    assert (found.algorithm, found.name, found.values.config.clip) == ("ippo", "mpe/simple_tag", 0.3)
    said = refusal(algorithm="qmix", config=file)
    assert said.startswith("config (written for mappo): There is no setting 'clip'")
    said = refusal(environment="matrix/penalty", config=file | {"env": {"num_agents": 3}})
    assert said.startswith(f"config (written for {SPREAD}): There is no option of matrix/penalty named 'num_agents'")


def test_the_help_shows_the_files_values(shoal: Callable, tmp_path: Path) -> None:
    file = written(tmp_path / "a.toml", f'algorithm = "mappo"\nenvironment = "{SPREAD}"\n[flags]\nlam = 0.125')
    code, out, _ = shoal("train", "--config", file, "--help")
    plain = " ".join(out.replace("│", " ").split())
    assert code == 0 and "(default: 0.125; in [0, 1])" in plain and "--env.num-agents" in out


# Runs


def test_the_same_run_again_from_its_run_json(shoal: Callable, tmp_path: Path) -> None:
    file = written(tmp_path / "a.toml", 'algorithm = "ippo"\nenvironment = "matrix/penalty"\n[flags]\nlam = 0.5')
    code, _, err = shoal("train", "--config", file, *TINY, "--folder", tmp_path / "one")
    assert code == 0, err
    code, _, err = shoal("train", "--config", tmp_path / "one", "--folder", tmp_path / "two", "--no-progress")
    assert code == 0, err
    library.train(config=tmp_path / "one" / "run.json", folder=tmp_path / "three", progress=False, seed=1)
    one, two, three = (manifest.read_run_json(tmp_path / name)["config"] for name in ("one", "two", "three"))
    assert one["config"]["lam"] == 0.5 and one == two
    assert three == one | {"settings": one["settings"] | {"seed": 1}}
    logs = [(tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for name in ("one", "two")]
    assert [json.loads(line)["entropy"] for line in logs[0]] == [json.loads(line)["entropy"] for line in logs[1]]


def test_run_json_has_every_key(tmp_path: Path) -> None:
    folder = of_run(tmp_path / "run")
    found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    del found["config"]["config"]["clip"]
    written(folder / "run.json", json.dumps(found))
    assert "lacks 'clip'" in refusal(config=folder)
    assert configured("ippo", None, config=folder).values.config.clip == 0.2, "another algorithm takes what it has"


def test_a_run_in_an_object_needs_the_environment(tmp_path: Path) -> None:
    folder = of_run(tmp_path / "run")
    found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    found["config"]["by_name"] = False
    written(folder / "run.json", json.dumps(found))
    assert "describes a run in an Environment object; give the name of an environment" in refusal(config=folder)
    assert configured(None, toys.coordination(), config=folder).name == toys.coordination().spec.name


# What other people's files may do


def test_a_run_of_another_user_imports_nothing(
    shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trap = "from pathlib import Path\nPath(__file__).with_name('pwned').touch()\n"
    written(tmp_path / "evil_config.py", trap)
    for i, (algorithm, environment, env) in enumerate(
        [
            ("mappo", "evil_config:make", {}),
            ("mappo", "os:system", {"command": "touch pwned"}),
            ("evil_config:make", SPREAD, {}),
            ("mappo", "gymnasium:Ant-v5", {"xml_file": "./evil.xml"}),
        ]
    ):
        folder = of_run(tmp_path / f"run{i}", algorithm, environment, **env)
        for words in (["--print-config"], ["--help"]):
            code, out, err = shoal("train", "--config", folder, *words)
            assert (code, out) == (2, "") and "--trust" in err and err.count("\n") == 1
        assert "trust=True" in refusal(config=folder)
    assert "hand it './evil.xml'" in refusal(config=folder, environment="gymnasium:Ant-v5"), "its options stay its own"
    assert not list(tmp_path.rglob("pwned"))
    with pytest.raises(InputError, match="has no environments"):
        configured(None, None, config=tmp_path / "run1", trust=True)
    assert configured("mappo", "unbuilt:typed", config={"flags": {"num_envs": 2}}).name == "unbuilt:typed"
    code, _, err = shoal("train", "mappo", SPREAD, "--trust", "--print-config")
    assert code == 2 and "--trust is only for --resume, --config and --opponents" in err


def test_a_run_of_another_user_connects_to_no_cluster(tmp_path: Path) -> None:
    folder = run_folders.run(tmp_path / "run", [1.0], "mappo", SPREAD, workers="ray", address="10.0.0.1:6379")
    assert "would use a Ray cluster" in refusal(config=folder)
    assert "would use a Ray cluster" in refusal(config=folder, flags={"workers": "ray"}), "at its address"
    assert configured(None, None, config=folder, flags={"workers": "processes"}).values.settings.workers == "processes"
    mine = {"workers": "ray", "address": None}
    assert configured(None, None, config=folder, flags=mine).values.settings.address is None
    assert configured(None, None, config=folder, trust=True).values.settings.address == "10.0.0.1:6379"


def test_a_file_calls_nothing_but_environments(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for name in ("shutil:rmtree", "test_configuration:destroy"):
        file = {"algorithm": "mappo", "environment": name, "env": {"path": str(target)}}
        said = refusal(config=file)
        assert said.startswith("config: ") and name in said
    assert target.is_dir()


def destroy(path: str):
    shutil.rmtree(path)


# What is wrong

HEAD = f'algorithm = "mappo"\nenvironment = "{SPREAD}"\n'
WRONG = {
    "no TOML": ("flags\n", "line 1, column 6 is not valid TOML"),
    "an unknown key": ('algoritm = "mappo"', "There is no key 'algoritm'; did you mean 'algorithm'?"),
    "a flag as a key": ("learning_rate = 0.1", "Flags are set in [flags], options of the environment in [env]."),
    "a flag of one call": (HEAD + '[flags]\nfolder = "x"', "not to a configuration: give it as --folder."),
    "one beside the names": (HEAD + "print_config = true", "not to a configuration: give it as --print-config."),
    "no environment": ('algorithm = "mappo"', "shoal train needs an environment first"),
    "a name that is none": ("algorithm = 3", "algorithm must be a string, not 3."),
    "an unknown algorithm": (f'algorithm = "mapo"\nenvironment = "{SPREAD}"', "did you mean 'mappo'?"),
    "an unknown environment": ('algorithm = "mappo"\nenvironment = "mpe/simple_spred"', f"did you mean '{SPREAD}'?"),
    "no table": (HEAD + "flags = 3", "flags must be a table of names and values, not 3."),
    "an unknown flag": (
        HEAD + "[flags]\nlerning_rate = 1",
        "no setting 'lerning_rate'; did you mean 'learning_rate'?",
    ),
    "another library's": (HEAD + "[flags]\nlr = 1", "There is no setting 'lr'; did you mean 'learning_rate'?"),
    "a wrong type": (HEAD + "[flags]\nseeds = 1.5", "seeds must be a whole number, not 1.5."),
    "no number": (HEAD + '[flags]\nseeds = "None"', "seeds must be a whole number, not None."),
    "a date": (HEAD + "[flags]\nseeds = 2020-01-01", "seeds must be a whole number, not datetime.date(2020, 1, 1)"),
    "out of bounds": (HEAD + "[flags]\ngamma = 1.5", "gamma must be at least 0 and at most 1, not 1.5."),
    "an item out of bounds": (HEAD + "[flags]\nhidden = [8, 0]", "each item of hidden must be at least 1"),
    "an unknown option": (
        HEAD + "[env]\nagents = 3",
        "named 'agents'; did you mean 'num_agents'?",
    ),
    "an option's type": (HEAD + "[env]\nnum_agents = 2.5", "num_agents must be a whole number, not 2.5."),
    "an option out of bounds": (HEAD + "[env]\nnum_agents = -1", "num_agents must be an integer of at least 1"),
    "an option's choice": (HEAD + '[env]\nconvention = "x"', "convention must be 'mpe2' or 'openai', not 'x'."),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_key_is_named(case: str, shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, said = WRONG[case]
    file = written(tmp_path / "mine.toml", text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "run", lambda _: pytest.fail("training began"))
    code, out, err = shoal("train", "--config", "mine.toml")
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert err.startswith("shoal: mine.toml") or "needs an environment" in said
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("words", [["--print-config"], ["--num-workers", "2"]])
def test_a_files_option_out_of_bounds_is_named_wherever_the_environment_is_built(
    words: list[str], shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "mine.toml", 'algorithm = "mappo"\nenvironment = "matrix/climbing"\n[env]\nhorizon = 0\n')
    code, out, err = shoal("train", "--config", "mine.toml", *words)
    assert (code, out, err) == (2, "", "shoal: mine.toml: horizon must be an integer of at least 1, not 0.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train --config nothing.toml", "There is no configuration file 'nothing.toml'."),
        ("train --config .", "so it is not the folder of a run"),
        ("train --config", "--config needs a value: PATH|None."),
        ("train mappo mpe/simple_spread --config", "--config needs a value: PATH|None."),
        ("train mappo mpe/simple_spread --config=", "--config needs a name; its value is empty."),
        ("train mappo mpe/simple_spread --preset FULL", "is a configuration file, not a preset"),
        ("train mappo mpe/simple_spread --preset EMPTY", "needs a table [flags]"),
        ("train qmix mpe/simple_spread --preset TUNED", "is a preset of 'mappo', not of qmix."),
        ("train --config TUNED", "shoal train needs an environment first"),
        ("train --config FULL --num-envs 0", "num_envs must be at least 1"),
        ("train maddpg --config FULL", "FULL (written for mappo): There is no setting 'lam'"),
        ("train ippo mpe/simple_tag --config FIVE", "FIVE (written for mpe/simple_spread): There is no option of mpe/"),
    ],
)
def test_invalid_configurations_are_refused(
    words: str, said: str, shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"FULL": HEAD + "[flags]\nlam = 0.5", "EMPTY": 'algorithm = "mappo"'}
    files["FIVE"] = HEAD + "[env]\nnum_agents = 5"
    for name, text in files.items():
        written(tmp_path / name, text)
    config_files.write_preset(tmp_path / "TUNED", "mappo", [SPREAD], {"lam": 0.5}, "by hand")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    code, out, err = shoal(*words.split())
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_preset_file_is_a_configuration_without_an_environment(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    config_files.write_preset(path, "mappo", [SPREAD], {"hidden": (8, 8), "recurrent": None, "lam": 0.5}, "by hand")
    assert config_files.read_preset(path, "mappo") == {"hidden": (8, 8), "recurrent": None, "lam": 0.5}
    one = configured(None, SPREAD, config=path).values
    other = configured("mappo", SPREAD, preset=path).values
    assert (one.settings, one.config) == (other.settings, other.config) and one.config.lam == 0.5


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD, encoding="utf-8-sig")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert config_files.read_config(path)[1:3] == ("mappo", SPREAD)


@pytest.mark.parametrize("name", ["ppo", "sarsa"])  # stands for ippo; a module of one's own
def test_a_preset_file_names_its_algorithm_as_a_command_does(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.toml", f'algorithm = "{name}"\n[flags]\ngamma = 0.5')
    assert config_files.read_preset(path, name) == {"gamma": 0.5}


def test_a_preset_file_of_any_name_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "preset", 'algorithm = "mappo"\n[flags]\ngama = 0.5')
    with pytest.raises(InputError, match="gama"):
        configured("mappo", SPREAD, preset="preset")


def test_the_page_shows_a_file_that_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    block = page.partition("```toml\n")[2].partition("```")[0]
    found = configured(None, None, config=written(tmp_path / "run.toml", block))
    assert (found.env, found.values.settings.steps) == ({"num_agents": 5}, 3e6)
    assert (found.values.config.network.hidden, found.values.config.network.recurrent) == ((128, 128), None)
    assert "shoal train mappo\ngrid/stag_hunt --config run.toml`" in page
    assert configured("mappo", "grid/stag_hunt", config=tmp_path / "run.toml").env == {"num_agents": 5}


def test_a_resumed_run_takes_no_file(shoal: Callable, tmp_path: Path) -> None:
    folder = of_run(tmp_path / "run")
    for words in (["--config", folder], ["--print-config"], ["--preset", folder]):
        code, _, err = shoal("train", "--resume", folder, *words)
        assert code == 2 and f"so {words[0]} cannot be combined with --resume" in err


def test_the_flags_of_one_call() -> None:
    """None of them is a setting, and each of the command's own is one of them."""
    settings = {leaf.name for leaf in leaves(Settings)}
    assert {flag.name for flag in train._OWN} <= set(config_files.ONE_CALL)
    assert not settings & set(config_files.ONE_CALL)


@pytest.mark.parametrize("option", ["init_from", "opponents"])
@pytest.mark.parametrize("kind", [Path, SimpleNamespace])
def test_a_run_is_given_as_a_path_or_opened(option: str, kind: Any) -> None:
    given = Path("runs/early") if kind is Path else SimpleNamespace(folder=Path("runs/early"))
    settings = configured("mappo", "mpe/simple_tag", flags={option: given}).values.settings
    assert flags_of(settings)[option] == "runs/early"


def test_training_needs_names() -> None:
    with pytest.raises(InputError, match=r"^Training needs an environment\.$"):
        library.train("mappo")
    with pytest.raises(InputError, match=r"^config does not name an algorithm and an environment\.$"):
        library.train(config={"flags": {"lam": 0.5}})
    assert resolve.configured("ppo", "mpe/simple", flags={}).algorithm == "ippo"


@pytest.mark.parametrize("own", [{"network": "my_nets:conv"}, {"network": "mlp", "critic_network": "my_nets:conv"}])
def test_networks_of_ones_own_may_read_gains_without_orthogonal_kernels(own: dict[str, str]) -> None:
    config = override(algorithms.get("mappo").Config(), {"orthogonal": False, **own})
    unused = resolve.without_effect(
        Settings(), config, ["gain", "output_gain"], SPREAD, lambda: toys.coordination().spec
    )
    assert set(unused) == ({"output_gain"} if "critic_network" in own else set())
