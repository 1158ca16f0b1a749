"""The nine multi-agent particle environments (Lowe et al. 2017; Mordatch and Abbeel 2018) and ``bps``, one file each.

``world.py`` has what they share; the registry imports their factories.
"""
