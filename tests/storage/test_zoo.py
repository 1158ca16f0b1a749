"""Policies that come with Shoal: their names, their files, and that nothing is written beside them."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shoal as library
from shoal.cli.command_line import parse_words
from shoal.cli.train import train
from shoal.config.resolve import configured
from shoal.errors import InputError
from shoal.options.flags import leaves
from shoal.runs import behaviour
from shoal.runs.load import load
from shoal.storage import zoo
from shoal.storage.folders import read_evaluation
from shoal.storage.manifest import read_run_json
from shoal.system import shipped
from support.selection import quick

Command = Callable[..., tuple[int, str, str]]
MOST_BYTES = 10_000_000


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry in a zoo of its own, while the working directory is an empty folder."""
    found = tmp_path / "of the package" / "spread"
    shutil.copytree(shipped.zoo() / "spread", found)
    monkeypatch.setattr(shipped, "zoo", lambda: found.parent)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return found


def test_all_are_listed_with_score_command_commit_and_licence(shoal: Command) -> None:
    code, said, _ = shoal("zoo")
    parts = said.strip().split("\n\n")
    assert code == 0 and [part.split("\n")[0] for part in parts] == [f"zoo/{name}" for name in zoo.names()] != []
    for name, part in zip(zoo.names(), parts, strict=True):
        folder = shipped.zoo() / name
        card, made, found = zoo.check_files(folder), read_run_json(folder)["made_with"], read_evaluation(folder)
        assert found is not None and found["episodes"] >= 256 and "other" in found
        mode = "greedy" if found["greedy"] else "sampled"
        interval = "95% interval" if len(found["per_seed"]) == 1 else "range"
        assert f"\n  {mode} score {found['mean']:.2f} ({interval} {found['low']:.2f} … " in part.replace("−", "-")
        assert len(made["commit"]) == 40, "made from files that were not committed"
        assert f"\n  {card.command}\n" in part and f", commit {made['commit'][:12]}, Apache-2.0" in part
        assert card.command.startswith("shoal train ") and card.licence == "Apache-2.0"
        assert {path.name for path in folder.iterdir()} <= {
            zoo.CARD_FILE, "run.json", "evaluation.json", "policy", "opponents"
        }  # fmt: skip


def test_the_page_has_the_command_and_the_score_of_each() -> None:
    page = (shipped.docs() / "zoo.md").read_text("utf-8").replace("−", "-")
    for name in zoo.names():
        command, found = zoo.read_card(shipped.zoo() / name).command, read_evaluation(shipped.zoo() / name) or {}
        (row,) = [line for line in page.split("\n") if line.startswith(f"| `{name}` |")]
        assert f"| `{command.removeprefix('shoal train ')}` |" in row and found["episodes"] == 1024
        assert f"| {found['mean']:.2f} ({found['low']:.2f} … {found['high']:.2f}) |" in row


def changed_since(folder: Path) -> set[str]:
    """What a policy's command and today's code do otherwise than the run that trained it, by its ``run.json``."""
    words = shlex.split(zoo.read_card(folder).command)[2:]
    groups = parse_words(*train(words))
    env = groups.pop("env", {})
    flags = {name: value for group in groups.values() for name, value in group.items()}
    now, was = configured(*words[:2], env=env, flags=flags), configured(None, None, config=folder)
    assert (now.algorithm, now.environment, now.env) == (was.algorithm, was.environment, was.env)
    new, old = (
        {leaf.name: leaf.value for part in (one.settings, one.config) for leaf in leaves(part)}
        for one in (now.values, was.values)
    )
    known = behaviour.kept(read_run_json(folder)["made_with"]) or {}
    return {
        f"`{name}` {old[name]}, now {value}"
        if isinstance(value, bool)
        else f"`{name}` {old[name]:.3g}, now {value:.3g}"
        for name, value in new.items()
        if value != old[name] and name not in now.values.sized
    } | set(behaviour.changes(known, was.algorithm, was.name, old))


def test_the_page_names_what_differs_between_a_command_and_the_run_that_it_trained() -> None:
    page = (shipped.docs() / "zoo.md").read_text("utf-8").partition("| changed since |")[2].partition("\n\n")[0]
    said = {
        name: set(changes.split("; "))
        for changes, names in re.findall(r"^\| (.+) \| ((?:`[\w-]+`(?:, )?)+) \|$", page, re.MULTILINE)
        for name in re.findall("`(.+?)`", names)
    }
    found = {name: changed_since(shipped.zoo() / name) for name in zoo.names()}
    assert said == {name: changes for name, changes in found.items() if changes}


def test_the_zoo_is_small() -> None:
    assert sum(path.stat().st_size for path in shipped.zoo().rglob("*") if path.is_file()) < MOST_BYTES


@pytest.mark.parametrize("name", quick(zoo.names(), "spread"))
def test_a_policy_acts(name: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    team = load(f"zoo/{name}")
    spec = team.spec
    observations = np.zeros((spec.num_agents, max(spec.obs_dims)), np.float32)
    assert len(np.asarray(team.act(observations))) == spec.num_agents


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "no card", "card"])
def test_a_damaged_file_is_named_in_one_sentence(damage: str, copy: Path, shoal: Command) -> None:
    arrays = next(path for path in copy.rglob("d/*") if path.stat().st_size > 5000)
    name = arrays.relative_to(copy).as_posix()
    if damage == "changed":
        data = bytearray(arrays.read_bytes())
        data[1000] ^= 1
        arrays.write_bytes(data)
    elif damage == "missing":
        arrays.unlink()
    elif damage == "added":
        (copy / "policy" / "new").write_text("")
    elif damage == "card":
        (copy / zoo.CARD_FILE).write_text('{"format": 1}')
    else:
        (copy / zoo.CARD_FILE).unlink()
    code, _, said = shoal("evaluate", "zoo/spread")
    told = {
        "changed": f"{copy} is damaged: {name} differs (card.json); get the folder again.",
        "missing": f"{copy} is damaged: {name} is missing (card.json); get the folder again.",
        "added": f"{copy} is damaged: policy/new is not on the card (card.json); get the folder again.",
        "card": f"card.json in {str(copy)!r} is not a card of format 1.",
        "no card": "There is no policy in the zoo named 'spread'; known: .",
    }
    assert (code, said) == (2, f"shoal: {told[damage]}\n")


def test_a_name_that_is_not_known_lists_those_that_are(copy: Path, shoal: Command) -> None:
    said = "shoal: There is no policy in the zoo named 'chess'; known: spread.\n"
    for words in (["evaluate", "zoo/chess"], ["replay", "zoo/chess"], ["export", "zoo/chess"]):
        assert shoal(*words) == (2, "", said)
    with pytest.raises(InputError, match="known: spread"):
        load("zoo/chess")


def test_messages_call_a_policy_by_its_name(copy: Path, shoal: Command) -> None:
    for words in (["evaluate", "zoo/spread", "--best"], ["crossplay", "zoo/spread", "--past"]):
        code, _, said = shoal(*words)
        assert code == 2 and said.startswith("shoal: zoo/spread ")
    assert zoo.shown(Path("runs/mine")) == "runs/mine"


def test_a_folder_of_the_same_name_is_not_mistaken_for_a_policy(copy: Path, shoal: Command) -> None:
    """Neither of the two is taken; a folder with another name, or the zoo itself as in a checkout, is no question."""
    shutil.copytree(copy, "zoo/spread")
    code, _, said = shoal("evaluate", "zoo/spread")
    assert code == 2 and said.startswith("shoal: zoo/spread is a policy that comes with Shoal, and a folder here too")
    assert zoo.located(Path("zoo/spread").absolute()) == Path("zoo/spread").absolute()
    shutil.move("zoo/spread", "zoo/mine")
    assert zoo.located("zoo/mine") == Path("zoo/mine") and zoo.located("zoo/spread") == copy
    shutil.rmtree("zoo")
    Path("zoo").symlink_to(copy.parent)
    assert zoo.located("zoo/spread") == copy


def test_files_are_written_to_the_working_directory(copy: Path) -> None:
    run = library.open_run("zoo/spread")
    assert zoo.output_of(run.folder, "replay.gif") == Path("spread-replay.gif")
    assert zoo.output_of(Path("runs/spread"), "replay.gif") == Path("runs/spread/replay.gif")
    assert run.export(format="stablehlo") == Path("spread-policy.stablehlo")
    assert library.report("zoo/spread", replays=False) == Path("spread-report.html")
    assert sorted(path.name for path in Path().iterdir()) == [
        "spread-policy.stablehlo", "spread-policy.stablehlo.json", "spread-report.html"
    ]  # fmt: skip
    zoo.check_files(copy)


@pytest.mark.slow
def test_a_policy_is_replayed(copy: Path, shoal: Command) -> None:
    code, said, _ = shoal("replay", "zoo/spread", "--episodes", "1")
    assert code == 0 and said.endswith("spread-replay.gif\n") and Path("spread-replay.gif").stat().st_size > 10_000


@pytest.mark.slow
def test_policies_play_together(copy: Path, shoal: Command) -> None:
    code, said, _ = shoal("crossplay", "zoo/spread", "zoo/spread", "--episodes", "4")
    assert code == 0 and "A zoo/spread" in said


@pytest.mark.slow
def test_a_score_is_measured_again(copy: Path) -> None:
    found = read_evaluation(copy)
    assert found is not None
    mean = library.open_run("zoo/spread").evaluate(found["episodes"]).mean
    assert mean == pytest.approx(found["mean"], abs=(found["high"] - found["low"]) / 4)


def test_a_policy_is_not_trained_further(copy: Path, shoal: Command) -> None:
    code, _, said = shoal("train", "--resume", "zoo/spread")
    assert code == 2 and "without the rest of their training" in said and "--init-from zoo/spread" in said
    with pytest.raises(InputError, match="cannot be resumed"):
        library.resume("zoo/spread")
    with pytest.raises(InputError, match="cannot be resumed"):
        library.agent(folder="zoo/spread")
    zoo.check_files(copy)


@pytest.mark.slow
def test_a_run_starts_from_a_policy_and_its_configuration(copy: Path) -> None:
    tiny = {"steps": 8, "num_envs": 2, "rollout_length": 4, "minibatches": 1, "epochs": 1, "eval_episodes": 0}
    quiet = {"tensorboard": False, "progress": False, "devices": 1}
    run = library.train(config="zoo/spread", init_from="zoo/spread", folder="run", **tiny, **quiet)
    assert run.settings.init_from == "zoo/spread" and run.config.gamma == 0.9
    assert zoo.names() == ["spread"] and str(copy) in Path("run/init_from.json").read_text("utf-8")


@pytest.mark.slow
def test_a_run_trains_against_a_policy_of_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder has a copy of the policies, and its configuration their name."""
    monkeypatch.chdir(tmp_path)
    tiny = {"steps": 8, "num_envs": 2, "rollout_length": 4, "minibatches": 1, "epochs": 1, "eval_episodes": 0}
    quiet = {"tensorboard": False, "progress": False, "devices": 1}
    run = library.train("mappo", "mpe/simple_tag", opponents="zoo/tag", folder="run", **tiny, **quiet)
    assert run.settings.opponent_options.opponents == "zoo/tag" and Path("run/opponents/run.json").is_file()
    monkeypatch.setattr(shipped, "zoo", lambda: tmp_path / "gone")
    assert library.open_run("run").evaluate(2).scores.shape == (1, 2)
