"""The kinds of environment and net in which every algorithm is tested, and tiny configurations for them."""

from typing import Any

from shoal import algorithms
from shoal.options.flags import override
from shoal.types import Box, EnvSpec
from support.trajectories import T, make_spec

SPECS = {"discrete": make_spec(), "box": make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)}
WITHOUT_BOX = frozenset({"coma", "ipqn", "iql", "lica", "pqn_vdn", "qmix", "qplex", "qtran", "shaq", "vdn"})
"""Algorithms of the registry that refuse continuous actions."""


def spec_of(kind: str) -> EnvSpec:
    """Of ``discrete``, ``box`` or ``recurrent``."""
    return SPECS["box" if kind == "box" else "discrete"]


def config_of(name: str, kind: str = "discrete", **flags: Any) -> Any:
    """Tiny nets, one epoch over one minibatch; an ε of Adam that keeps its steps proportional to the gradient."""
    config = algorithms.get(name).Config()
    small = {
        "hidden": (6,),
        "orthogonal": False,
        "epochs": 1,
        "minibatches": 1,
        "chunk_length": T,
        "sequence_length": T,
        "policy_delay": 1,
        "adam_eps": 0.5,
        "learning_rate": 0.5,
    }
    return override(config, small | ({"recurrent": 4} if kind == "recurrent" else {}) | flags)
