"""Policies for others: a run's policies alone as a folder with a card.

The command line imports them.
"""
