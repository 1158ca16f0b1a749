"""The environment under check, in the process that builds and plays it.

Methods of :class:`Subject` are called by name with pickled arguments and results, and refer to instances of the
environment by number. Imports JAX only if the environment needs it.
"""

import pickle
import time
from typing import Any, NamedTuple

import numpy as np

from shoal.checking.faults import PlayError, fault_of, own_traceback
from shoal.checking.findings import Finding
from shoal.checking.play import HostInstance, Instance
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import EnvSpec


class Built(NamedTuple):
    """Result of building an environment."""

    spec: EnvSpec
    device: bool
    findings: tuple[Finding, ...]
    described: bool
    """Whether its spec is valid."""
    playable: bool
    """Whether instance 0 can be played."""
    bounds: tuple[np.ndarray, np.ndarray] | None = None
    """Float [N, O], the smallest and the largest value of each observation by its space; None if that is unknown."""


class Subject:
    """An environment and its instances."""

    def __init__(self) -> None:
        self.env: Any = None
        self.instances: list[Instance] = []

    def build(self, given: Any, options: dict[str, Any]) -> Built:
        """Build the environment and its first instance. ``given`` is an environment, or the registry's argument.

        Raises:
            InputError: the environment is unknown, or its library is missing.
        """
        if isinstance(given, HostEnvironment) and not options:
            self.env = given
        else:
            from shoal.environments import registry

            self.env = registry.make(given, **options)
        device = not isinstance(self.env, HostEnvironment)
        findings: list[Finding] = []
        try:
            self._validate(device)
        except InputError as error:
            cause = error.__cause__
            findings.append(Finding("error", "interface", str(error), own_traceback(cause) if cause else ""))
            return Built(self.env.spec, device, tuple(findings), False, False)
        try:
            self._first(device, findings)
        except Exception as error:
            fault = fault_of(error)
            findings.append(Finding("error", "exception", f"making the environment {fault.what}.", fault.trace))
        bounds = getattr(self.instances[0], "bounds", None) if self.instances else None
        return Built(self.env.spec, device, tuple(findings), True, bool(self.instances), bounds)

    def _validate(self, device: bool) -> None:
        if device:
            from shoal.environments.validation import validate

            validate(self.env)
        else:
            from shoal.environments.spec_rules import check_spec

            check_spec(self.env.spec)

    def _first(self, device: bool, findings: list[Finding]) -> None:
        """Make instance 0, as a worker process would."""
        if device:
            from shoal.checking.device import DeviceInstance

            self.instances.append(DeviceInstance(self.env))
            return
        maker = self.env.make
        try:
            maker = pickle.loads(pickle.dumps(maker))
        except Exception as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            text = (
                f"the function that makes the environment cannot be sent to worker processes ({type(error).__name__}: "
                f"{reason}); it must be a function of an importable module, or a functools.partial of one."
            )
            findings.append(Finding("error", "make", text))
        game, spec = maker(), self.env.spec
        if game.spec != spec:
            differs = [name for name, value in vars(spec).items() if getattr(game.spec, name, None) != value]
            text = f"the spec of the game differs from that of the environment: {', '.join(differs)}."
            findings.append(Finding("error", "spec", text))
            return
        self.instances.append(HostInstance(game, spec))

    def another(self) -> int:
        """Make another instance of a host environment; returns its number."""
        self.instances.append(HostInstance(self.env.make(), self.env.spec))
        return len(self.instances) - 1

    def reset(self, copy: int, seed: int) -> tuple[HostTimestep, float]:
        """Start an episode; returns (first timestep, seconds)."""
        before = time.perf_counter()
        return self.instances[copy].reset(seed), time.perf_counter() - before

    def step(self, copy: int, action: np.ndarray) -> tuple[HostTimestep, float]:
        """Play ``action``; returns (timestep, seconds)."""
        before = time.perf_counter()
        return self.instances[copy].step(action), time.perf_counter() - before

    def close(self, copy: int) -> float:
        """Close an instance; returns the seconds that it took."""
        before = time.perf_counter()
        self.instances[copy].close()
        return time.perf_counter() - before

    def rate(self) -> tuple[float, float]:
        """Steps per second of many compiled copies, and the compile time in seconds."""
        from shoal.checking.device import vmapped_rate

        return vmapped_rate(self.env)


class Here:
    """A subject in this process."""

    own = False

    def __init__(self) -> None:
        self.subject = Subject()

    def call(self, method: str, *arguments: Any, limit: float = 0.0) -> Any:
        """Call a method of the subject; ``limit`` is ignored.

        Raises:
            PlayError: the environment raised.
            InputError: it cannot be built.
        """
        try:
            return getattr(self.subject, method)(*arguments)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise fault_of(error) from None

    def end(self) -> None:
        """Do nothing: there is no process to end."""


__all__ = ["Built", "Here", "PlayError", "Subject"]
