"""Greedy or sampled: which of a policy's two ways to act its run records, and that everything takes the recorded one.

In the game both agents have one policy and no ids, and earn 1 where their actions differ: greedily they never do.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import ttest_ind

import shoal
import toys
from shoal import algorithms
from shoal.cli import train as cli
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs import build, final_evaluation
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import acts_greedily
from shoal.storage.log import read_log
from shoal.training.evaluation import Evaluation, Evaluator, preferred, selection_of
from shoal.training.settings import Settings
from shoal.types import Scale
from support import trained

GAME = "matrix/proposition1"
FLAGS: dict[str, Any] = trained.SMALL | {"steps": 24, "eval_episodes": 64, "agent_id": False}
OBSERVED = np.zeros((2, 1))


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return shoal.train("mappo", GAME, folder=tmp_path_factory.mktemp("run") / "run", **FLAGS)


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))


def test_the_final_evaluation_records_the_better_mode_and_the_score_of_both(run: shoal.Run) -> None:
    found = told(run.folder)
    assert found["greedy"] is False and 0.3 < found["mean"] < 0.7, "one half is a uniform policy's"
    assert found["other"]["mean"] == 0.0 and found["episodes"] == 64
    text = cli.summary_text(run, "again")
    assert "sampled score  0." in text and "greedy actions 0.00 (" in text


def test_only_signs_of_numbers_are_printed_as_minus_signs(run: shoal.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "final_score", "-1.5 [-2, 1]\nwin-rate -0.5")
    assert "score  −1.5 [−2, 1]\nwin-rate −0.5\n" in cli.summary_text(run, "again")


def test_the_summary_names_the_mode_of_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the better mode of the best policies is not that of the last ones."""
    monkeypatch.setattr(Checkpoints, "load_meta", lambda _: {"step": 8, "score": [1.0]})

    def played(score: float, greedy: bool, **more: Any) -> Evaluation:
        scores = np.full((1, 1), score)
        return Evaluation(scores[..., None], scores, scores, {"won": np.ones((1, 1))}, greedy, **more)

    last = played(3.0, True, other=played(2.0, False))
    best = played(5.0, False, other=played(4.0, True))
    _, *lines = final_evaluation.write_evaluation(tmp_path, last, best, 1, 16).split("\n")
    whose = "best policies, sampled actions,"
    assert [line.partition(" (")[0] for line in lines] == [
        "win rate 100.0 %",
        "sampled actions 2.00",
        f"{whose} 5.00",
        f"{whose} win rate 100.0 %",
        "best policies greedy actions 4.00",
    ]


def test_score_policies_and_pictures_take_the_recorded_mode(run: shoal.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run.acts_greedily and not shoal.load(run.folder).greedy and not run.policies().greedy
    assert shoal.load(run.folder, greedy=True).greedy
    drawn = shoal.load(run.folder)
    assert len({tuple(drawn.act(OBSERVED).tolist()) for _ in range(40)}) == 4, "both agents draw"
    found = run.evaluate(8)
    assert not found.greedy and found.other is not None and found.other.mean == 0.0
    only = run.evaluate(8, greedy=True)
    assert only.greedy and only.other is None and only.mean == 0.0
    asked = []
    monkeypatch.setattr("shoal.runs.run.record_episodes", lambda *args: asked.append(args[-1]) or [])
    monkeypatch.setattr(type(run), "draw", lambda *args: Path())
    for greedy in (None, True):
        run.replay(seed=0, greedy=greedy)
    assert asked == [False, True]


def test_loaded_policies_draw_by_a_seed(run: shoal.Run, unchecked_annotations: None) -> None:
    first, again, other = (shoal.load(run.folder, sample_seed=seed) for seed in (0, 0, 1))
    drawn = [
        [team.act(OBSERVED).tolist() for _ in range(20)] for team in (first, again, other, run.policies(sample_seed=1))
    ]
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    for wrong in ("0", 0.0):
        with pytest.raises(InputError, match="seed must be a whole number"):
            shoal.load(run.folder, seed=wrong)  # type: ignore[arg-type]


def test_the_evaluation_of_earlier_policies_decides_nothing(run: shoal.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    (folder / "policy" / "1").rename(folder / "policy" / "2")  # as if trained on by an agent, which does not evaluate
    assert acts_greedily(run.folder, 24) is False and acts_greedily(folder, 24) is None
    assert shoal.load(folder).greedy and shoal.open_run(folder).acts_greedily


def test_an_earlier_run_acts_greedily(run: shoal.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    earlier = {name: value for name, value in told(folder).items() if name != "other"} | {"greedy": True}
    (folder / "evaluation.json").write_text(json.dumps(earlier), encoding="utf-8")
    assert shoal.load(folder).greedy and shoal.open_run(folder).evaluate(8).greedy
    for text in ("{}", "[]", '{"best": 1}'):
        (folder / "evaluation.json").write_text(text, encoding="utf-8")
        assert shoal.load(folder).greedy
    (folder / "evaluation.json").unlink()
    assert shoal.load(folder).greedy, "nothing is recorded"
    assert not shoal.open_run(folder).evaluate(64).greedy, "but an evaluation shows the better mode first"


def test_an_export_says_how_the_team_acts(run: shoal.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.export(tmp_path / "team.stablehlo", format="stablehlo")
    assert json.loads(path.with_name(f"{path.name}.json").read_text())["mode"] == "sampled"
    assert "draw from its probabilities" in capsys.readouterr().err


def test_evaluations_during_training_choose_by_the_better_mode(tmp_path: Path) -> None:
    """The log has both; the best policies, and the score at which training stops, are those of sampled actions."""
    flags: dict[str, Any] = FLAGS | {"steps": 48, "eval_every": 24, "curve_episodes": 64}
    run = shoal.train("mappo", GAME, folder=tmp_path / "run", **flags)
    rows = [row for row in read_log(run.folder) if "greedy/return" in row]
    assert [row["sampled/better"] for row in rows] == [1, 1]
    assert all(row["greedy/return"] == [0.0, 0.0] and min(row["sampled/return"]) > 0.2 for row in rows)
    wanted = np.max([row["sampled/return"] for row in rows], 0).tolist()
    assert list(run.at.best or ()) == wanted == Checkpoints(run.folder / "best").load_meta()["score"]
    assert told(run.folder)["best"]["greedy"] is False and not shoal.load(run.folder, best=True).greedy


def test_without_a_final_evaluation_those_during_training_are_greedy(run: shoal.Run, tmp_path: Path) -> None:
    """So they are in studies, which evaluate in the mode that their file names."""
    for episodes, greedy in ((0, True), (3, None), (None, None)):
        settings = replace(run.settings, eval_episodes=episodes, eval_every=24.0)
        found = selection_of(run.env, run._acting(), settings, tmp_path, None, lambda: None)
        assert found is not None and found.evaluator.greedy is greedy


def test_an_agent_acts_in_the_mode_of_its_newest_evaluation(tmp_path: Path) -> None:
    agent = shoal.agent("mappo", GAME, folder=tmp_path / "agent", **FLAGS)
    assert len({tuple(agent.act(OBSERVED).tolist()) for _ in range(20)}) == 1
    assert not agent.evaluate(64).greedy
    assert len({tuple(agent.act(OBSERVED).tolist()) for _ in range(40)}) == 4
    assert len({tuple(agent.act(OBSERVED, greedy=True).tolist()) for _ in range(20)}) == 1
    agent.close()


def test_both_modes_at_once_are_each_alone(run: shoal.Run) -> None:
    """The greedy half plays the episodes of a greedy evaluation, the sampled half others with the same policies."""
    learner, key = run._learner(), jax.random.key(3)
    both, greedy, sampled = (
        Evaluator(run.env, run._acting(), 256, mode)(learner, key).in_mode(mode is not False)
        for mode in (None, True, False)
    )
    np.testing.assert_array_equal(both.returns, greedy.returns)
    assert both.other is not None and greedy.other is None
    assert both.other.mean == pytest.approx(sampled.mean, abs=0.15)


def evaluation(scores: Any, greedy: bool) -> Evaluation:
    scores = np.asarray(scores, np.float64)
    return Evaluation(scores[..., None], np.ones_like(scores), scores, {}, greedy)


@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.3, 0.6, 1.2])
def test_sampled_actions_are_preferred_if_they_are_better_by_more_than_the_interval(shift: float) -> None:
    """With one seed the interval is that of Welch's test in SciPy."""
    draw = np.random.default_rng(2)
    first, second = draw.normal(0.0, 1.0, (1, 20)), draw.normal(shift, 2.0, (1, 20))
    low = ttest_ind(second[0], first[0], equal_var=False).confidence_interval(0.95).low
    found = preferred(evaluation(first, True), evaluation(second, False))
    assert found.greedy == (low <= 0) and found.other is not None and found.other.greedy != found.greedy


def test_episodes_are_compared_within_seeds() -> None:
    """Seeds that differ by far do not hide that each is better with sampled actions."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, (2, 3, 30))
    level = np.array([0.0, 50.0, 100.0])[:, None]
    assert not preferred(evaluation(level + noise[0], True), evaluation(level + 0.2 + noise[1], False)).greedy


@pytest.mark.parametrize(("greedy", "sampled", "wanted"), [(1.0, 1.0, True), (1.0, 2.0, False), (2.0, 1.0, True)])
def test_scores_without_spread(greedy: float, sampled: float, wanted: bool) -> None:
    assert preferred(evaluation([[greedy] * 4], True), evaluation([[sampled] * 4], False)).greedy == wanted


def test_one_episode_decides_nothing() -> None:
    assert preferred(evaluation([[0.0], [0.0]], True), evaluation([[9.0], [9.0]], False)).greedy


DETERMINISTIC = {"ipqn", "iql", "pqn_vdn", "qmix", "qplex", "qtran", "shaq", "vdn"}


def test_a_run_that_stops_updates_early_acts_without_that() -> None:
    """It is made with one minibatch for acting, where an early stop would be refused."""
    config = override(
        algorithms.get("mappo").Config(), {"epochs": 1, "minibatches": 4, "kl_stop": 0.01, "hidden": (4,)}
    )
    assert build._whole_by(Settings())(algorithms.get("mappo"), toys.busy().spec, config).stochastic


@pytest.mark.parametrize("name", sorted(algorithms.NAMES))
def test_an_algorithm_and_its_policies_agree_on_being_stochastic(name: str) -> None:
    module, spec = algorithms.get(name), toys.busy().spec
    config = module.Config()
    try:
        made = module.make(spec, config, Scale(4, 8, 1))
    except InputError as error:
        pytest.skip(str(error))
    assert made.stochastic == module.make_policy(spec, config).stochastic == (name not in DETERMINISTIC)


@pytest.mark.parametrize("name", sorted(DETERMINISTIC))
def test_q_learning_that_explores_in_evaluation_is_stochastic(name: str) -> None:
    module, spec = algorithms.get(name), toys.busy().spec
    config = replace(module.Config(), explore_in_evaluation=True)
    try:
        made = module.make(spec, config, Scale(4, 8, 1))
    except InputError as error:
        pytest.skip(str(error))
    assert made.stochastic and module.make_policy(spec, config).stochastic


def test_q_learning_acts_with_epsilon_where_that_scores_better(tmp_path: Path) -> None:
    """With ε = 1 both agents draw from two actions, and half of the draws differ."""
    flags = {
        name: value for name, value in FLAGS.items() if name not in ("epochs", "minibatches", "normalise_advantage")
    }
    run = shoal.train(
        "vdn", GAME, folder=tmp_path / "run", epsilon_final=1.0, explore_in_evaluation=True, batch_size=4, **flags
    )
    found = told(run.folder)
    assert found["greedy"] is False and 0.3 < found["mean"] < 0.7 and found["other"]["mean"] == 0.0
    team = shoal.load(run.folder)
    assert not team.greedy
    drawn = [tuple(np.asarray(team.act(OBSERVED)).tolist()) for _ in range(20)]
    assert len(set(drawn)) > 1, "the deployed team explores too"
