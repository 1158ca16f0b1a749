"""Environments by name whose kind a test knows: type checkers cannot tell it from the name."""

from typing import Any

from shoal.environments import registry
from shoal.game import HostEnvironment
from shoal.types import Environment


def device_env(name: Any, **options: Any) -> Environment:
    """An environment of pure functions."""
    env = registry.make(name, **options)
    assert isinstance(env, Environment), f"{name} is not on the device"
    return env


def host_env(name: Any, **options: Any) -> HostEnvironment:
    """An environment that is stepped on the host."""
    env = registry.make(name, **options)
    assert isinstance(env, HostEnvironment), f"{name} is not on the host"
    return env
