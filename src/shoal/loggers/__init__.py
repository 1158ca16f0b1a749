"""Callbacks that send a run's metrics to trackers of experiments: W&B and MLflow (docs/hooks.md)."""
