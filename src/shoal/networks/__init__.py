"""Networks as pure functions: inputs, layers and parameter sharing. The only package that imports Flax.

Models and algorithms import nets, inputs and ``sharing``; ``shoal.Body``, ``shoal.Net``, ``shoal.Layout`` and the
functions that make a net are public.
"""
