"""Equations as pure functions of arrays: one file per idea, whose docstrings state the equation and its source.

Every package may import them; they import JAX alone, and the types and shapes of Shoal.
"""
