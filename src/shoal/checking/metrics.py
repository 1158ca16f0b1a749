"""Rules about the metrics of episodes, and their means under random play."""

from collections.abc import Iterator

import numpy as np

from shoal.checking.findings import Finding
from shoal.checking.rules import Played, Rule, when
from shoal.plots.texts import metric_text


def metrics(played: Played) -> Iterator[Finding]:
    """The metrics of an ended episode are known and finite, and ``won`` lies in [0, 1]."""
    spec, ended = played.spec, [e for e in played.episodes if e.ended]
    for i, name in enumerate(spec.metrics):
        values = [(e, float(e.timesteps.metrics[-1, i])) for e in ended]
        infinite = next(((e, x) for e, x in values if np.isinf(x)), None)
        if infinite is not None:
            yield Finding("error", f"metric {name}", f"it is infinite {when(infinite[0], infinite[0].steps)}.")
        outside = next(((e, x) for e, x in values if name == "won" and np.isfinite(x) and not 0 <= x <= 1), None)
        if outside is not None:
            e, x = outside
            text = f"it is {x:g} {when(e, e.steps)}, but it must be 1 where an episode was won and 0 where it was not."
            yield Finding("error", "metric won", text)
        unknown = [e for e, x in values if np.isnan(x)]
        if unknown:
            e = unknown[0]
            yield Finding(
                "warning",
                f"metric {name}",
                f"it is unknown (NaN) in {len(unknown)} of {len(ended)} episodes that ended, first in episode "
                f"{e.number} (seed {e.seed}); its mean excludes these episodes, and is biased if the metric is "
                f"missing more often when its value would be low or high.",
            )


def means(played: Played) -> str:
    """Means of the metrics as text; empty if the environment has none, or no episode ended."""
    values = [e.timesteps.metrics[-1] for e in played.episodes if e.ended]
    if not values or not played.spec.metrics:
        return ""
    known = [[float(x) for x in column if np.isfinite(x)] for column in zip(*values, strict=True)]
    named = zip(played.spec.metrics, known, strict=True)
    return "; " + ", ".join(metric_text(name, sum(xs) / len(xs)) if xs else f"{name} unknown" for name, xs in named)


RULES: tuple[Rule, ...] = (metrics,)
