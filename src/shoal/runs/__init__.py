"""Runs: built from a configuration, opened from a folder, trained, evaluated, loaded, and trained in parts.

``api``, ``agent`` and ``make_train`` are the public functions; ``build`` makes what trains, and ``api`` trains it.
Studies and reports import ``run``, ``build``, ``open`` and ``load``.
"""
