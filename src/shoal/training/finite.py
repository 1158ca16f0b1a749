"""Checks that metrics and parameters are finite."""

from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import numpy as np

from shoal.errors import NonFiniteError
from shoal.types import Learner


def check_metrics(metrics: Mapping[str, np.ndarray], update: int, seed: int, saved: int) -> None:
    """Check the metrics of n updates.

    Args:
        metrics: leaves [n, S].
        update: updates before them.
        seed: the run's first.
        saved: the update of the newest checkpoint.

    Raises:
        NonFiniteError: one is NaN or infinite; the message names the first such update.
    """
    broken = [(*where, name) for name, values in metrics.items() for where in np.argwhere(~np.isfinite(values))]
    if broken:
        i, s, name = min(broken, key=lambda found: found[0])
        _refuse(name, seed + int(s), metrics[name][i, s], update + int(i) + 1, saved)


def check_learner(learner: Learner, update: int, seed: int, saved: int) -> None:
    """Check all parameters and other arrays of ``learner`` [S, ...]; see :func:`check_metrics`.

    Raises:
        NonFiniteError: one is NaN or infinite.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(learner)):
        if not np.isfinite(leaf).all():
            s = int(np.argwhere(~np.isfinite(leaf))[0][0])
            _refuse(jax.tree_util.keystr(path, simple=True, separator="/"), seed + s, "not finite", update, saved)


def _refuse(name: str, seed: int, value: Any, update: int, saved: int) -> NoReturn:
    raise NonFiniteError(
        f"{name} of seed {seed} is {value} after update {update}; the checkpoint after update {saved} is kept. Try a "
        f"lower learning rate or gradient clipping."
    )
