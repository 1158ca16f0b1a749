"""Adapters of environments from other libraries, one file per family."""
