"""Device environments (pure functions), adapters of other libraries, and the registry of names."""
