"""The plan of a study: its runs in order, names that are found again, and the configuration of each."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InputError
from shoal.studies.archive import Stored
from shoal.studies.combinations import combinations, selected
from shoal.studies.keys import same
from shoal.studies.plan import Cell, plan, readable_name
from shoal.studies.study_file import read_study, shipped, study_path
from support.selection import quick
from support.small_studies import GRID, cells_of, write_study_file

EXTRAS = """
[[variants]]
name = "deep"
hidden = [8, 8]

[[variants]]
name = "plain"

[[overrides]]
where = { algorithm = "qmix", environment = ["matrix/two_step"] }
batch_size = 16
steps = 128

[[exclude]]
algorithm = "mappo"
variant = "deep"
gamma = [0.9, 0.99]
"""


def test_the_runs_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    cells = cells_of(write_study_file(tmp_path))
    assert [tuple(cell.values.values()) for cell in cells] == [
        (algorithm, environment, gamma)
        for algorithm in ("mappo", "qmix")
        for environment in ("matrix/climbing", "matrix/two_step")
        for gamma in (0.9, 0.99)
    ]
    assert cells[1].title == "mappo in matrix/climbing, gamma 0.99"
    assert cells[1].name.startswith("mappo-matrix-climbing-gamma-0.99-") and cells[1].folder.parent.name == "demo"
    assert len({cell.digest for cell in cells}) == 8 and all(len(cell.digest) == 10 for cell in cells)
    assert pickle.loads(pickle.dumps(cells)) == cells


def test_variants_overrides_and_exclusions(tmp_path: Path) -> None:
    cells = cells_of(write_study_file(tmp_path, GRID + EXTRAS))
    assert len(cells) == 4 + 8
    assert all(cell.values["variant"] == "plain" for cell in cells if cell.algorithm == "mappo")
    for cell in cells:
        deep, changed = cell.values["variant"] == "deep", cell.name.startswith("qmix-matrix-two_step")
        settings, config = cell.resolved()
        assert cell.flags.get("hidden") == ((8, 8) if deep else None)
        assert cell.flags["steps"] == settings.steps == (128 if changed else 64)
        assert cell.flags.get("batch_size") == (16 if changed else None)
        assert cell.algorithm != "qmix" or (config.batch_size == 16) == changed


def digests(folder: Path, text: str = GRID) -> list[str]:
    return [cell.digest for cell in cells_of(write_study_file(folder, text))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('title = "T"', 'title = "Another"'),
        ('"Q?"', '"Why?"'),
        ("[grid]", "[evaluation]\nepisodes = 3\n[grid]"),
        ("steps = 64", "steps = 64.0"),
        ("[grid]", "clip_rewards_of_a_later_version = 1\n[grid]"),
    ],
)
def test_options_without_effect_on_training_keep_the_digest(before: str, after: str, tmp_path: Path) -> None:
    if "later" in after:  # an option that equals its default is as good as one that does not exist
        after = "reward_clip = 10.0\n[grid]"
    assert digests(tmp_path / "b", GRID.replace(before, after)) == digests(tmp_path / "a")


@pytest.mark.parametrize(
    "line",
    [
        "seed = 1",
        "num_envs = 16",
        "rollout_length = 128",
        "hidden = [7]",
        "normalise_rewards = true",
        "time_limit = 5",
        "env.shared_reward = false",
        "devices = 1",
        "recurrent = 4",
    ],
)
def test_every_flag_changes_the_digest(line: str, tmp_path: Path) -> None:
    """``num_envs = 16`` is the default of the settings, but without it the length of an episode decides."""
    here, there = digests(tmp_path / "a"), digests(tmp_path / "b", GRID.replace("[grid]", f"{line}\n[grid]"))
    changed = [one != other for one, other in zip(here, there, strict=True)]
    assert all(changed[:4]) and (all(changed) or line == "num_envs = 16"), line


def test_digests_stay_what_they_are(tmp_path: Path) -> None:
    """They name committed records; a change of the code that changes them loses all records."""
    assert digests(tmp_path)[:2] == ["da0286094c", "c93290761b"]


def test_none_is_written_as_on_the_command_line(tmp_path: Path) -> None:
    text = GRID.replace("[grid]", "devices = 'None'\nenv.shared_reward = 'None'\n[grid]")
    cell = cells_of(write_study_file(tmp_path, text))[0]
    assert cell.flags["devices"] is None and cell.env == {"shared_reward": None}


def test_a_folder_is_found_after_its_readable_name_has_changed(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)
    cell = cells_of(path)[0]
    (cell.folder.parent / f"other-{cell.digest}").mkdir(parents=True)
    assert cells_of(path)[0].folder.name == f"other-{cell.digest}"
    cell.folder.mkdir()
    assert cells_of(path)[0].folder == cell.folder


@pytest.mark.parametrize("algorithm", ["tuning", "tuning:make", "crossplay"])
def test_no_run_has_a_name_of_a_search_or_of_games(algorithm: str) -> None:
    """An algorithm of the user's own may be in a file tuning.py."""
    name = readable_name({"algorithm": algorithm, "environment": "matrix/climbing"})
    assert name == f"run-{algorithm.replace(':', '-')}-matrix-climbing" and Stored(name, Path()).is_run
    assert readable_name({"algorithm": "tuning_x", "environment": "matrix/climbing"}) == "tuning_x-matrix-climbing"


def test_a_number_selects_the_variant_that_it_names(tmp_path: Path) -> None:
    text = (
        GRID.replace("gamma = [0.9, 0.99]", "") + '[[variants]]\nname = "5"\n[[variants]]\nname = "0.5"\ngamma = 0.5\n'
    )
    study = read_study(write_study_file(tmp_path, text))
    values = [one.values for one in combinations(study)]
    chosen = [values[i]["variant"] for i in selected(study, values, {"variant": 5})]
    assert chosen == ["5"] * 4 and len(selected(study, values, {"variant": (5, 0.5)})) == 8
    with pytest.raises(InputError, match="--only variant cannot be 6"):
        selected(study, values, {"variant": (5, 6)})


def test_a_text_selects_the_variant_of_its_spelling_or_the_number(tmp_path: Path) -> None:
    text = GRID.replace(', "matrix/two_step"', "").replace(', "qmix"', "")
    text += '[[variants]]\nname = "1e-3"\n[[variants]]\nname = "1e-4"\nlearning_rate = 1e-4\n'
    study = read_study(write_study_file(tmp_path, text))
    values = [one.values for one in combinations(study)]
    for said, variant in (("1e-3", "1e-3"), ("1e-4", "1e-4"), ('"1e-4"', "1e-4")):
        assert {values[i]["variant"] for i in selected(study, values, {"variant": said})} == {variant}
    assert len(selected(study, values, {"gamma": "9e-1"})) == 2 and len(selected(study, values, {"gamma": "0.90"})) == 2
    with pytest.raises(InputError, match="--only variant cannot be 1e-5; the runs have 1e-3, 1e-4"):
        selected(study, values, {"variant": "1e-5"})


@pytest.mark.parametrize(
    ("only", "chosen"), [("64 64", [0]), (("64 64", 32), [0, 1]), (64, [2]), ((64, 64), [0]), ("[64, 64]", [0])]
)
def test_values_are_selected_as_messages_list_them(tmp_path: Path, only: Any, chosen: list[int]) -> None:
    hidden = GRID.replace("gamma = [0.9, 0.99]", "hidden = [[64, 64], [32], [64]]").replace(', "matrix/two_step"', "")
    study = read_study(write_study_file(tmp_path, hidden.replace(', "qmix"', "")))
    values = [one.values for one in combinations(study)]
    assert selected(study, values, {"hidden": only}) == chosen
    with pytest.raises(InputError, match="--only hidden cannot be 65; the runs have 64 64, 32, 64"):
        selected(study, values, {"hidden": 65})


def test_true_is_not_1() -> None:
    assert not same(True, 1) and not same((0.5, True), (0.5, 1)) and same((1, 2.0), (1.0, 2))


def test_some_runs_are_selected(tmp_path: Path) -> None:
    study = read_study(write_study_file(tmp_path))
    values = [one.values for one in combinations(study)]
    assert selected(study, values, {}) == list(range(8))
    assert selected(study, values, {"algorithm": "qmix", "gamma": (0.99, 0.9)}) == [4, 5, 6, 7]
    for only, sentence in (
        ({"gama": 0.9}, "--only: There is no axis 'gama'; did you mean 'gamma'?"),
        ({"gamma": 1}, "--only gamma cannot be 1; the runs have 0.9, 0.99."),
    ):
        with pytest.raises(InputError) as caught:
            selected(study, values, only)
        assert str(caught.value) == f"{study.path}: {sentence}"


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("algorithm", {"algorithm": "ippo"}, "algorithm is ippo there and mappo in the study"),
    ("option", {"env": {"horizon": 3}}, "env.horizon is 3 there and not set in the study"),
    ("setting", {"settings": {"seeds": 5}}, "seeds is 5 there and 2 in the study"),
    ("hyper-parameter", {"config": {"gamma": 0.5}}, "gamma is 0.5 there and 0.9 in the study"),
    ("key of a later version", {"config": {"unheard": 1}}, ""),
    ("size by the environment", {"settings": {"rollout_length": 64, "num_envs": 3}}, ""),
]


@pytest.mark.parametrize(("change", "sentence"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_a_run_of_another_configuration_is_told_apart(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    cell: Cell = cells_of(write_study_file(tmp_path))[0]
    run = {"algorithm": "mappo", "environment": "matrix/climbing", "env": {}, "settings": {}, "config": {}}
    assert cell.difference(run) is None
    assert (cell.difference(run | change) or "") == sentence


def test_an_option_at_its_default_is_as_if_it_was_not_set(tmp_path: Path) -> None:
    """Digests do not tell them apart either."""
    text = GRID.replace('["matrix/climbing", "matrix/two_step"]', '["mpe/simple_spread"]')
    plain = cells_of(write_study_file(tmp_path / "a", text))[0]
    given = cells_of(write_study_file(tmp_path / "b", text.replace("seeds = 2", "seeds = 2\nenv.num_agents = 3")))[0]
    run = {"algorithm": "mappo", "environment": "mpe/simple_spread", "settings": {}, "config": {}}
    assert plain.digest == given.digest
    for cell in (plain, given):
        assert cell.difference(run | {"env": {}}) is None and cell.difference(run | {"env": {"num_agents": 3}}) is None
        assert "env.num_agents is 4 there" in (cell.difference(run | {"env": {"num_agents": 4}}) or "")


@pytest.mark.parametrize("given", ["runs/x", "runs/x/checkpoints", "/a/runs/x", "../x"])
def test_the_run_that_one_starts_from_may_be_a_relative_path(given: str, tmp_path: Path) -> None:
    """A run keeps the whole path, of the folder in which its study was run."""
    text = GRID.replace("seeds = 2", f'seeds = 2\ninit_from = "{given}"')
    cell: Cell = cells_of(write_study_file(tmp_path, text))[0]
    run = {"algorithm": "mappo", "environment": "matrix/climbing", "env": {}, "config": {}}
    kept = "/a/b/../x" if given.startswith("..") else "/a/runs/x"
    assert cell.difference(run | {"settings": {"init_from": kept}}) is None
    found = cell.difference(run | {"settings": {"init_from": "/a/runs/y"}})
    assert found == f"init_from is /a/runs/y there and {given} in the study"


def test_a_script_that_plays_a_side_is_named_as_in_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = GRID.replace("seeds = 2", 'seeds = 2\nopponents = "toys"')
    cell: Cell = cells_of(write_study_file(tmp_path, text))[0]
    run = {"algorithm": "mappo", "environment": "matrix/climbing", "env": {}, "config": {}}
    assert cell.difference(run | {"settings": {"opponents": "toys:make"}}) is None


def test_of_what_an_algorithm_decided_before_training_only_that_is_not_compared(tmp_path: Path) -> None:
    text = GRID.replace('algorithm = ["mappo", "qmix"]', 'algorithm = ["seps"]')
    cell: Cell = cells_of(write_study_file(tmp_path, text))[0]
    run = {"algorithm": "seps", "environment": "matrix/climbing", "env": {}, "settings": {}}
    assert cell.difference(run | {"config": {"sharing": [0, 1], "gamma": 0.9}}) is None
    found = cell.difference(run | {"config": {"sharing": [0, 1], "gamma": 0.5}})
    assert found == "gamma is 0.5 there and 0.9 in the study"


def test_studies_that_ship_are_found_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert {"two_step", "one_policy", "monotonicity"} <= shipped().keys()


@pytest.mark.parametrize("name", quick(shipped(), "two_step", "one_policy", "monotonicity"))
def test_studies_that_ship_are_sound(name: str, tmp_path: Path) -> None:
    study = read_study(study_path(name))
    assert study.question and study.tables and plan(study, tmp_path)
