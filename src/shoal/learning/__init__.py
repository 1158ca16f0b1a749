"""Gradient descent, optimisers, replay buffers, and hyper-parameters that algorithms have in common."""
