"""Networks for the description of an environment: actors, critics, utilities and mixers.

Algorithms import them; they know neither environments nor the trainer.
"""
