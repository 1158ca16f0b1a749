"""The machine and its user: files, folders, cores, messages on standard error, and optional packages.

Every package may import them; they do not import JAX.
"""
