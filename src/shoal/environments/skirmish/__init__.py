"""Battles of small armies with the rules of SMAC and SMACv2, on the device and without StarCraft.

The registry imports ``make`` from ``tasks``, and the scripted teams are algorithms (``scripts``); units, maps
and terrains are for maps of one's own.
"""
