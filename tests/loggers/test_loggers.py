"""What W&B and MLflow hold of a run, read back from their own files. Nothing is sent anywhere.

What needs the packages themselves is slow; ``make test-slow`` installs them.
"""

import contextlib
import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.errors import InputError, WriteError
from shoal.loggers.logger import values_of
from shoal.loggers.mlflow_tracking import _key
from shoal.storage import log
from shoal.training.callbacks import with_callbacks
from shoal.training.ending import Standing
from shoal.training.progress import Progress
from shoal.training.settings import Settings
from support import trained

# MLflow uses what SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FLAGS: dict[str, Any] = trained.SMALL | {"steps": 6 * 24, "rows": 3, "eval_every": 3 * 24, "eval_episodes": 3}


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DISABLE_GIT", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


class Extra(shoal.Callback):
    """Adds a metric, and stops at a row."""

    def __init__(self, update: int):
        self.update = update

    def on_metrics(self, context: shoal.Context, metrics: Any) -> dict[str, Any]:
        if context.update == self.update:
            context.stop("enough")
        return {"extra": np.array([1.0, 3.0])}


def trained_and_resumed(folder: Path, make: Any) -> shoal.Run:
    """Stopped after three updates, then continued by a new logger."""
    shoal.train("mappo", "toys:busy", folder=folder, callbacks=[make(), Extra(3)], **FLAGS)
    return shoal.resume(folder, progress=False, callbacks=[make(), Extra(0)], continue_stopped=True)


def wanted(run: shoal.Run, column: str) -> dict[int, float]:
    """Means over the seeds that have a value, by step."""
    rows = {row["step"]: [x for x in row.get(column, ()) if x is not None] for row in log.read_log(run.folder)}
    return {step: float(np.mean(values)) for step, values in rows.items() if values}


# MLflow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all tests, since MLflow takes seconds to create the tables of a new one."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    return tmp_path_factory.mktemp("store") / "tracking"


@pytest.mark.slow
def test_mlflow_has_one_run_with_the_rows_of_the_log(store: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    make = lambda: shoal.MLflowLogger(store, experiment="spread", upload=True)  # noqa: E731
    run = trained_and_resumed(tmp_path / "run", make)
    client = MlflowClient(f"sqlite:///{store}/mlflow.db")
    experiment = client.get_experiment_by_name("spread")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    id = found.info.run_id
    assert found.info.status == "FINISHED" and found.info.run_name == "run"
    for column in ("return", "greedy/return", "extra", "policy_loss"):
        history = {point.step: point.value for point in client.get_metric_history(id, column)}
        assert len(history) == len(client.get_metric_history(id, column))
        assert history == pytest.approx(wanted(run, column)) and history, column
    seed = {point.step: point.value for point in client.get_metric_history(id, "extra/seed1")}
    assert set(seed.values()) == {3.0} and seed.keys() == wanted(run, "extra").keys()
    params = found.data.params
    assert (params["algorithm"], params["settings.seeds"], params["config.learning_rate"]) == ("mappo", "2", "0.05")
    assert "hardware.processor" in found.data.tags and "versions.jax" in found.data.tags
    assert found.data.tags["status"] == "finished" and found.data.tags["steps"] == "144"
    assert run.evaluation is not None
    assert found.data.metrics["evaluation/mean"] == pytest.approx(run.evaluation.mean)
    assert found.data.tags["mode"] == run.evaluation.mode
    assert [file.path for file in client.list_artifacts(id)] == ["policy"]


def test_a_checkpoint_sends_what_waits_for_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=lambda *given: given))
    sent: list[tuple[str, int]] = []
    logger = shoal.MLflowLogger("store")
    context = shoal.Context(SimpleNamespace(folder=tmp_path), SimpleNamespace(settings=Settings()))
    log_batch = lambda _, metrics: sent.extend((name, step) for name, _, _, step in metrics)  # noqa: E731
    logger._client, logger._flushed, logger._failed = SimpleNamespace(log_batch=log_batch), time.monotonic(), False
    for step in (100, 200):
        logger.send({"return": 1.0}, step)
    assert not sent
    logger.on_checkpoint(context, tmp_path)
    assert sent == [("return", 100), ("return", 200)]


@pytest.mark.slow
def test_mlflow_says_how_an_early_end_came(store: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    uri = f"sqlite:///{store}/mlflow.db"
    flags: dict[str, Any] = FLAGS | {"eval_episodes": 0}
    run = shoal.train(
        "mappo", "toys:busy", folder=tmp_path / "run", callbacks=[shoal.MLflowLogger(uri), Extra(2)], **flags
    )
    stored = json.loads((run.folder / "mlflow.json").read_text())
    found = MlflowClient(uri).get_run(stored["run_id"])
    assert found.data.tags["ended"] == "at step 48 of 144: enough" == run.ended
    assert MlflowClient(uri).list_artifacts(stored["run_id"]) == []
    assert not [name for name in found.data.metrics if name.startswith("evaluation/")]


def test_names_are_those_that_mlflow_accepts() -> None:
    names = ["return/agent 0", "a(b)", "/x//y/", "../up", "ü"]
    assert [_key(name) for name in names] == ["return/agent 0", "a_b_", "x/y", "up", "ü"]


# W&B


def records(path: Path) -> Iterator[Any]:
    """The records of a ``.wandb`` file, which is a log of LevelDB after a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2  # pyright: ignore[reportMissingImports]

    data, at, held = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + size > len(data):  # still being written
            return
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record: Any = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(held)
            held = b""
            yield record


def written(path: Path) -> list[Any]:
    """The records of a file that W&B's own process writes: all of them, once the last one is there."""
    for _ in range(100):
        found = list(records(path))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.3)
    raise AssertionError(f"{path} is not finished")


def items(entries: Any) -> dict[str, Any]:
    return {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in entries}


@pytest.mark.slow
def test_wandb_has_the_rows_of_the_log_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = tmp_path / "run"
    run = trained_and_resumed(folder, lambda: shoal.WandbLogger("team/project"))
    stored = json.loads((folder / "wandb.json").read_text())
    parts = [written(path) for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]
    assert len(parts) == 2 and (stored["project"], stored["entity"]) == ("project", "team")
    assert not (folder / "wandb").exists()
    for part in parts:
        (begun,) = [record.run for record in part if record.WhichOneof("record_type") == "run"][:1]
        assert (begun.run_id, begun.project, begun.entity) == (stored["id"], "project", "team")
        config = items(begun.config.update)
        assert config["algorithm"] == "mappo" and config["settings"]["seeds"] == 2
        assert config["hardware"]["cores"] and "commit" in config and "spec" not in config
        (exit_,) = [record.exit for record in part if record.WhichOneof("record_type") == "exit"]
        assert exit_.exit_code == 0
    rows = [items(record.history.item) for part in parts for record in part if record.HasField("history")]
    for column in ("return", "greedy/return", "extra", "policy_loss"):
        sent = [(row["step"], row[column]) for row in rows if column in row]
        assert dict(sent) == pytest.approx(wanted(run, column)) and len(dict(sent)) == len(sent) > 1, column
    summary: dict[str, Any] = {}
    for record in parts[1]:
        summary |= items(record.summary.update)
    assert run.evaluation is not None and summary["evaluation/mean"] == pytest.approx(run.evaluation.mean)
    assert summary["status"] == "finished" and summary["steps"] == 144 and summary["mode"] == run.evaluation.mode


# What is wrong


def started(tmp_path: Path, logger: Any, stored: str | None = None) -> Any:
    """Start a logger for the folder of a run that is not trained."""
    said: list[str] = []
    (tmp_path / "run.json").write_text(json.dumps({"format": 9, "config": {"algorithm": "x"}, "made_with": {}}))
    if stored is not None:
        (tmp_path / logger.file).write_text(stored)
    progress = SimpleNamespace(say=said.append, warn=said.append)
    trainer = SimpleNamespace(
        settings=Settings(), at=Standing(1), step=3, update=1, progress=progress, hooks=SimpleNamespace(refused=False)
    )
    context = shoal.Context(SimpleNamespace(folder=tmp_path, evaluation=None), trainer)
    context.status = "finished"
    logger.on_start(context)
    return context, said


@pytest.mark.parametrize("id", ["../../x", "a b", "", 3, None, ["x"], "x" * 65])
def test_an_id_of_wandb_in_the_folder_is_only_data(id: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def init(**options: Any) -> Any:
        given.append(options)
        return SimpleNamespace(define_metric=lambda *_, **__: None)

    stand_in = SimpleNamespace(init=init, Settings=lambda **_: None)  # the package need not be installed
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    started(tmp_path, shoal.WandbLogger("p"), json.dumps({"project": "p", "entity": None, "id": id}))
    assert given[0]["id"] != id and len(given[0]["id"]) == 8
    for project, same in (("p", True), ("q", False)):
        started(tmp_path, shoal.WandbLogger(project), json.dumps({"project": "p", "entity": None, "id": "abc"}))
        assert (given[-1]["id"] == "abc") == same


def test_a_tag_of_wandb_is_not_a_list_of_letters() -> None:
    for tags, given in (("one", ("one",)), (["a", "b"], ("a", "b")), ((), ())):
        assert shoal.WandbLogger("p", tags=tags).tags == given


def test_a_missing_dependency_of_wandb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text("import a_dependency_of_wandb")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        InputError, match="Logging to W&B needs the module 'a_dependency_of_wandb', which wandb imports"
    ):
        started(tmp_path, shoal.WandbLogger("p"))


def test_a_file_of_mlflow_with_other_entries_is_only_data() -> None:
    assert shoal.MLflowLogger("http://host")._known("http://host", {"run_id": ["x"], "tracking": {}}) is None


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["[", "[1]", '{"run_id": "../x"}', '{"run_id": "' + "0" * 32 + '"}'])
def test_an_id_of_mlflow_in_the_folder_is_only_data(stored: str, store: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{store}/mlflow.db"
    with contextlib.suppress(ValueError, TypeError):
        stored = json.dumps({"tracking": uri, "experiment": "shoal"} | dict(json.loads(stored)))
    started(tmp_path, shoal.MLflowLogger(uri), stored)
    assert json.loads((tmp_path / "mlflow.json").read_text())["run_id"] not in stored


@pytest.mark.slow
def test_an_mlflow_server_that_is_not_there_is_an_error_within_seconds(store: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"MLflow refuses 'http://localhost:9': .*failed"):
        started(tmp_path, shoal.MLflowLogger("http://localhost:9"))
    assert time.monotonic() - began < 40 and "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


@pytest.mark.slow
def test_a_tracker_that_fails_is_warned_of_once(store: Path, tmp_path: Path) -> None:
    logger = shoal.MLflowLogger(store)
    context, said = started(tmp_path, logger)

    def gone(*_: Any, **__: Any) -> None:
        raise ConnectionError("the store is\ngone")

    logger._client.log_batch = logger._client.set_terminated = gone
    logger._flushed = -1e9
    for update in (1, 2):
        context._trainer.update = update
        logger.on_metrics(context, {"loss": 1.0})
    logger.on_end(context)
    assert said[1:] == ["MLflow failed, so training continues without it: the store is gone"]


@pytest.mark.parametrize("failing", ["log_batch", "log_artifacts"])
def test_the_run_of_a_tracker_that_failed_once_is_ended(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=lambda *given: given))
    ended: list[tuple[str, str]] = []
    client: Any = SimpleNamespace(set_terminated=lambda *given: ended.append(given))
    for name in ("log_batch", "log_artifacts", "set_tag"):
        setattr(client, name, lambda *_, **__: None)

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("the store is busy")

    setattr(client, failing, fail)
    logger = shoal.MLflowLogger("store", upload=True)
    monkeypatch.setattr(logger, "begin", lambda *_: {})
    context, said = started(tmp_path, logger)
    logger._client, logger._id = client, "id"
    (tmp_path / "policy").mkdir()
    logger.on_metrics(context, {"loss": 1.0})
    logger.on_end(context)
    assert said == ["MLflow failed, so training continues without it: the store is busy"]
    assert ended == [("id", "FINISHED")]


@pytest.mark.parametrize("where", ["", " ", "a/b/c", "/p", "a/"])
def test_projects_are_refused(where: str) -> None:
    with pytest.raises(InputError, match="project"):
        shoal.WandbLogger(where)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    logger = shoal.WandbLogger("p") if name == "wandb" else shoal.MLflowLogger(tmp_path / "store")
    with pytest.raises(InputError, match=f"needs {name}: pip install '{name}>="):
        started(tmp_path, logger)


def test_ctrl_c_while_a_tracker_starts_is_no_failure_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no run of it to be ended."""

    class Waiting(shoal.WandbLogger):
        def begin(self, context: shoal.Context, stored: Any) -> Any:
            raise KeyboardInterrupt

    shown = Progress(1, 1, False)
    trainer: Any = SimpleNamespace(settings=Settings(), at=Standing(0), step=0, progress=shown, close=lambda: None)
    run = SimpleNamespace(folder=tmp_path, evaluation=None)
    with pytest.raises(KeyboardInterrupt), with_callbacks(run, trainer, [Waiting("p")]):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("before", [None, b'{"id": "of another project"}\n'])
def test_a_tracker_leaves_no_file_where_another_one_refuses(before: bytes | None, tmp_path: Path) -> None:
    class Starting(shoal.WandbLogger):
        def begin(self, context: shoal.Context, stored: Any) -> Any:
            return {"id": "new"}

        def finish(self, context: shoal.Context, summary: Any) -> None:
            assert (tmp_path / "wandb.json").is_file()

        def end(self, context: shoal.Context) -> None: ...

    class Refusing(shoal.MLflowLogger):
        def begin(self, context: shoal.Context, stored: Any) -> Any:
            raise InputError("no server")

    if before is not None:
        (tmp_path / "wandb.json").write_bytes(before)
    trainer: Any = SimpleNamespace(settings=Settings(), at=Standing(0), step=0, close=lambda: None)
    run = SimpleNamespace(folder=tmp_path, evaluation=None)
    loggers = [Starting("p"), Refusing("store")]
    with pytest.raises(InputError, match="no server"), with_callbacks(run, trainer, loggers):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ({"wandb.json": before} if before else {})


def test_the_run_of_a_tracker_whose_id_cannot_be_stored_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    class Starting(shoal.WandbLogger):
        def begin(self, context: shoal.Context, stored: Any) -> Any:
            return {"id": "new"}

        def end(self, context: shoal.Context) -> None:
            ended.append(context.status)
            raise ConnectionError("gone")

    def full(path: Path, text: str) -> None:
        raise WriteError("The disk is full.")

    monkeypatch.setattr("shoal.loggers.logger.write_text", full)
    trainer: Any = SimpleNamespace(settings=Settings(), at=Standing(0), step=0, close=lambda: None)
    run = SimpleNamespace(folder=tmp_path, evaluation=None)
    with pytest.raises(WriteError, match="full"), with_callbacks(run, trainer, [Starting("p")]):
        pass
    assert ended == ["failed"]


def test_what_is_sent_are_finite_means_and_values_of_seeds() -> None:
    row = {"step": 5, "a": np.array([1.0, np.nan]), "b": np.array([np.nan, np.nan]), "c": 2, "d": np.nan}
    assert values_of(row) == {"a": 1.0, "a/seed0": 1.0, "c": 2.0}
    assert values_of({"a": np.array([4.0])}) == {"a": 4.0}
