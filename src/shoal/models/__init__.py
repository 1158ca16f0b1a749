"""Nets wired to the description of an environment: actors, critics, utilities, and what they read."""
