"""Hanabi with the rules and observations of the Hanabi Learning Environment, on the device.

The registry imports ``make`` from ``tasks``; the version on the host plays OpenSpiel's game
(:mod:`shoal.environments.adapters.hanabi`).
"""
