"""Combination of algorithms: sides of one environment, opponents, past selves, reward normalisation, and preparation.

Runs combine an algorithm with them; algorithms import only ``preparation``, and settings ``opponent_options``.
"""
