"""Training: the compiled program, the loop around it, evaluation, cross-play, and the layout over devices.

Runs import the trainer, its settings, evaluation and episodes; callbacks are public (``shoal.Callback``).
"""
