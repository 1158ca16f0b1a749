"""Environments that others wrote, as Shoal's: a file for each family."""
