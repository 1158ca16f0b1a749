"""Equations as pure functions of arrays: one file per idea, each docstring states the equation and its source."""
