"""Default numbers of environments and steps of an update, without a preset.

They depend only on the episode length, so that a command gives the same run on every machine.
"""

from shoal.presets.on_policy import Flags

STEPS = 5e6
"""Environment steps of a run."""
NUM_ENVS = 8
"""Parallel environments, as in CleanRL's PPO for Atari."""
SHORTEST, LONGEST = 16, 128
"""Smallest and largest rollout length. 16 is the default ``chunk_length`` of recurrent nets; 8 × 128 steps are
CleanRL's update for Atari, and 28,000 steps hold 27 of them."""


def sizes_for(horizon: int) -> Flags:
    """``num_envs`` and ``rollout_length`` for episodes of at most ``horizon`` steps.

    The rollout length is the smallest power of two that holds an episode, within :data:`SHORTEST` and :data:`LONGEST`:
    short episodes give small and frequent updates (25 steps: 8 × 32), long ones span several rollouts.
    """
    length = SHORTEST
    while length < min(horizon, LONGEST):
        length *= 2
    return {"num_envs": NUM_ENVS, "rollout_length": length}
