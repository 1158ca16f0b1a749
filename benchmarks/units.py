"""The units of a training rate: environment steps, agent steps, and passes over the data."""

from typing import Any


def replay_ratio(gradient_steps: int, batch: int, length: int, collected: int) -> float:
    """How often a sample is used: samples in all gradient steps of an update per step collected for it."""
    return gradient_steps * batch * length / collected


def passes(training: Any, steps: int) -> float:
    """How often the policy's gradient steps use each sample of a training program; ``steps`` are those of an update."""
    algorithm, config = training.algorithm, training.config
    if one := algorithm.replay:
        return replay_ratio(one.draws, one.batch, one.length, steps)
    # HATRPO's epochs are the critic's. What has no epochs takes one step of the policy.
    return 1.0 if hasattr(config, "max_kl") else float(getattr(config, "epochs", 1))


def agent_steps(rate: float, agents: int) -> str:
    """Agent steps per second, for a table."""
    return f"{rate * agents:,.0f}"
