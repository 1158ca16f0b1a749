"""Networks for the description of an environment: actors, critics, utilities and mixers."""
