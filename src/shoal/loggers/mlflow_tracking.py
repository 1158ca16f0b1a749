"""MLflow tracking: one MLflow run for each run of Shoal."""

import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.loggers.logger import Logger, one_line, required, run_facts
from shoal.system.extras import install, lacking
from shoal.system.files import make_folder, with_home
from shoal.training.callbacks import Context
from shoal.types import Seconds

PAUSE: Seconds = 5.0
"""Least time between two batches of metrics: a store answers in tens of milliseconds."""

MAX_BATCH = 1000
"""Largest number of metrics in a batch that MLflow accepts."""

_PARAMS, _TEXT, _TAG = 100, 500, 5000
"""Largest number of parameters in a batch, and of characters of a parameter and of a tag."""

_SOON = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Limits of requests while a run starts, and at its end if MLflow has failed. By default MLflow retries seven times and
waits 120 s for each answer, so an error about a missing server takes minutes."""

_STATES = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


@contextmanager
def _soon() -> Iterator[None]:
    """Fail within seconds if there is no server, unless the user has set MLflow's limits."""
    given = {name: value for name, value in _SOON.items() if name not in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)


class MLflowLogger(Logger):
    """Logs to MLflow; the steps of metrics are environment steps per seed.

    The configuration becomes parameters, versions, commit and hardware become tags, every row of the log becomes
    metrics, and the final evaluation metrics and tags. A resumed run continues its MLflow run, whose id is in the
    folder's ``mlflow.json``.
    """

    tracker, file = "MLflow", "mlflow.json"

    def __init__(self, where: str | Path, *, experiment: str = "shoal", name: str | None = None, upload: bool = False):
        """Create the logger; nothing is imported or written yet.

        Args:
            where: a tracking URI, such as ``http://host:5000`` or ``sqlite:///mlflow.db``, or a folder, which then
                holds a database ``mlflow.db`` (``mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db``).
            experiment: name of the experiment, which is created if needed.
            name: name of the run; None for the name of its folder.
            upload: also upload the trained policies (the folder ``policy``), as artifacts.

        Raises:
            InputError: ``where`` or ``experiment`` is empty.
        """
        self.where = required(str(where), "MLflow needs a tracking URI or a folder")
        self.experiment = required(experiment, "MLflow needs the name of an experiment")
        self.name, self.upload = name, upload
        self._client: Any = None
        self._id = ""
        self._waiting: list[Any] = []
        self._flushed = 0.0

    def begin(self, context: Context, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start the MLflow run, or continue the stored one if it is in the same store.

        Raises:
            InputError: MLflow is not installed, or refuses; or the folder cannot be created.
        """
        try:
            from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(lacking("Logging to MLflow", "mlflow", error, install("mlflow"))) from None
        uri, artifacts = self._store()
        try:
            with _soon():
                self._client = MlflowClient(tracking_uri=uri)
                self._id = self._known(uri, stored) or self._new(context, artifacts)
        except Exception as error:
            raise InputError(f"MLflow refuses {self.where!r}: {one_line(error)}") from error
        self._waiting, self._flushed = [], time.monotonic()
        context.say(f"Logging to MLflow: run {self._id} of the experiment {self.experiment!r} in {uri}")
        return {"tracking": uri, "experiment": self.experiment, "run_id": self._id}

    def _store(self) -> tuple[str, str | None]:
        """(tracking URI, where artifacts of a new experiment are stored; None for MLflow's default)."""
        if re.match(r"[A-Za-z][\w+.-]+:", self.where) or self.where == "databricks":  # longer than a drive's letter
            return self.where, None
        folder = with_home(self.where).resolve()
        make_folder(folder)
        return f"sqlite:///{(folder / 'mlflow.db').as_posix()}", (folder / "artifacts").as_uri()

    def _known(self, uri: str, stored: Mapping[str, Any]) -> str | None:
        """The id of the stored run, which is continued; None if there is none in this store."""
        id = stored.get("run_id")
        if (stored.get("tracking"), stored.get("experiment")) != (uri, self.experiment):
            return None
        if not isinstance(id, str) or not re.fullmatch(r"[0-9a-f]{32}", id):
            return None
        from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]

        try:
            self._client.update_run(id, status="RUNNING")
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "INVALID_STATE"):
                return None  # deleted
            raise
        return id

    def _new(self, context: Context, artifacts: str | None) -> str:
        from mlflow.entities import Param, RunTag  # pyright: ignore[reportMissingImports]

        found = self._client.get_experiment_by_name(self.experiment)
        id = found.experiment_id if found else self._client.create_experiment(self.experiment, artifacts)
        run = self._client.create_run(id, run_name=self.name or context.folder.resolve().name).info.run_id
        entries = run_facts(context.folder)
        made = {name: entries.pop(name) for name in ("versions", "commit", "platform", "hardware") if name in entries}
        params = [Param(_key(name), str(value)[:_TEXT]) for name, value in _flat(entries)]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(run, params=params[start : start + _PARAMS])
        self._client.log_batch(run, tags=[RunTag(_key(name), str(value)[:_TAG]) for name, value in _flat(made)])
        return run

    def send(self, values: Mapping[str, float], step: int) -> None:
        """Add metrics to the next batch, and send it if it is time."""
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(time.time() * 1000)
        self._waiting += [Metric(_key(name), value, now, step) for name, value in values.items()]
        if time.monotonic() - self._flushed >= PAUSE:
            self._flush()

    def on_checkpoint(self, context: Context, folder: Path) -> None:
        """Send what waits: a run that is resumed here does not make it again."""
        self._try(context, self._flush)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), MAX_BATCH):
            self._client.log_batch(self._id, metrics=waiting[start : start + MAX_BATCH])
        self._flushed = time.monotonic()

    def finish(self, context: Context, summary: Mapping[str, Any]) -> None:
        """Send what waits and the summary, and upload the policies if that is wanted."""
        numbers = {name: value for name, value in summary.items() if name.startswith("evaluation/")}
        self.send({name: value for name, value in numbers.items() if value == value}, context.step)
        self._flush()
        for name in summary.keys() - numbers.keys():
            self._client.set_tag(self._id, name, str(summary[name]))
        if self.upload and (context.folder / "policy").is_dir():
            self._client.log_artifacts(self._id, str(context.folder / "policy"), "policy")

    def end(self, context: Context) -> None:
        """End the MLflow run; within seconds if MLflow has failed, since it may be gone."""
        with _soon() if self._failed else nullcontext():
            self._client.set_terminated(self._id, _STATES[context.status])


def _key(name: str) -> str:
    """A name of a metric or a parameter that MLflow accepts."""
    return posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)).strip("./") or "_"


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects by path, for example ``settings.seeds``."""
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
