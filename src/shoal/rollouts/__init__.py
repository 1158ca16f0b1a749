"""Rollouts: trajectories from an environment and an ``act`` function, independent of the algorithm."""
