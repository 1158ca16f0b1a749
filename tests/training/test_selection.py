"""Evaluations during training: their columns in the log, the best policies, and that training is not changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
import toys
from shoal.errors import CheckpointError
from shoal.game import HostEnvironment
from shoal.runs import final_evaluation
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.log import read_log
from shoal.training.ending import Standing
from shoal.training.evaluation import BEST_FOLDER, Evaluator, Selection, evaluation_of
from shoal.training.settings import Settings
from support import trained

PER_UPDATE = 4 * 6
UPDATES, EVERY = 16, 4
FLAGS: dict[str, Any] = trained.SMALL | {"steps": UPDATES * PER_UPDATE, "eval_episodes": 3}
EVALUATED: dict[str, Any] = FLAGS | {"eval_every": EVERY * PER_UPDATE}


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return shoal.train("mappo", "toys:busy", folder=tmp_path_factory.mktemp("run") / "run", **EVALUATED)


def stored(run: shoal.Run, folder: str) -> Any:
    template = jax.eval_shape(jax.vmap(run._acting().init), jax.random.split(jax.random.key(0), 2)).policy
    return Checkpoints(run.folder / folder).restore(template)[0]


def bits(run: shoal.Run, folder: str = "policy") -> list[bytes]:
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(stored(run, folder))]


def judged_rows(folder: Path) -> dict[int, list[float]]:
    return {row["update"]: trained.judged(row) for row in read_log(folder) if "greedy/return" in row}


def test_the_log_has_a_column_after_every_so_many_updates(evaluated: shoal.Run) -> None:
    rows = judged_rows(evaluated.folder)
    assert list(rows) == [4, 8, 12, 16] and all(len(scores) == 2 for scores in rows.values())
    assert all(row["greedy/seconds"] >= 0 for row in read_log(evaluated.folder) if row["update"] in rows)


def test_training_is_not_changed(evaluated: shoal.Run, tmp_path: Path) -> None:
    plain = shoal.train("mappo", "toys:busy", folder=tmp_path / "run", **FLAGS)
    assert bits(plain) == bits(evaluated)
    assert [row["return"] for row in read_log(plain.folder)] == [row["return"] for row in read_log(evaluated.folder)]
    with pytest.raises(CheckpointError, match="has no best policy; train with --eval-every to keep it"):
        plain.evaluate(3, best=True)


def test_the_best_policy_of_each_seed_is_kept_and_judged_on_other_episodes(evaluated: shoal.Run) -> None:
    rows, meta = judged_rows(evaluated.folder), Checkpoints(evaluated.folder / BEST_FOLDER).load_meta()
    scores = np.array(list(rows.values()))
    assert meta["score"] == scores.max(0).tolist()
    assert meta["step"] == [list(rows)[i] * PER_UPDATE for i in scores.argmax(0)]
    told = json.loads((evaluated.folder / "evaluation.json").read_text(encoding="utf-8"))
    again = evaluated.evaluate(3, seed=1, best=True)
    assert told["best"]["per_seed"] == again.per_seed.tolist()
    assert (told["best"]["selected_with"], told["best"]["step"]) == (meta["score"], meta["step"])
    lines = [*str(evaluated.evaluate(3)).splitlines(), *(f"best policies {line}" for line in str(again).splitlines())]
    assert evaluated.final_score == told["text"] == "\n".join(lines)
    for name, best in (("policy", False), (BEST_FOLDER, True)):
        loaded = shoal.load(evaluated.folder, seed=1, best=best)._learner.policy
        jax.tree.map(np.testing.assert_array_equal, loaded, jax.tree.map(lambda x: x[1], stored(evaluated, name)))


def test_an_interrupted_run_has_the_same_evaluations_and_the_same_best(evaluated: shoal.Run, tmp_path: Path) -> None:
    half = UPDATES // 2 * PER_UPDATE
    shoal.train("mappo", "toys:busy", folder=tmp_path / "run", **{**EVALUATED, "steps": half})
    resumed = shoal.resume(tmp_path / "run", steps=UPDATES * PER_UPDATE, progress=False)
    assert judged_rows(resumed.folder) == judged_rows(evaluated.folder)
    assert bits(resumed, BEST_FOLDER) == bits(evaluated, BEST_FOLDER)


class Noted(Evaluator):
    """Plays nothing, and notes the keys; the seeds' scores are given."""

    def __init__(self, *scores: list[float]) -> None:
        self.keys: list[bytes] = []
        self.scores = list(scores)

    def prepare(self, learner: Any) -> None:
        pass

    def __call__(self, learner: Any, key: Any) -> Any:
        self.keys.append(np.asarray(jax.random.key_data(key)).tobytes())
        spec = toys.busy().spec
        returns = np.array(self.scores.pop(0))[:, None, None] * np.ones((1, 1, spec.num_agents)) / spec.num_agents
        return evaluation_of(spec, returns, np.ones((2, 1)), np.full((2, 1, len(spec.metrics)), np.nan))


def test_each_evaluation_plays_other_episodes_and_a_repeated_one_the_same(tmp_path: Path) -> None:
    evaluator = Noted(*[[0.0, 0.0]] * 4)
    for seed, updates in ((0, (4, 8, 4)), (1, (4,))):
        made = Selection(evaluator, Settings(seeds=2, seed=seed, eval_every=1.0), tmp_path)
        for update in updates:
            made.evaluate({"w": np.zeros((2, 3))}, update)
    first, second, again, other = evaluator.keys
    assert first == again and len({first, second, other}) == 3


def test_the_best_policies_survive_a_new_process(tmp_path: Path) -> None:
    """Those of the checkpoint at which the run goes on."""
    settings = Settings(seeds=2, eval_every=1.0)
    policies = [{"w": np.full((2, 3), float(i))} for i in range(4)]
    evaluator = Noted([1.0, 5.0], [2.0, 3.0], [9.0, 9.0], [0.0, 6.0])
    made = Selection(evaluator, settings, tmp_path)
    for update in (1, 2, 3):
        made.evaluate(policies[update - 1], update)
        made.save(update)
    later = Selection(evaluator, settings, tmp_path)
    later.restore(Standing(2, 0.0), policies[0])  # a checkpoint of update 3 was not completed
    later.evaluate(policies[3], 3)
    assert later.best is not None
    assert later.best.score.tolist() == [2.0, 6.0]
    assert (later.best.step / settings.steps_per_update).tolist() == [2, 3]
    assert later.best.policy["w"][:, 0].tolist() == [1.0, 3.0]


def test_a_tie_keeps_the_earlier_policy(tmp_path: Path) -> None:
    unused = Evaluator.__new__(Evaluator)
    kept = Selection(unused, Settings(seeds=3, eval_every=1.0), tmp_path)
    for i, score in enumerate(([1.0, 5.0, 2.0], [1.0, 4.0, 3.0], [0.0, 6.0, 3.0])):
        kept._select({"w": np.full((3, 2), i), "b": np.full(3, i)}, np.array(score), step=10 * i)
    assert kept.best is not None
    assert kept.best.step.tolist() == [0, 20, 10] and kept.best.score.tolist() == [1.0, 6.0, 3.0]
    assert kept.best.policy["w"].tolist() == [[0, 0], [2, 2], [1, 1]] and kept.best.policy["b"].tolist() == [0, 2, 1]


def test_a_damaged_best_policy_does_not_lose_the_score_of_the_last(
    evaluated: shoal.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = trained.copied(evaluated.folder, tmp_path / "run")
    for step in Checkpoints(copy / BEST_FOLDER).steps():
        trained.damage(copy / BEST_FOLDER / str(step))
    run = shoal.open_run(copy)
    final_evaluation.keep_evaluation(run, run.evaluate(3), 3, lambda: None)
    assert run.final_score == str(run.evaluation) and "damaged" in capsys.readouterr().err


def test_their_episodes_have_a_small_share_of_the_steps() -> None:
    def episodes(every: float, horizon: int, host: bool = False, **flags: Any) -> int:
        game = toys.busy(horizon=horizon)
        env = HostEnvironment(game.spec, lambda: None) if host else game  # type: ignore[arg-type]
        return Settings(num_envs=4, rollout_length=25, eval_every=every, **flags).episodes_between(env)

    assert episodes(1e4, 25) == 20 == 0.05 * 1e4 / 25 and episodes(9901.0, 25) == 20  # rounded up to whole updates
    assert episodes(1e4, 25, host=True) == 8 and episodes(1e6, 25, host=True) == 32
    assert episodes(1e6, 25) == 32 and episodes(1e4, 1000) == 4 and episodes(1e4, 1000, curve_episodes=7) == 7


def test_costly_evaluations_are_told_of_once(tmp_path: Path) -> None:
    unused = Evaluator.__new__(Evaluator)
    unused.episodes = 32
    made = Selection(unused, Settings(num_envs=4, rollout_length=25, eval_every=101.0), tmp_path)
    made.begun, made.seconds = 1000.0, 4.9
    assert made.costs(1000.1) == ""  # seconds in all
    made.seconds = 6.0
    assert made.costs(1114.1) == ""  # 5 % of them
    assert made.costs(1054.0) == (
        "Evaluations take 10% of the time of this run: 32 episodes per seed every 200 steps. To reduce this, "
        "raise eval_every or lower curve_episodes."
    )
    assert made.costs(1054.0) == ""
