"""Parts of networks that are not trained (``freeze``)."""

import difflib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from shoal.errors import InputError
from shoal.learning.config import AgentConfig
from shoal.types import PyTree

Init = Callable[[PRNGKeyArray], PyTree]


class Frozen(NamedTuple):
    """Names of the frozen arrays of each net, such as ``layers.0.kernel``."""

    actor: frozenset[str] = frozenset()
    critic: frozenset[str] = frozenset()


def freezing(config: AgentConfig, actor: Init | None, critic: Init | None = None) -> Frozen:
    """The arrays that ``config.freeze`` names; a name is an array's, or the beginning of several arrays' names.

    Args:
        config: hyper-parameters.
        actor: initialises the actors (in Q-learning the utilities); None if they cannot be frozen.
        critic: initialises the critics (in Q-learning the mixer); None if there are none.

    Raises:
        InputError: nothing has such a name, all that learns would be frozen, or PopArt rewrites a frozen layer.
    """
    if not config.freeze:
        return Frozen()
    nets = {"actor": actor, "critic": critic}
    known = {net: names(jax.eval_shape(init, jax.random.key(0))) for net, init in nets.items() if init is not None}
    full = [f"{net}.{name}" for net, inside in known.items() for name in inside]
    full += ["inputs"] if config.normalise_inputs else []
    found: set[str] = set()
    for given in config.freeze:
        chosen = {name for name in full if f"{name}.".startswith(f"{given}.")}
        if not chosen:
            raise InputError(f"There is no part to freeze named {given!r}; {_there_are(given, full)}.")
        found |= chosen
    if actor is not None and all(f"{net}.{name}" in found for net, inside in known.items() for name in inside):
        every = " and ".join(net for net, inside in known.items() if inside)
        raise InputError(f"freeze names all that learns ({every}), so that nothing would be trained: leave out a part.")
    if getattr(config, "value_norm", None) == "popart" and any(name.startswith("critic.head") for name in found):
        raise InputError("value_norm popart rewrites the critic's last layer, so critic.head cannot be frozen.")
    inside = {net: frozenset(name for name in known[net] if f"{net}.{name}" in found) for net in known}
    return Frozen(**inside)


def _there_are(given: str, full: Sequence[str]) -> str:
    """The nets that have parts to freeze, and the names that are most similar to ``given``."""
    inner = [".".join(words[:n]) for words in (name.split(".") for name in full) for n in range(1, len(words) + 1)]
    nets = list(dict.fromkeys(name.split(".")[0] for name in full))
    near = difflib.get_close_matches(given, dict.fromkeys(inner), n=6, cutoff=0.4)
    nearest = [name for name in near if name not in nets]
    return f"there are {' and '.join(nets)}" + (f", and nearest to it {', '.join(nearest)}" if nearest else "")


def names(params: PyTree) -> list[str]:
    """The names of arrays in a tree, such as ``layers.0.kernel``, in the order of ``jax.tree.leaves``."""
    return [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]


def trained(params: PyTree, frozen: frozenset[str]) -> PyTree:
    """A tree like ``params`` of booleans: False in frozen arrays."""
    return jax.tree_util.tree_map_with_path(lambda path, x: jnp.full(x.shape, _name(path) not in frozen), params)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
