"""Callbacks: what they are given, how they stop a run, and that their faults lose nothing."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.errors import CallbackError, InputError
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.training import ending
from shoal.training.callbacks import Hooks, accepted, with_callbacks
from shoal.training.ending import Standing
from shoal.training.evaluation import BEST_FOLDER
from shoal.training.settings import Settings
from shoal.trust.run_file import config_of_run, own_record
from support import trained

PER_UPDATE, UPDATES, PER_ROW, EVERY = 24, 12, 2, 3
FLAGS: dict[str, Any] = trained.SMALL | {
    "steps": UPDATES * PER_UPDATE,
    "rows": UPDATES // PER_ROW,
    "eval_every": EVERY * PER_UPDATE,
    "eval_episodes": 3,
    "checkpoint_seconds": 1e9,  # on a busy machine compilation alone takes longer than the default
}
ROWS = [2, 3, 5, 6, 8, 9, 11, 12]
"""The updates after which a row is written: each complete one, and each evaluation, which begins a new one."""
METHODS = ("on_start", "on_metrics", "on_evaluation", "on_checkpoint", "on_end")


class Noting(shoal.Callback):
    """Notes what it is given, looks at everything, and does what ``acts`` says in a method."""

    def __init__(self, **acts: Callable[[shoal.Context], Any]):
        self.acts, self.calls, self.rows, self.judged = acts, [], [], []
        self.ended: tuple | None = None

    def _note(self, method: str, context: shoal.Context) -> Any:
        self.calls.append((method, context.update))
        return self.acts[method](context) if method in self.acts else None

    def on_start(self, context: shoal.Context) -> None:
        self.seen = (context.folder, context.spec, context.config, context.settings, context.seeds, context.last_step)
        self._note("on_start", context)

    def on_metrics(self, context: shoal.Context, metrics: Any) -> Any:
        self.rows.append(metrics)
        return self._note("on_metrics", context)

    def on_evaluation(self, context: shoal.Context, metrics: Any) -> Any:
        self.judged.append(metrics)
        return self._note("on_evaluation", context)

    def on_checkpoint(self, context: shoal.Context, folder: Path) -> None:
        assert Checkpoints(folder).latest() == context.update
        self._note("on_checkpoint", context)

    def on_end(self, context: shoal.Context) -> None:
        self.ended = (context.status, type(context.error), context.ended, context.run.evaluation)
        self._note("on_end", context)

    def updates(self, method: str) -> list[int]:
        return [update for name, update in self.calls if name == method]


def train(folder: Path, *callbacks: Any, **flags: Any) -> shoal.Run:
    return shoal.train("mappo", "toys:busy", folder=folder, callbacks=callbacks, **{**FLAGS, **flags})


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    with trained.one_program():
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    """Without callbacks."""
    return train(tmp_path_factory.mktemp("alone") / "run")


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> tuple[shoal.Run, Noting]:
    """With callbacks that look at everything and change nothing."""

    def look(context: shoal.Context) -> None:
        context.evaluate(2)
        context.policies(1).act(np.zeros((3, context.spec.obs_dim)))

    noting = Noting(on_metrics=look, on_end=look)
    return train(tmp_path_factory.mktemp("noted") / "run", noting), noting


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[shoal.Run, Noting]:
    noting = Noting(on_metrics=lambda context: context.stop("good enough") if context.update == 5 else None)
    return train(tmp_path_factory.mktemp("stopped") / "run", noting), noting


def bits(folder: Path, name: str = "checkpoints") -> list[bytes]:
    """All files of the newest checkpoint's arrays that do not hold times, as their sums."""
    run = shoal.open_run(folder)
    template = jax.eval_shape(jax.vmap(run._acting().init), jax.random.split(jax.random.key(0), 2)).policy
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(Checkpoints(folder / name).restore(template)[0])]


def assert_same(one: Path, other: Path) -> None:
    """Equal policies and logs, but for times."""
    assert bits(one, "policy") == bits(other, "policy")
    assert bits(one, BEST_FOLDER) == bits(other, BEST_FOLDER)
    times = {"seconds", "steps_per_second", "greedy/seconds"}
    rows = [
        [{k: v for k, v in row.items() if k not in times} for row in log.read_log(folder)] for folder in (one, other)
    ]
    assert json.dumps(rows[0]) == json.dumps(rows[1])


def test_a_run_with_callbacks_that_look_is_bit_for_bit_one_without(alone: shoal.Run, noted: Any) -> None:
    assert_same(alone.folder, noted[0].folder)
    assert noted[0].final_score == alone.final_score


def test_they_are_called_in_order_with_the_rows_of_the_log(noted: tuple[shoal.Run, Noting]) -> None:
    run, noting = noted
    assert noting.calls[:3] == [("on_start", 0), ("on_checkpoint", 0), ("on_metrics", 2)]
    assert noting.calls[3:5] == [("on_evaluation", 3), ("on_metrics", 3)]
    assert noting.calls[-2:] == [("on_checkpoint", UPDATES), ("on_end", UPDATES)]
    assert noting.updates("on_metrics") == ROWS and noting.updates("on_evaluation") == [3, 6, 9, 12]
    written = log.read_log(run.folder)
    assert len(written) == len(noting.rows)
    for row, given in zip(written, noting.rows, strict=True):
        assert row.keys() == given.keys() and given["step"] == row["step"]
        wanted = [np.nan if x is None else x for x in row["return"]]
        np.testing.assert_array_equal(given["return"], wanted)
        assert given["return"].dtype == np.float64 and not given["return"].flags.writeable
    assert noting.judged[0]["greedy/return"].tolist() == written[1]["greedy/return"]
    assert noting.judged[0].keys() == {name for name in written[1] if name.startswith(("greedy/", "sampled/"))}
    assert noting.seen == (run.folder, run.spec, run.config, run.settings, (0, 1), UPDATES * PER_UPDATE)
    assert noting.ended == ("finished", type(None), "", run.evaluation) and run.evaluation is not None


def test_the_policies_are_those_after_the_row(noted: tuple[shoal.Run, Noting], tmp_path: Path) -> None:
    """Played in the same episodes they score as the run that ends there."""
    scores: dict[int, Any] = {}
    run = train(tmp_path / "run", lambda context, metrics: scores.update({context.update: context.evaluate(3)}))
    assert list(scores) == ROWS
    np.testing.assert_array_equal(scores[UPDATES].returns, run.evaluate(3).returns)
    assert not np.array_equal(scores[2].returns, scores[UPDATES].returns)


def test_a_method_of_the_instance_is_called_after_rows_too(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    callback = shoal.Callback()
    callback.on_metrics = lambda context, metrics: seen.append(  # type: ignore[method-assign]
        (context.update, int(context.learner.updates[0]))
    )
    train(tmp_path / "run", callback)
    assert seen == [(update, update) for update in ROWS]


def test_what_they_return_is_written_to_the_log_and_to_tensorboard(tmp_path: Path) -> None:
    first = Noting(on_metrics=lambda context: {"gap": np.array([1, np.nan]), "one": context.update})
    first.acts["on_evaluation"] = lambda context: {"own/gap": 7.5}
    late, early, kept = Noting(), Noting(), []
    late.after_others = True
    on_file = lambda: [path.read_bytes() for path in (tmp_path / "run" / "tensorboard").glob("*")]  # noqa: E731
    early.acts["on_checkpoint"] = lambda context: kept.append(on_file())
    run = train(tmp_path / "run", late, first, early, tensorboard=True)
    rows = log.read_log(run.folder)
    assert [row["gap"] for row in rows] == [[1.0, None]] * len(ROWS) and [row["one"] for row in rows] == ROWS
    assert [row.get("own/gap") for row in rows[:2]] == [None, 7.5]
    assert "own/gap" in late.judged[0] and "own/gap" in late.rows[1] and late.rows[0]["one"] == 2.0
    assert early.rows[0].keys() == late.rows[0].keys() and "gap" not in first.rows[0]
    (events,) = (run.folder / "tensorboard").iterdir()
    assert all(name in events.read_bytes() for name in (b"gap/seed0", b"one", b"own/gap"))
    assert kept[-1] == [events.read_bytes()], "a run that is killed now keeps the events before its checkpoint"


# Stopping


def test_a_run_that_is_stopped_is_evaluated_and_has_finished(stopped: tuple[shoal.Run, Noting]) -> None:
    run, noting = stopped
    step = 5 * PER_UPDATE
    why = f"at step {step} of {UPDATES * PER_UPDATE}: good enough"
    assert run.finished and run.last_step == step and run.ended == why
    assert f"ended           {why}\n" in run.summary()
    told = json.loads((run.folder / "evaluation.json").read_text())
    assert told["ended"] == why and told["step"] == step
    assert noting.ended == ("finished", type(None), why, run.evaluation)
    assert log.read_log(run.folder)[-1]["update"] == 5 and "greedy/return" in log.read_log(run.folder)[-1]
    assert noting.updates("on_evaluation") == [3, 5]
    for name in ("checkpoints", "policy", BEST_FOLDER):
        assert Checkpoints(run.folder / name).latest() == 5


def test_resumed_it_has_finished_unless_it_is_to_continue(
    alone: shoal.Run, stopped: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained.copied(stopped[0].folder, tmp_path / "run")
    noting = Noting()
    run = shoal.resume(folder, progress=False, callbacks=[noting])
    assert run.untouched and run.final_score == stopped[0].final_score and not noting.calls
    assert "good enough; continue_stopped (--continue-stopped) would continue it.\n" in capsys.readouterr().err
    assert ending.more(run.settings, run.at) == {"continue_stopped": True}
    run = shoal.resume(folder, progress=False, callbacks=[noting], continue_stopped=True)
    assert run.finished and not run.untouched and run.ended == ""
    assert noting.calls[0] == ("on_start", 5)
    assert bits(folder, "policy") == bits(alone.folder, "policy")


def test_options_without_effect_on_a_run_that_has_ended_are_not_recorded(
    stopped: tuple[shoal.Run, Noting], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would seem to have been trained with them."""
    folder = trained.copied(stopped[0].folder, tmp_path / "run")
    before = json.loads((folder / "run.json").read_text())
    with pytest.raises(InputError, match=r"cannot continue bit-exactly on 2 × 1 .*; it needs --devices 1 "):
        shoal.resume(folder, progress=False, devices=2)
    assert json.loads((folder / "run.json").read_text()) == before
    given = {"steps": 2 * FLAGS["steps"], "schedule_steps": 24, "workers": "ray", "eval_every": 24, "keep": 7}
    capsys.readouterr()
    run = shoal.resume(folder, progress=False, devices=1, **given)
    assert run.untouched and vars(run.settings) == vars(stopped[0].settings) | {"keep": 7}
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == ["Not recorded, since nothing was trained: eval_every, schedule_steps, steps, workers."]
    after = json.loads((folder / "run.json").read_text())
    before["config"]["settings"]["keep"] = 7
    assert after == before


def test_the_steps_at_which_a_run_is_made_to_end_are_recorded(alone: shoal.Run, tmp_path: Path) -> None:
    folder = trained.copied(alone.folder, tmp_path / "run")
    text = (folder / "run.json").read_text().replace(f'"steps": {FLAGS["steps"]}.0', f'"steps": {FLAGS["steps"] * 2}.0')
    (folder / "run.json").write_text(text)
    run = shoal.resume(folder, progress=False, steps=FLAGS["steps"])
    assert run.untouched and shoal.open_run(folder).settings.steps == FLAGS["steps"]


@pytest.mark.parametrize(("method", "update"), [("on_start", 1), ("on_checkpoint", 1), ("on_evaluation", 3)])
def test_a_callback_can_stop_a_run_at_every_update(method: str, update: int, tmp_path: Path) -> None:
    """At an evaluation it ends there; before the first update after that one."""
    noting = Noting(**{method: lambda context: context.stop("now")})
    run = train(tmp_path / "run", noting)
    assert run.finished and run.last_step == update * PER_UPDATE and run.ended.endswith(": now")
    assert noting.updates("on_evaluation") == [update] and Checkpoints(run.folder / BEST_FOLDER).latest() == update


def test_a_stop_at_the_last_step_counts_as_finished(tmp_path: Path) -> None:
    noting = Noting(on_metrics=lambda context: context.stop("late") if context.update == UPDATES else None)
    run = train(tmp_path / "run", noting)
    assert run.finished and run.ended == "" and run.at.stopped == ""


def test_a_run_killed_after_it_was_stopped_ends_there(stopped: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Before its final evaluation."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    noting = Noting(on_metrics=lambda context: context.stop("good enough") if context.update == 5 else None)
    with monkeypatch.context() as patch:
        patch.setattr("shoal.runs.run.Run.evaluate", killed)
        patch.setattr("shoal.runs.final_evaluation.by_training", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run", noting)
    assert noting.ended is not None and noting.ended[0] == "interrupted"
    run = shoal.resume(tmp_path / "run", progress=False)
    assert run.untouched and run.ended == stopped[0].ended and run.final_score == stopped[0].final_score


def test_the_reason_in_a_checkpoint_of_somebody_else_is_short_printable_text() -> None:
    assert ending.standing(3, {"stopped": "enough"}) == Standing(3, stopped="enough")
    for wrong in ("\x1b[2J", "a\nb", " ", "x" * 201, 3, ["a"], None):
        assert ending.standing(3, {"stopped": wrong}) == Standing(3)


# Faults


@pytest.mark.parametrize("method", METHODS[:4])
def test_an_exception_in_a_callback_loses_no_training(
    method: str, alone: shoal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is saved where it was, and continues as if nothing had happened; without a start nothing is left."""
    folder, at = tmp_path / "run", {"on_metrics": 5, "on_evaluation": 3}.get(method, 0)

    def fail(context: shoal.Context) -> None:
        if context.update == at:
            raise KeyError("boom")

    noting, other = Noting(**{method: fail}), Noting()
    with pytest.raises(CallbackError) as caught:
        train(folder, noting, other)
    assert str(caught.value) == (f"The callback Noting raised KeyError: 'boom', in {method} at step {at * PER_UPDATE}.")
    assert isinstance(caught.value.__cause__, KeyError) and "in fail" in caught.value.trace
    assert noting.ended is not None and noting.ended[:2] == ("failed", CallbackError)
    assert (other.ended is None) == (method == "on_start") and (method, at) not in other.calls
    if method == "on_start":
        assert not folder.exists()
        return
    assert (Checkpoints(folder / "checkpoints").latest() or 0) == at
    run = shoal.resume(folder, progress=False)
    assert run.finished
    assert_same(alone.folder, folder)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ([1], "returned [1], which is neither a dict of metrics nor None, in on_metrics at step 48."),
        ({"return": 1.0}, "returned 'return', which is already a column of the log,"),
        ({3: 1.0}, "returned a metric with the name 3,"),
        ({"a\n": 1.0}, "returned a metric with the name 'a\\n',"),
        ({"a": [1.0, 2.0, 3.0]}, "as 'a', which is neither a real number that fits a float nor one per seed,"),
        ({"a": "1"}, "as 'a', which is neither a real number that fits a float nor one per seed,"),
        ({"a": ["1.5", "2"]}, "as 'a', which is neither a real number that fits a float nor one per seed,"),
        ({"a": None}, "returned None as 'a', which is neither"),
        ({"a": 1j}, "The callback Noting returned 1j as 'a', which is neither"),
        ({"a": np.array([1j, 2])}, "as 'a', which is neither"),
        ({"a": [np.complex64(1j), 2.0]}, "as 'a', which is neither"),
        ({"a": 10**400}, f"The callback Noting returned 1{76 * '0'}... as 'a', which is neither"),
        ({"a": [1.0, 10**5000]}, "The callback Noting returned <list of thousands of digits> as 'a', which is neither"),
    ],
)
def test_a_returned_value_that_is_no_metric_is_refused(found: Any, complaint: str) -> None:
    trainer = SimpleNamespace(step=48, settings=Settings(seeds=2))
    hooks = Hooks([Noting()], shoal.Context(None, trainer))
    hooks.callbacks[0].on_metrics = lambda *_: found  # type: ignore[method-assign]
    assert hooks.complete({"return": [1.0, 2.0]}, {}, dict) == {"return": [1.0, 2.0]}
    with pytest.raises(CallbackError) as caught:
        hooks.check()
    assert complaint in str(caught.value)


def test_a_fault_at_the_end_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Noting()
    run = train(tmp_path / "run", Noting(on_end=lambda context: 1 / 0), other, steps=PER_UPDATE)
    assert run.finished and other.ended is not None
    said = capsys.readouterr().err
    assert "in on_end at step 24." in said and "Traceback" in said


def test_ctrl_c_in_a_callback_at_the_end_ends_each_once() -> None:
    """A logger that was interrupted while it uploads would begin again, and call the run interrupted."""
    said: list[tuple[str, str]] = []

    class Ending(shoal.Callback):
        def __init__(self, name: str):
            self.name = name

        def on_end(self, context: shoal.Context) -> None:
            said.append((self.name, context.status))
            if self.name == "slow":
                raise KeyboardInterrupt

    trainer: Any = SimpleNamespace(close=lambda: None)
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
        with with_callbacks(SimpleNamespace(finished=True), trainer, [Ending("slow"), Ending("other")]):
            pass
    assert said == [("slow", "finished"), ("other", "finished")]


def test_an_input_error_at_the_start_is_the_users(tmp_path: Path) -> None:
    def refuse(context: shoal.Context) -> None:
        raise InputError("There is no such project.")

    noting, before = Noting(on_start=refuse), Noting()
    with pytest.raises(InputError, match="no such project"):
        train(tmp_path / "run", before, noting)
    assert not (tmp_path / "run").exists()
    assert noting.ended is None and before.ended is not None and before.ended[0] == "failed"


def test_a_callback_that_fails_at_the_start_of_a_new_run_leaves_what_was_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine", encoding="utf-8")

    def fail(context: shoal.Context) -> None:
        raise KeyError("project")

    with pytest.raises(shoal.CallbackError, match="project"):
        train(tmp_path / "run", Noting(on_start=fail))
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"notes.txt", ".lock"}

    def write(context: shoal.Context) -> None:
        (context.folder / "model.bin").write_bytes(b"1")
        raise KeyError("project")

    with pytest.raises(shoal.CallbackError, match="project"):
        train(tmp_path / "run", Noting(on_start=write))
    assert {"run.json", "model.bin"} <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("refusal", [InputError("There is no such project."), KeyError("project"), KeyboardInterrupt()])
def test_a_resumed_run_whose_start_is_refused_is_as_before(
    refusal: BaseException, alone: shoal.Run, tmp_path: Path
) -> None:
    """Its rows after the checkpoint, its policies, and run.json, which a tracker reads when it starts."""
    folder, steps = trained.copied(alone.folder, tmp_path / "run"), []
    with (folder / log.LOG_FILE).open("a") as file:
        file.write(f'{{"step": {(UPDATES + 1) * PER_UPDATE}}}\n')
    shutil.rmtree(folder / "policy")

    def refuse(context: shoal.Context) -> None:
        steps.append(json.loads((folder / "run.json").read_text())["config"]["settings"]["steps"])
        raise refusal

    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises((InputError, CallbackError, KeyboardInterrupt)):
        shoal.resume(folder, progress=False, callbacks=[Noting(on_start=refuse)], steps=2 * FLAGS["steps"])
    assert steps == [2 * FLAGS["steps"]]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert own_record(folder, config_of_run(folder)) is not None


def test_there_are_no_policies_before_the_first_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no policies in on_start"):
        train(tmp_path / "run", Noting(on_start=lambda context: context.policies()))


class Misspelt(shoal.Callback):
    def on_metric(self, context: Any, metrics: Any) -> None: ...


class Borrowed(shoal.Callback):
    """Has methods of another library's callbacks."""

    on_gpu = True

    def on_train_end(self, context: Any) -> None: ...

    def on_step(self, context: Any) -> None: ...


class Curt(shoal.Callback):
    def on_metrics(self, context: Any) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("callbacks", "complaint"),
    [
        ([Curt()], "Curt.on_metrics must take .self, context, metrics.\\."),
        ([Noting], "The callback Noting is a class; pass an instance, Noting().."),
        ([3], "A callback is a shoal.Callback or a function"),
        (Noting(), "callbacks must be a list"),
        (print, "callbacks must be a list"),
        (None, "callbacks must be a list, .* not None"),
        ([lambda context: None], "must take .context, metrics."),
        ([Misspelt()], "Misspelt.on_metric is never called; did you mean 'on_metrics'?"),
    ],
)
def test_an_object_that_is_no_callback_is_refused(callbacks: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        accepted(callbacks)


def test_methods_that_are_never_called_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """They are not refused, since the callback may call them itself."""
    given = [Borrowed(), Noting()]
    assert accepted(given) == given
    assert capsys.readouterr().err == (
        "Training never calls on_step and on_train_end of the callback Borrowed: it calls on_start, on_metrics, "
        "on_evaluation, on_checkpoint and on_end.\n"
    )
