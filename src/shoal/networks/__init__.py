"""Networks as pure functions: what they read, what they are made of, who shares them. Only this room knows Flax."""
