"""Networks as pure functions: inputs, layers and parameter sharing. The only package that imports Flax."""
