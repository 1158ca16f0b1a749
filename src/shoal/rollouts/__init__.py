"""Rollouts: trajectories from an environment and an ``act`` function, independent of the algorithm.

Training, evaluation and checks import the compiled rollout (``fused``) and that of worker processes (``host``,
``ray``).
"""
