"""What ``shoal check`` requires of an environment, for timesteps that a test has played."""

from collections.abc import Sequence

import numpy as np

from shoal.checking.play import Episode
from shoal.checking.rules import ARRAY_RULES, IMAGE_RULES, METRIC_RULES, Played
from shoal.game import HostTimestep, action_shape
from shoal.spec import EnvSpec
from shoal.types import Step


def broken_rules(spec: EnvSpec, episodes: Sequence[Step]) -> list[str]:
    """The errors that ``shoal check`` would report.

    Args:
        spec: the environment's.
        episodes: for each episode its timesteps [T + 1, ...] from reset on; those after its end are left out.
    """
    shape, dtype = action_shape(spec)
    played = []
    for number, timesteps in enumerate(episodes, 1):
        over = np.flatnonzero(timesteps.last)
        length = int(over[0]) + 1 if len(over) else len(timesteps.last)
        fields = {name: np.asarray(getattr(timesteps, name))[:length] for name in Step._fields[:-1]}
        metrics = np.full((length, len(spec.metrics)), np.nan, np.float32)
        if spec.metrics:
            metrics[1:] = np.asarray(timesteps.metrics)[1:length]
        actions = np.zeros((length - 1, *shape), dtype)
        played.append(Episode(number, number - 1, HostTimestep(**fields, metrics=metrics), actions))
    rules = (*ARRAY_RULES, *IMAGE_RULES, *METRIC_RULES)
    found = [finding for rule in rules for finding in rule(Played(spec, played))]
    return [f"{finding.subject}: {finding.sentence}" for finding in found if finding.level == "error"]
