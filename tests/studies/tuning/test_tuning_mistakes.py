"""Every mistake in the part ``[tuning]`` is answered by one sentence that names the file and the key."""

from functools import partial
from pathlib import Path

import pytest

import shoal
from shoal.errors import InputError
from shoal.studies import execution
from shoal.studies.plan import plan
from shoal.studies.study_file import read_study
from shoal.studies.tuning.methods import methods
from shoal.studies.tuning.structures import Instance, Population
from shoal.training import memory
from support import small_studies
from support.small_studies import TUNING, check_refused, made_record, write_tuning_file

RANGE = "learning_rate = { low = 1e-4, high = 1e-1, log = true }"
TABLE = f"[tuning.ranges]\n{RANGE}\ngamma = {{ values = [0.9, 0.99] }}\n"

# (what is replaced in TUNING, by what, the sentence after the file's name)
MISTAKES = {
    "a tuned run without tuning": (
        TUNING[TUNING.index("[tuning]") :],
        "",
        "the variant 'tuned' tuned requires the table [tuning] with the flags to tune (docs/tuning.md).",
    ),
    "tuned as a number": ("tuned = true", "tuned = 1", "the variant 'tuned' tuned must be true or false, not 1."),
    "no trials": (
        "trials = 4",
        "",
        "[tuning] trials is missing; set it to the number of trials that start in each method, or set budget.",
    ),
    "trials and a budget": (
        "trials = 4",
        "trials = 4\nbudget = 1e6",
        "[tuning] budget and trials determine each other; set only one of them.",
    ),
    "too few trials": (
        "trials = 4",
        "trials = 1",
        "[tuning] trials must be at least 2, so that one reaches the last of 2 rungs with eta 2, not 1.",
    ),
    "trials that are half": ("trials = 4", "trials = 4.5", "[tuning] trials must be a whole number, not 4.5."),
    "a budget for nothing": (
        "trials = 4",
        "budget = 100",
        "[tuning] budget 100 is too small for 2 trials, the minimum for 2 rungs; raise it, or lower steps, "
        "seeds or rungs.",
    ),
    "a negative budget": (
        "trials = 4",
        "budget = -1",
        "[tuning] budget must be at least 1 and at most 1e15, not -1.",
    ),
    "no rungs": ("rungs = 2", "rungs = 0", "[tuning] rungs must be at least 1 and at most 20, not 0."),
    "nobody leaves": ("eta = 2", "eta = 1", "[tuning] eta must be at least 2 and at most 100, not 1."),
    "an unknown key": (
        "episodes = 4\n\n[tuning.ranges]",
        "episode = 4\n\n[tuning.ranges]",
        "There is no key in [tuning] named 'episode'; did you mean 'episodes'?",
    ),
    "an unknown search": (
        "eta = 2",
        "eta = 2\nsearch = 'optun'",
        "[tuning] search: There is no search 'optun'; did you mean 'optuna'?",
    ),
    "one round of Optuna": (
        "eta = 2",
        "eta = 2\nsearch = 'optuna'",
        "[tuning] rounds must be at least 2 where search is optuna, which proposes the first round at random.",
    ),
    "seeds that are reported": (
        "eta = 2",
        "eta = 2\nseed = 1",
        "[tuning] seed: trials have the seeds 1 to 2, and mappo in matrix/two_step, variant default has 0 to 1; "
        "reported runs and trials must have different seeds.",
    ),
    "seeds that begin before those that are reported": (
        "steps = 1024",
        "steps = 1024\nseed = 10001",
        "[tuning] seed: trials have the seeds 10000 to 10001, and mappo in matrix/two_step, variant default has 10001 "
        "to 10002; reported runs and trials must have different seeds.",
    ),
    "seeds that end too high": (
        "eta = 2",
        "eta = 2\nseed = 2147483647",
        "[tuning] seed and 2 seeds exceed the largest seed, 2147483647.",
    ),
    "episodes that are reported": (
        "eta = 2",
        "eta = 2\nevaluation_seed = 1000000",
        "[tuning] evaluation_seed is 1000000 as in [evaluation]; reported runs and trials must be evaluated on "
        "different episodes.",
    ),
    "no ranges": (
        TABLE,
        "",
        "[tuning] ranges is missing; set the values to try, for example gamma = { low = 0.9, high = 0.99 }.",
    ),
    "empty ranges": (TABLE, "[tuning.ranges]\n", "[tuning.ranges] has no flag to tune."),
    "a range that is a value": (
        RANGE,
        "learning_rate = 1",
        "[tuning.ranges] learning_rate must be a table of keys and values, not 1.",
    ),
    "a range without an end": (
        RANGE,
        "learning_rate = { low = 1e-4 }",
        "[tuning.ranges] learning_rate high is missing; it must be a number.",
    ),
    "a range without anything": (
        RANGE,
        "learning_rate = { log = true }",
        "[tuning.ranges] learning_rate low is missing; it must be a number (or set values).",
    ),
    "a range upside down": (
        RANGE,
        "learning_rate = { low = 1, high = 0.5 }",
        "[tuning.ranges] learning_rate high must be above low, but 0.5 is not above 1.",
    ),
    "a logarithm of zero": (
        RANGE,
        "learning_rate = { low = 0, high = 0.5, log = true }",
        "[tuning.ranges] learning_rate low must be above 0 where log is true, not 0.",
    ),
    "a range without a limit": (
        RANGE,
        "learning_rate = { low = 0, high = inf }",
        "[tuning.ranges] learning_rate must have finite bounds.",
    ),
    "values and an interval": (
        RANGE,
        "learning_rate = { low = 0, values = [1.0] }",
        "There is no key in [tuning.ranges] learning_rate named 'low'; known: values.",
    ),
    "no values": (RANGE, "learning_rate = { values = [] }", "[tuning.ranges] learning_rate values is an empty list."),
    "a value twice": (
        RANGE,
        "learning_rate = { values = [0.1, 0.1] }",
        "[tuning.ranges] learning_rate values has a value twice.",
    ),
    "an unknown flag": (
        RANGE,
        "lr = { values = [0.1] }",
        "[tuning.ranges] lr, for mappo: There is no setting 'lr'; did you mean 'learning_rate'?",
    ),
    "another unknown flag": (
        RANGE,
        "gae = { values = [0.1] }\n",
        "[tuning.ranges] gae, for mappo: There is no setting 'gae'; did you mean 'gain'?",
    ),
    "an end out of bounds": (
        RANGE,
        "lam = { low = 0.5, high = 2.0 }",
        "[tuning.ranges] lam, for mappo: lam must be at least 0 and at most 1, not 2.",
    ),
    "half epochs": (
        RANGE,
        "epochs = { low = 1.5, high = 4 }",
        "[tuning.ranges] epochs, for mappo: epochs must be a whole number, not 1.5.",
    ),
    "the steps": (
        RANGE,
        "steps = { low = 10, high = 100 }",
        "[tuning.ranges] steps is a setting of the run and not of the method, so it cannot be tuned.",
    ),
    "the environment": (
        RANGE,
        "env = { horizon = { low = 1, high = 3 } }",
        "[tuning.ranges] env cannot be tuned, since it changes the environment and not the method.",
    ),
    "ranges for no run": (
        TABLE,
        "[[tuning.ranges]]\nwhere = { algorithm = 'qmix' }\ngamma = { values = [0.9] }\n",
        "[[tuning.ranges]] 1 where algorithm cannot be qmix; the runs have mappo.",
    ),
    "ranges for the runs that are not tuned": (
        TABLE,
        "[[tuning.ranges]]\nwhere = { variant = 'default' }\ngamma = { values = [0.9] }\n",
        "No table [[tuning.ranges]] has a range for mappo.",
    ),
    "two ranges of a flag": (
        TABLE,
        "[[tuning.ranges]]\ngamma = { values = [0.9] }\n[[tuning.ranges]]\ngamma = { values = [0.8] }\n",
        "[[tuning.ranges]] 2 gamma: another table has a range of this flag for the same runs.",
    ),
    "ranges of an environment in a common search": (
        TABLE,
        "[[tuning.ranges]]\nwhere = { environment = 'matrix/two_step' }\ngamma = { values = [0.9] }\n",
        "[[tuning.ranges]] 1 where environment requires separately = true in [tuning].",
    ),
    "an environment without runs": (
        "eta = 2",
        "eta = 2\nenvironments = 'matrix/climbing'",
        "[tuning] environments: There is no environment of the tuned runs 'matrix/climbing'; known: matrix/two_step.",
    ),
    "environments, separately": (
        "eta = 2",
        "eta = 2\nenvironments = 'matrix/two_step'\nseparately = true",
        "[tuning] separately tunes in each environment, so remove environments.",
    ),
}


def build(path: Path) -> None:
    methods(read_study(path))


refusal = partial(small_studies.refusal, build)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, tmp_path: Path) -> None:
    check_refused(build, TUNING, MISTAKES[mistake], tmp_path)


def test_methods_have_equal_budgets(tmp_path: Path) -> None:
    text = TUNING.replace('algorithm = "mappo"\nsteps = 1024\n', "").replace(
        "[[variants]]",
        """[grid]
algorithm = ["mappo", "ippo"]

[[overrides]]
where = { algorithm = "mappo" }
steps = 64

[[overrides]]
where = { algorithm = "ippo" }
steps = 128

[[variants]]""",
        1,
    )
    path = write_tuning_file(tmp_path, text)
    assert refusal(path) == (
        f"{path}: [tuning] gives every method the same budget, but ippo, variant tuned has 128 steps and mappo, "
        f"variant tuned has 64; set steps in [tuning]."
    )
    with_steps = write_tuning_file(tmp_path, text.replace("eta = 2", "eta = 2\nsteps = 32"))
    assert [method.budget for method in methods(read_study(with_steps))] == [2 * (4 * 16 + 2 * 16)] * 2


def test_a_search_of_an_unknown_method_is_refused(tmp_path: Path) -> None:
    text = TUNING.replace('algorithm = "mappo"\n', "").replace(
        "[[variants]]", '[grid]\nalgorithm = ["mappo", "ippo"]\n\n[[variants]]', 1
    )
    path = write_tuning_file(tmp_path, text)
    with pytest.raises(InputError, match=r"--only algorithm cannot be ipo; the runs have mappo, ippo\."):
        shoal.tune(path, only={"algorithm": ("mappo", "ipo")}, out=tmp_path / "out", dry_run=True)


def test_a_number_selects_the_method_that_it_names(tmp_path: Path) -> None:
    path = write_tuning_file(tmp_path, TUNING.replace('name = "tuned"', 'name = "5"'))
    report = shoal.tune(path, only={"variant": 5}, out=tmp_path / "out", dry_run=True)
    assert [method.values["variant"] for method in report.methods] == ["5"]


def test_a_budget_in_place_of_trials(tmp_path: Path) -> None:
    (method,) = methods(read_study(write_tuning_file(tmp_path, TUNING.replace("trials = 4", "budget = 8000"))))
    # Five trials train 512 steps and two of them 512 more, with two seeds each: 7168. Six and three would be 9216.
    assert [tuple(rung) for rung in method.rungs] == [(512, 5), (1024, 2)] and method.budget == 7168


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        shoal.tune(path, out=path.parent / "out", dry_run=True)
    assert not (path.parent / "out").exists()
    return str(caught.value)


def test_a_rung_is_at_least_an_update(tmp_path: Path) -> None:
    path = write_tuning_file(tmp_path, TUNING.replace("rollout_length = 4", "rollout_length = 256"))
    assert refused(path) == (
        f"{path}: mappo, variant tuned: The rungs at 512, 1024 steps are too short for updates of 1024 steps (num_envs "
        f"times rollout_length); raise steps or lower rungs in [tuning]."
    )


def test_something_is_learned_before_the_first_rung(tmp_path: Path) -> None:
    text = TUNING.replace("mappo", "qmix").replace("epochs = 1\nminibatches = 1", "learning_starts = 1024")
    path = write_tuning_file(tmp_path, text)
    assert refused(path) == (
        f"{path}: qmix, variant tuned: the first rung has no update: its 512 steps only fill the replay buffer "
        "(learning_starts 1,024); lower that, or raise steps or lower rungs in [tuning]."
    )


def test_a_trial_that_contradicts_itself(tmp_path: Path) -> None:
    text = TUNING.replace("learning_rate =", "rollout_length = { values = [4, 5] }\nlearning_rate =")
    path = write_tuning_file(tmp_path, text.replace("epochs = 1\nminibatches = 1", "epochs = 1\nminibatches = 8"))
    assert ": A trial with rollout_length 5 is invalid: " in refused(path)


def test_a_trial_that_scales_rewards_twice(tmp_path: Path) -> None:
    flags = 'reward_norm = "scale"\nlearning_starts = 64'
    text = TUNING.replace("mappo", "qmix").replace("epochs = 1\nminibatches = 1", flags)
    text = text.replace("learning_rate =", "normalise_rewards = { values = [true] }\nlearning_rate =")
    assert "would both scale rewards" in refused(write_tuning_file(tmp_path, text))


def test_what_ends_runs_early_does_not_end_trials(tmp_path: Path) -> None:
    ends = "steps = 1024\neval_every = 64\nstop_at = 1.0\ntime_budget = 60\n"
    path = write_tuning_file(tmp_path, TUNING.replace("steps = 1024\n", ends))
    report = shoal.tune(path, out=tmp_path / "out", dry_run=True)
    (search,) = report.searches.values()
    settings = Instance(search.settings[0], {}).settings
    assert (settings.eval_every, settings.stop_at, settings.time_budget) == (None, None, None)


def test_a_missing_optuna_names_its_extra(tmp_path: Path) -> None:
    path = write_tuning_file(tmp_path, TUNING.replace("eta = 2", "eta = 2\nsearch = 'optuna'\nrounds = 2"))
    try:
        import optuna  # noqa: F401
    except ImportError:
        assert (
            refused(path)
            == f"{path}: mappo, variant tuned: search = 'optuna' requires Optuna: pip install 'optuna>=4.0'"
        )


def test_searches_that_find_the_same_leave_two_runs(tmp_path: Path) -> None:
    text = TUNING.replace("[evaluation]", '[[variants]]\nname = "other"\ntuned = true\nepochs = 2\n\n[evaluation]', 1)
    study = read_study(write_tuning_file(tmp_path, text))
    cells = plan(study, tmp_path, lambda one: {"gamma": 0.9, "epochs": 3})
    assert [cell.values["variant"] for cell in cells] == ["default", "tuned", "other"]
    assert cells[1].digest == cells[2].digest != cells[0].digest


def test_a_tuned_run_needs_its_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other runs do not, and the page says that it is missing, also if a run without tuning is recorded."""
    path = write_tuning_file(tmp_path)
    with pytest.raises(InputError) as caught:
        shoal.study(path)
    assert str(caught.value) == (
        f"{path}: mappo in matrix/two_step, variant tuned takes the values of a search that has no record in "
        f"{tmp_path / 'records' / 'demo'}; run shoal tune {path}."
    )
    monkeypatch.setattr(execution, "run_cell", lambda cell, progress: made_record(cell))
    assert shoal.study(path, out=tmp_path / "out", only={"variant": "default"}, progress=False).ok
    page = shoal.results(path).read_text(encoding="utf-8")
    assert "**1 of 2 runs are missing.**" in page
    assert [line.count("missing") for line in page.splitlines() if "| tuned" in line] == [1, 3]


def test_no_trial_trains_if_those_of_a_later_structure_do_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free", lambda device: 10**9)
    monkeypatch.setattr(Population, "rung", lambda *_: pytest.fail("trials of the first structure train"))
    text = TUNING.replace("gamma =", "hidden = { values = [[4], [20000, 20000]] }\ngamma =")
    report = shoal.tune(write_tuning_file(tmp_path, text), out=tmp_path / "out", progress=False)
    ((_, reason),) = report.failed
    assert reason.startswith("The parameters and optimisers of ") and "1.0 GB are free" in reason
