"""Statistics of scores over seeds and tasks."""
