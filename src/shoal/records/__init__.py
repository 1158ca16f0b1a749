"""What a run leaves behind: checkpoints, a log, its configuration, curves, replay pictures and a summary."""
