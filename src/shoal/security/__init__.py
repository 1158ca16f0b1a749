"""Safe reading of untrusted files, links out of a folder, isolated processes, and the user's own modules.

Every package may import them; which folders are trusted, and what these may import, is decided in :mod:`shoal.trust`.
"""
