"""Rules for observations that are rows of bytes: images, and numbers that are observed with them."""

from collections.abc import Iterator

import numpy as np

from shoal.checking.findings import Finding
from shoal.checking.rules import Played, Rule, when
from shoal.environments import rows

DARKEST = 32
"""Arrays whose pixels all lie below this value are probably not images."""


def numbers(played: Played) -> Iterator[Finding]:
    """Numbers that are observed with images are finite."""
    spec = played.spec
    if not spec.packed:
        return
    for episode in played.episodes:
        for i, parts in enumerate(rows.parts_of(spec)):
            for part, values in rows.numbers(parts, True, episode.timesteps.obs[:, i, : spec.obs_dims[i]]):
                wrong = np.argwhere(~np.isfinite(values))
                if len(wrong):
                    t, k = map(int, wrong[0])
                    name = f"{part.name}: number {k}" if part.name else f"number {k}"
                    text = f"{name} of {spec.agents[i]}'s observation is {values[t, k]:g} {when(episode, t)}."
                    yield Finding("error", "observation", text)
                    return


def brightness(played: Played) -> Iterator[Finding]:
    """Images use the range of their type."""
    spec, brightest = played.spec, {}
    for episode in played.episodes if spec.packed else ():
        for i, parts in enumerate(rows.parts_of(spec)):
            for part, place in zip(parts, rows.slices(parts, True), strict=True):
                if part.dtype == "uint8":
                    most = int(episode.timesteps.obs[:, i, place].max(initial=0))
                    brightest[part] = max(brightest.get(part, 0), most)
    for part, most in brightest.items():
        if most < DARKEST:
            name = f"the image {part.name!r}" if part.name else "the image"
            yield Finding(
                "warning",
                "images",
                f"the values of {name} are at most {most} of 255, and networks divide them by 255; if they are codes "
                f"rather than brightness, set the true upper bound in their space or declare the part as float32 "
                f"instead of uint8, so that they are read as numbers.",
            )


RULES: tuple[Rule, ...] = (numbers, brightness)
