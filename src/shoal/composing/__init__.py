"""Algorithms from other algorithms: sides, reward normalisation, and preparation by experience."""
