"""Device environments (pure functions) and the registry that names them."""
