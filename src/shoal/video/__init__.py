"""Pictures of episodes: one timestep, animations, timelines, and their files.

Recording of episodes, runs and reports import them.
"""
