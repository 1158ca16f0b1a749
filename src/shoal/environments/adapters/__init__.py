"""Adapters of environments from other libraries, one file per family.

The registry imports an adapter when one of its names is asked for; each imports its library inside its functions.
"""
