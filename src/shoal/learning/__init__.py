"""Gradient descent, optimisers, replay buffers, and hyper-parameters that algorithms have in common.

Algorithms and models import the stages of an update from here; it is the only package that imports Optax.
"""
