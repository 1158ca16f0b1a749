"""The files of a run folder: checkpoints, log, configuration, learning curves, videos and summary."""
