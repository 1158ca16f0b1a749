"""Study files with tuning that tests share."""

from pathlib import Path

TUNING = """
title = "T"
question = "Q?"

[defaults]
environment = "matrix/two_step"
algorithm = "mappo"
steps = 1024
seeds = 2
num_envs = 4
rollout_length = 4
hidden = [4]
devices = 1
epochs = 1
minibatches = 1
tensorboard = false

[[variants]]
name = "default"

[[variants]]
name = "tuned"
tuned = true

[evaluation]
episodes = 4

[tuning]
trials = 4
rungs = 2
eta = 2
seeds = 2
episodes = 4

[tuning.ranges]
learning_rate = { low = 1e-4, high = 1e-1, log = true }
gamma = { values = [0.9, 0.99] }
"""


def written(folder: Path, text: str = TUNING, name: str = "demo") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path
