"""Grid worlds on the device."""
