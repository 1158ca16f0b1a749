"""Callbacks that send a run's metrics to trackers of experiments: W&B and MLflow (docs/hooks.md).

They are public as ``shoal.WandbLogger`` and ``shoal.MLflowLogger``; no other package imports them.
"""
