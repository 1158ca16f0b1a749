"""Combination of algorithms: sides of one environment, opponents, past selves, and reward normalisation.

Runs combine an algorithm with them; settings import only the options of ``opponents``.
"""
