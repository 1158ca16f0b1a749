"""Policies for others: a run's policies alone as a folder with a card, also to and from the Hugging Face Hub.

The command line imports them.
"""
