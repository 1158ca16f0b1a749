"""How many environments and steps an update takes in an environment that nothing is tuned to.

Both follow from the length of an episode alone, so that the same command makes the same run on every machine.
"""

from shoal.presets.on_policy import Flags

STEPS = 5e6
"""Environment steps of a run."""
NUM_ENVS = 8
"""Environments side by side, as CleanRL's PPO has for Atari."""
SHORTEST, LONGEST = 16, 128
"""Least and most steps of a rollout. 16 is the default ``chunk_length`` of recurrent nets; 8 × 128 steps are CleanRL's
update for Atari, and 28,000 steps hold 27 of them."""


def sizes_for(horizon: int) -> Flags:
    """``num_envs`` and ``rollout_length`` for episodes of at most ``horizon`` steps.

    A rollout is the power of two that just holds an episode, within :data:`SHORTEST` and :data:`LONGEST`: short
    episodes make small and frequent updates (25 steps: 8 × 32), long ones are cut into rollouts that bootstrap.
    """
    length = SHORTEST
    while length < min(horizon, LONGEST):
        length *= 2
    return {"num_envs": NUM_ENVS, "rollout_length": length}
