"""Shoal trains teams of agents: cooperative multi-agent reinforcement learning on JAX, compiled end to end."""

from shoal.api import CrossPlay, Run, compare, crossplay, load, open_run, resume, train
from shoal.environments.registry import make
from shoal.errors import CheckpointError, InputError
from shoal.types import Box, Discrete, Environment, EnvSpec, Scene, Step

__version__ = "0.1.0"

__all__ = [
    "Box",
    "CheckpointError",
    "CrossPlay",
    "Discrete",
    "EnvSpec",
    "Environment",
    "InputError",
    "Run",
    "Scene",
    "Step",
    "compare",
    "crossplay",
    "load",
    "make",
    "open_run",
    "resume",
    "train",
]
