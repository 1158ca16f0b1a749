"""Weights & Biases: one W&B run for each run of Shoal."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.errors import InputError
from shoal.loggers.logger import Logger, one_line, required, run_facts
from shoal.options.convert import items_of
from shoal.system.extras import install, lacking
from shoal.training.callbacks import Context

_CODES = {"finished": 0, "failed": 1, "interrupted": 130}
"""Exit codes by which W&B tells how a run ended."""


class WandbLogger(Logger):
    """Logs to Weights & Biases; the horizontal axis is environment steps per seed (``step``).

    Sends the configuration, versions, commit and hardware of ``run.json``, every row of the log, and a summary with the
    final evaluation. W&B's own environment variables apply: with ``WANDB_MODE=offline`` nothing is sent, and what
    ``wandb sync`` uploads later is written to ``wandb/`` in the working directory, or in ``WANDB_DIR``. A resumed run
    continues its W&B run, whose id is in the run folder's ``wandb.json``.
    """

    tracker, file = "W&B", "wandb.json"

    def __init__(
        self,
        project: str,
        *,
        entity: str | None = None,
        name: str | None = None,
        tags: str | Sequence[str] = (),
        upload: bool = False,
    ):
        """Create the logger; nothing is imported or sent yet.

        Args:
            project: the W&B project, or ``entity/project``.
            entity: the user or team that has the project; None for W&B's default.
            name: name of the run; None for the name of its folder.
            tags: of the run; a text is the only one.
            upload: also upload the trained policies (the folder ``policy``), as an artifact.

        Raises:
            InputError: ``project`` is empty, or ``tags`` is no list.
        """
        team, slash, rest = required(project, "W&B needs the name of a project").rpartition("/")
        if slash and (entity is not None or not team or not rest or "/" in team):
            raise InputError(f"The project {project!r} is not of the form project or entity/project.")
        self.project, self.entity = rest, entity if entity is not None else team or None
        self.name, self.tags, self.upload = name, items_of("tags", tags, str), upload
        self._run: Any = None

    def begin(self, context: Context, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start the W&B run, or continue the stored one if it is in the same project.

        Raises:
            InputError: W&B is not installed, or refuses.
        """
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(lacking("Logging to W&B", "wandb", error, install("wandb"))) from None
        where = {"project": self.project, "entity": self.entity}
        same = {name: stored.get(name) for name in where} == where
        known = stored.get("id") if same else None
        sound = isinstance(known, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", known)
        id = known if sound else secrets.token_hex(4)
        try:
            self._run = wandb.init(
                **where,
                id=id,
                resume="allow",
                name=self.name or context.folder.resolve().name,
                tags=list(self.tags),
                config=run_facts(context.folder),
                allow_val_change=True,
                reinit="create_new",
                settings=wandb.Settings(console="off", quiet=True),
            )
            self._run.define_metric("step")
            self._run.define_metric("*", step_metric="step")
        except Exception as error:
            hint = "WANDB_MODE=offline writes to a folder instead"
            raise InputError(f"W&B refuses to start a run: {one_line(error).rstrip('.')}; {hint}.") from error
        return {**where, "id": id}

    def send(self, values: Mapping[str, float], step: int) -> None:
        """Log a row."""
        self._run.log({**values, "step": step})

    def finish(self, context: Context, summary: Mapping[str, Any]) -> None:
        """Write the summary, and upload the policies if that is wanted."""
        self._run.summary.update(dict(summary))
        if self.upload and (context.folder / "policy").is_dir():
            import wandb  # pyright: ignore[reportMissingImports]

            name = re.sub(r"[^\w.-]", "-", context.folder.resolve().name)
            artifact = wandb.Artifact(f"{name}-policy", type="policy")
            artifact.add_dir(str(context.folder / "policy"))
            self._run.log_artifact(artifact)

    def end(self, context: Context) -> None:
        """End the W&B run."""
        self._run.finish(exit_code=_CODES[context.status])
