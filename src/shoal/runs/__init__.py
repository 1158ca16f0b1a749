"""Runs: built from a configuration, opened from a folder, trained, evaluated, loaded, and trained in parts.

``api`` and ``agent`` are the public functions; studies and reports import ``run``, ``build``,
``open`` and ``load``.
"""
