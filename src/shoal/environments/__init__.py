"""Device environments (pure functions), adapters of other libraries, wrappers, and the registry of names.

Other packages build environments with :func:`shoal.environments.registry.make`, and import wrappers, names and
conversions; the packages inside are imported by the registry.
"""
