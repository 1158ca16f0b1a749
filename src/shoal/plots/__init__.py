"""Figures, learning curves, and numbers as text and tables. The only package that imports Matplotlib.

Training, runs, studies and reports import them; they read what :mod:`shoal.storage` wrote, and train nothing.
"""
