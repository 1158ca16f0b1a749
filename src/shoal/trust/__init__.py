"""Which run folders are of the user's own training, and what the others may import and call (docs/security.md).

``run_file`` reads ``run.json`` and asks ``provenance``; ``permission`` says what building an environment
would import and refuses it. Configuration, runs and studies import them.
"""
