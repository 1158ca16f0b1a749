"""``hands/…``: two Shadow hands that throw, catch, lift and open, on MuJoCo in worker processes. Does not import JAX.

``tasks`` names the tasks and builds environments, ``model`` writes MuJoCo's model of hands and objects, and ``game``
plays it.
"""
