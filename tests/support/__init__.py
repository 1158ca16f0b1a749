"""What tests share.

Modules that stand for those of a user are in ``user_modules/``, which ``conftest.py`` adds to Python's path, since
tests name them as users name their own: ``toys:busy``.
"""
