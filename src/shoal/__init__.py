"""Shoal trains teams of agents: cooperative multi-agent reinforcement learning on JAX, compiled end to end."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.checking import check
    from shoal.environments.registry import make
    from shoal.errors import CallbackError, CheckpointError, InputError
    from shoal.game import Game, HostEnvironment, HostTimestep
    from shoal.loggers.mlflow_tracking import MLflowLogger
    from shoal.loggers.weights_and_biases import WandbLogger
    from shoal.networks.architecture import Body
    from shoal.networks.inputs import InputPart, Layout
    from shoal.networks.net import Net
    from shoal.networks.user_networks import feed_forward, from_equinox, from_nnx
    from shoal.reporting import report
    from shoal.runs.agent import Agent, agent
    from shoal.runs.api import CrossPlay, Run, crossplay, curves, open_run, resume, train
    from shoal.runs.load import load
    from shoal.runs.make_train import make_train
    from shoal.spec import Box, Discrete, EnvSpec, Part, Scene
    from shoal.studies.compare import RunComparison, compare
    from shoal.studies.results import results
    from shoal.studies.running import study
    from shoal.studies.tuning.running import tune
    from shoal.training.callbacks import Callback, Context
    from shoal.types import Environment, Step

__version__ = "0.2.0"

__all__ = [
    "Agent",
    "Body",
    "Box",
    "Callback",
    "CallbackError",
    "CheckpointError",
    "Context",
    "CrossPlay",
    "Discrete",
    "EnvSpec",
    "Environment",
    "Game",
    "HostEnvironment",
    "HostTimestep",
    "InputError",
    "InputPart",
    "Layout",
    "MLflowLogger",
    "Net",
    "Part",
    "Run",
    "RunComparison",
    "Scene",
    "Step",
    "WandbLogger",
    "agent",
    "check",
    "compare",
    "crossplay",
    "curves",
    "feed_forward",
    "from_equinox",
    "from_nnx",
    "load",
    "make",
    "make_train",
    "open_run",
    "report",
    "results",
    "resume",
    "study",
    "train",
    "tune",
]

_HOMES = {
    "shoal.runs.agent": ("Agent", "agent"),
    "shoal.runs.api": ("CrossPlay", "Run", "crossplay", "curves", "open_run", "resume", "train"),
    "shoal.runs.load": ("load",),
    "shoal.runs.make_train": ("make_train",),
    "shoal.checking": ("check",),
    "shoal.studies.compare": ("RunComparison", "compare"),
    "shoal.environments.registry": ("make",),
    "shoal.errors": ("CallbackError", "CheckpointError", "InputError"),
    "shoal.game": ("Game", "HostEnvironment", "HostTimestep"),
    "shoal.loggers.mlflow_tracking": ("MLflowLogger",),
    "shoal.loggers.weights_and_biases": ("WandbLogger",),
    "shoal.networks.architecture": ("Body",),
    "shoal.networks.inputs": ("InputPart", "Layout"),
    "shoal.networks.user_networks": ("feed_forward", "from_equinox", "from_nnx"),
    "shoal.networks.net": ("Net",),
    "shoal.reporting": ("report",),
    "shoal.spec": ("Box", "Discrete", "EnvSpec", "Part", "Scene"),
    "shoal.studies.results": ("results",),
    "shoal.studies.running": ("study",),
    "shoal.training.callbacks": ("Callback", "Context"),
    "shoal.studies.tuning.running": ("tune",),
    "shoal.types": ("Environment", "Step"),
}


def __getattr__(name: str) -> Any:
    """Import public names lazily: worker processes that step environments do without JAX."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
