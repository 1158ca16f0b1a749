"""Runs that end before their last step: at a score that every seed has reached, or after some seconds of training."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal import cli
from shoal.errors import CallbackError, InputError
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.training import ending, trainer
from shoal.training.ending import Standing
from shoal.training.evaluation import BEST_FOLDER, Selection
from shoal.training.settings import Settings
from shoal.types import Replay
from support import trained

PER_UPDATE, UPDATES, EVERY = 24, 24, 3
FLAGS: dict[str, Any] = trained.SMALL | {
    "steps": UPDATES * PER_UPDATE,
    "eval_every": EVERY * PER_UPDATE,
    "eval_episodes": 3,
}
LOW = -1000
"""A score that every policy exceeds."""
SETTINGS = Settings(num_envs=4, rollout_length=6, steps=1.0 * UPDATES * PER_UPDATE, seeds=2)


def settings(**flags: Any) -> Settings:
    return Settings(**{**vars(SETTINGS), **flags})


class Reached:
    """A run that nothing stopped before its last step, and a score that all its seeds have reached before."""

    def __init__(self, folder: Path):
        self.run = shoal.train("mappo", "toys:busy", folder=folder, **FLAGS)
        rows = [row for row in log.read_log(folder) if "greedy/return" in row]
        lowest = np.maximum.accumulate([trained.judged(row) for row in rows]).min(1)  # of the seeds' best
        k = next(k for k in range(1, len(rows) - 1) if lowest[k] > lowest[k - 1])
        self.score, self.update = float(lowest[k]), rows[k]["update"]
        self.rows = rows[: k + 1]


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Reached:
    return Reached(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def stopped(reached: Reached, tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    return shoal.train(
        "mappo", "toys:busy", folder=tmp_path_factory.mktemp("stopped") / "run", stop_at=reached.score, **FLAGS
    )


@pytest.fixture(scope="module")
def soon(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    """A run that ends at its first evaluation."""
    return shoal.train("mappo", "toys:busy", folder=tmp_path_factory.mktemp("soon") / "run", stop_at=LOW, **FLAGS)


def bits(folder: Path, name: str = "policy") -> list[bytes]:
    template = jax.eval_shape(
        jax.vmap(shoal.open_run(folder)._acting().init), jax.random.split(jax.random.key(0), 2)
    ).policy
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(Checkpoints(folder / name).restore(template)[0])]


def scores(folder: Path) -> dict[int, list[float]]:
    return {row["update"]: trained.judged(row) for row in log.read_log(folder) if "greedy/return" in row}


def assert_ended(run: shoal.Run, update: int, score: float) -> None:
    """The run has ended at this update, because its seeds reached the score."""
    step = update * PER_UPDATE
    assert run.finished and run.last_step == step < FLAGS["steps"]
    for name in ("checkpoints", "policy", BEST_FOLDER):
        assert Checkpoints(run.folder / name).latest() == update
    told = json.loads((run.folder / "evaluation.json").read_text())
    assert told["step"] == step and told["episodes"] == 3
    why = f"at step {step} of {FLAGS['steps']}: every seed reached {score:.6g}"
    assert told["ended"] == why == run.ended and f"ended           {why}\n" in run.summary()


def test_a_run_ends_at_the_evaluation_that_reaches_the_score(soon: shoal.Run) -> None:
    assert list(scores(soon.folder)) == [EVERY]
    assert_ended(soon, EVERY, LOW)


def test_a_run_ends_where_every_seed_has_reached_the_score(reached: Reached, stopped: shoal.Run) -> None:
    assert scores(stopped.folder) == {row["update"]: trained.judged(row) for row in reached.rows}
    assert_ended(stopped, reached.update, reached.score)
    assert reached.run.ended == "" and "ended" not in reached.run.summary()


def test_resumed_it_says_that_it_has_ended_and_why(
    soon: shoal.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    folder = trained.copied(soon.folder, tmp_path / "run")
    monkeypatch.setattr(trainer.Trainer, "__init__", lambda *_, **__: pytest.fail("a trainer was made"))
    for changes in ({}, {"steps": 2 * FLAGS["steps"]}):
        run = shoal.resume(folder, progress=False, **changes)
        of = 2 * FLAGS["steps"] if changes else FLAGS["steps"]
        assert run.untouched and run.final_score == soon.final_score
        assert capsys.readouterr().err == (
            f"This run has ended at step {EVERY * PER_UPDATE} of {of:,}: every seed reached {LOW}; a higher stop_at "
            f"would continue it.\n" + ("Not recorded, since nothing was trained: steps.\n" if changes else "")
        )
    monkeypatch.setattr("shoal.cli.train.draw_pictures", lambda run: None)
    assert cli.main(["train", "--resume", str(folder), "--no-progress"]) == 0
    assert f"--resume {folder} --stop-at None\n" in capsys.readouterr().out


def test_a_higher_score_continues_it_as_if_it_had_not_ended(
    reached: Reached, stopped: shoal.Run, tmp_path: Path
) -> None:
    folder = trained.copied(stopped.folder, tmp_path / "run")
    run = shoal.resume(folder, progress=False, stop_at=1e6)
    assert run.finished and not run.untouched and run.ended == ""
    assert bits(folder) == bits(reached.run.folder) and scores(folder) == scores(reached.run.folder)
    assert bits(folder, BEST_FOLDER) == bits(reached.run.folder, BEST_FOLDER)


@pytest.mark.parametrize("at", ["before the checkpoint", "after it", "earlier"])
def test_killed_it_ends_at_the_same_update(
    at: str, reached: Reached, stopped: shoal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end: before or after the checkpoint that it ends with is written, and in the middle of an evaluation."""
    folder, save, parts = tmp_path / "run", Checkpoints.save, []

    def killed(self: Checkpoints, step: int, *rest: Any) -> None:
        here = self.folder.name
        wanted = {"before the checkpoint": "checkpoints", "after it": "policy", "earlier": "checkpoints"}[at]
        if here == wanted and step >= (EVERY if at == "earlier" else reached.update):
            raise KeyboardInterrupt
        save(self, step, *rest)
        parts.append((here, step))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        patch.setattr(trainer, "CALL_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            shoal.train("mappo", "toys:busy", folder=folder, stop_at=reached.score, checkpoint_seconds=0.0, **FLAGS)
    assert parts[-1] == (("checkpoints", reached.update) if at == "after it" else (BEST_FOLDER, parts[-1][1]))
    run = shoal.resume(folder, progress=False)
    assert run.finished and run.ended == stopped.ended
    assert bits(folder) == bits(stopped.folder) and scores(folder) == scores(stopped.folder)
    assert bits(folder, BEST_FOLDER) == bits(stopped.folder, BEST_FOLDER)
    assert run.final_score == stopped.final_score


@pytest.mark.parametrize("rows", [4, 1000])
def test_a_run_with_no_more_steps_is_evaluated_where_it_was_interrupted(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it neither a row of the log nor an evaluation would tell of its last updates."""
    folder, judged, evaluate = tmp_path / "run", [], Selection.evaluate
    steps = (EVERY + 2) * PER_UPDATE

    class Failing(shoal.Callback):
        def on_checkpoint(self, context: shoal.Context, folder: Path) -> None:
            if context.step == steps:
                raise KeyError

    def noted(self: Selection, policy: Any, update: int) -> dict[str, Any]:
        judged.append(update)
        return evaluate(self, policy, update)

    monkeypatch.setattr(trainer, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(Selection, "evaluate", noted)
    flags = FLAGS | {"rows": rows, "checkpoint_seconds": 0.0}
    with pytest.raises(CallbackError):
        shoal.train("mappo", "toys:busy", folder=folder, callbacks=[Failing()], **flags)
    capsys.readouterr()
    run = shoal.resume(folder, progress=False, steps=steps)
    assert run.finished and not run.untouched and judged == [EVERY, EVERY + 2] and run.final_score is not None
    assert (
        capsys.readouterr().err == f"This run has finished its {steps} steps per seed; more steps would continue it.\n"
    )
    assert log.read_log(folder)[-1]["step"] == steps and shoal.open_run(folder).settings.steps == steps
    assert shoal.resume(folder, progress=False).untouched and len(judged) == 2


def test_scores_count_that_a_lost_policy_reached(reached: Reached, tmp_path: Path) -> None:
    """The best policies may be damaged or removed; what their seeds have reached is in the checkpoint."""
    half = (reached.update - EVERY) * PER_UPDATE
    flags = FLAGS | {"stop_at": reached.score, "steps": half}
    run = shoal.train("mappo", "toys:busy", folder=tmp_path / "run", **flags)
    assert run.at.best == tuple(np.max([trained.judged(row) for row in reached.rows[:-1]], 0))


# Time


def test_a_run_ends_when_its_time_is_used_up(tmp_path: Path) -> None:
    """Time is summed over the parts of a resumed run."""
    made = trained.Idle(tmp_path, 10**6, time_budget=0.05, tensorboard=False, rows=10**5)
    assert made.run() and made.update < 10**6
    rows = log.read_log(tmp_path)
    assert made.at.seconds >= 0.05 >= rows[-2]["seconds"] and rows[-1]["step"] == made.step
    assert ending.saved(tmp_path) == made.at
    again = trained.Idle(tmp_path, 10**6, time_budget=0.1, tensorboard=False, rows=10**5)
    again.state, again.at = made.state, made.at
    assert again.run() and again.update > made.update and again.at.seconds >= 0.1
    assert ending.reason(again.settings, again.at) == (
        f"at step {again.step:,} of 48,000,000: 0.1 s of training are used up"
    )


def test_a_run_without_time_left_is_evaluated_where_it_ends(tmp_path: Path) -> None:
    run = shoal.train("mappo", "toys:busy", folder=tmp_path / "run", time_budget=1e-6, **FLAGS)
    assert list(scores(run.folder)) == [1] == [row["update"] for row in log.read_log(run.folder)]
    assert run.last_step == PER_UPDATE and run.ended.endswith(": 1e-6 s of training are used up")
    assert Checkpoints(run.folder / BEST_FOLDER).load_meta()["step"] == [PER_UPDATE] * 2
    more = shoal.resume(run.folder, progress=False, time_budget=1e6)
    assert more.finished and more.last_step == FLAGS["steps"] and more.ended == ""
    assert list(scores(run.folder)) == [1, *range(EVERY, UPDATES + 1, EVERY)]


def test_calls_are_shortened_to_the_time_that_is_left() -> None:
    limited = settings(time_budget=10.0, steps=1e9)
    assert ending.call_size(limited, Standing(0), None, 1.0) == 1  # how long it takes is not known
    assert ending.call_size(limited, Standing(5, 2.0), 0.01, 1.0) == 100
    assert ending.call_size(limited, Standing(5, 9.9), 0.01, 1.0) == 10
    assert ending.call_size(limited, Standing(5, 9.999), 0.01, 1.0) == 1
    assert ending.call_size(SETTINGS, Standing(0), None, 1.0) == 4
    assert ending.call_size(SETTINGS, Standing(UPDATES - 3), 1e-6, 1.0) == 3
    assert ending.call_size(SETTINGS, Standing(1), 5.0, 1.0) == 1


@pytest.mark.parametrize(("limit", "sizes"), [({}, [4, 5, 4, 27]), ({"time_budget": 1e6}, [1, 8, 1, 30])])
def test_a_call_ends_where_learning_begins(
    limit: dict[str, Any], sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update then takes longer, so a call as long as those before would be far longer than a second."""
    made, seen = trained._made(), []
    replay = Replay(lambda traj: traj.action, capacity=4800, warm_up=480, draws=1, batch=2, length=1, period=1)
    monkeypatch.setattr(made, "algorithm", made.algorithm._replace(replay=replay))  # 9 rollouts of 4 × 12 only fill it

    def advance(state: Any, n: Any) -> Any:
        seen.append(int(n))
        stats = jax.tree.map(lambda x: np.repeat(x, n, 0), trained.STATS)
        return state, ({"loss": np.ones((n, 1))}, stats)

    idle = trained.Idle(tmp_path, 40, tensorboard=False, **limit)
    idle.program = idle.program._replace(start=lambda state: advance, capacity=256)
    assert idle.run() and seen == sizes


def test_progress_is_that_of_the_nearest_end() -> None:
    both = settings(time_budget=10.0, stop_at=5.0, eval_every=1.0)
    assert ending.fraction(both, Standing(6, 1.0)) == 0.25 and ending.fraction(both, Standing(6, 9.0)) == 0.9
    assert ending.fraction(both, Standing(6, 1.0, (5.0, 4.9))) == 0.25
    assert ending.fraction(both, Standing(6, 1.0, (5.0, 7.0))) == 1.0 == ending.fraction(both, Standing(UPDATES))
    assert ending.more(both, Standing(UPDATES, 10.0, (9.0, 9.0))) == {
        "steps": 2 * SETTINGS.steps,
        "stop_at": None,
        "time_budget": 20.0,
    }
    assert ending.higher((1.0, 2.0), [None, 3.0]) == (1.0, 3.0) and ending.higher(None, [None]) == (-math.inf,)


def test_a_run_without_a_checkpoint_is_at_its_beginning(tmp_path: Path) -> None:
    assert ending.saved(tmp_path) == Standing(0)
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    assert ending.saved(tmp_path) == Standing(0)


@pytest.mark.parametrize(
    "meta", [{}, {"elapsed": "9", "best": "ab"}, {"elapsed": True, "best": [1, "x"]}, {"elapsed": None, "best": []}]
)
def test_a_damaged_checkpoint_record_does_not_end_a_run(meta: dict[str, Any]) -> None:
    assert ending.standing(3, meta) == Standing(3, 0.0, None)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"stop_at": 1.0}, "stop_at is compared with evaluations during training, so it requires eval_every."),
        ({"stop_at": math.inf, "eval_every": 9.0}, "stop_at must be at least -1e15 and at most 1e15, not inf."),
        ({"time_budget": 0.0}, "time_budget must be above 0 and at most 1e9, not 0."),
        ({"time_budget": math.inf}, "time_budget must be above 0 and at most 1e9, not inf."),
    ],
)
def test_limits_that_are_refused(flags: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings(**flags).check()
    assert str(error.value) == sentence
