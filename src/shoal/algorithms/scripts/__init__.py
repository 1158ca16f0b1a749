"""Teams that do not learn, for any environment: levels for tables, opponents, and checks of an environment.

Commands, studies and ``--opponents`` accept their names as those of algorithms.
"""
