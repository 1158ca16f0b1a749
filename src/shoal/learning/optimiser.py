"""Adam or RAdam for each policy, steps of several optimisers together, and parts that are not trained (``freeze``)."""

import difflib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.equations.schedules import linear
from shoal.errors import InputError
from shoal.learning.config import AgentConfig
from shoal.types import Metrics, PyTree

SPLIT_LOOPS = 2**15
"""Numbers from which XLA splits a loop over an array among a CPU's threads. A concatenation in such a loop takes longer
than the whole step of Adam on each array by itself."""


class Optimiser(NamedTuple):
    """Adam or RAdam after a global-norm clip, one for each policy along the leading axis P of the parameters."""

    init: Callable[[PyTree], PyTree]
    step: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, Float[Array, ""]]]
    """(gradient, optimiser state, parameters) -> (parameters, optimiser state, mean gradient norm)."""
    step_one: Callable[..., tuple[PyTree, PyTree, Float[Array, ""]]]
    """The same for policy ``p`` alone, without the axis P: (gradient, state, parameters, p)."""


def optimiser(
    learning_rate: float,
    final_fraction: float,
    steps: Sequence[int],
    max_grad_norm: float | None,
    eps: float,
    frozen: frozenset[str] = frozenset(),
    rectified: bool = False,
) -> Optimiser:
    """Adam (Kingma & Ba 2015), or with ``rectified`` RAdam (Liu et al. 2020, algorithm 2), with a rate that changes
    linearly to ``final_fraction`` of itself.

    ``steps`` are each policy's gradient steps in the whole run; parameters without an axis of policies
    (those of a team's critic) have P = 1. Arrays whose names are in ``frozen`` do not change, and their gradients
    count neither for the clip nor for the norm. A policy whose gradient is exactly 0, as where none of its agents is
    alive in a minibatch, takes no step: Adam's momentum would move it without data. Its rate follows its own steps, so
    that it does not reach the final one.
    """
    clip = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    tx = optax.chain(clip, (optax.scale_by_radam if rectified else optax.scale_by_adam)(eps=eps))
    lengths = jnp.array(steps, jnp.float32)

    def moved(gradient: PyTree, state: PyTree, params: PyTree, length: Array) -> tuple[PyTree, PyTree, Array]:
        rate = learning_rate * linear(1.0, final_fraction, optax.tree.get(state, "count") / length)
        updates, after = tx.update(gradient, state, params)
        changed = jax.tree.map(lambda w, u: w - rate * u, params, updates)
        moves = jnp.stack([(slope != 0).any() for slope in jax.tree.leaves(gradient)]).any()
        params, state = jax.tree.map(lambda new, old: jnp.where(moves, new, old), (changed, after), (params, state))
        return params, state, optax.tree.norm(gradient)

    def of_trained(gradient: PyTree, params: PyTree) -> PyTree:
        if not frozen:
            return gradient
        return jax.tree.map(lambda kept, slope: jnp.where(kept, slope, 0.0), trained(params, frozen), gradient)

    def one(gradient: PyTree, state: PyTree, params: PyTree, length: Array) -> tuple[PyTree, PyTree, Array]:
        # One vector instead of a dozen small leaves, since each kernel has a fixed cost.
        weights, unravel = ravel_pytree(params)
        weights, state, norm = moved(ravel_pytree(of_trained(gradient, params))[0], state, weights, length)
        return unravel(weights), state, norm

    def one_alone(gradient: PyTree, state: PyTree, params: PyTree, length: Array) -> tuple[PyTree, PyTree, Array]:
        """``one`` without an axis of nets. On a CPU the arrays of a large net move one by one; its state is alike."""
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        if jax.default_backend() != "cpu" or size < SPLIT_LOOPS:
            return one(gradient, state, params, length)
        unravel, (vectors, structure) = ravel_pytree(params)[1], jax.tree.flatten(state)
        before = structure.unflatten([unravel(x) if x.shape == (size,) else x for x in vectors])
        params, after, norm = moved(of_trained(gradient, params), before, params, length)
        parts = zip(vectors, structure.flatten_up_to(after), strict=True)
        state = structure.unflatten([_filled(x, new) if x.shape == (size,) else new for x, new in parts])
        return params, state, norm

    def init(params: PyTree) -> PyTree:
        return jax.vmap(lambda p: tx.init(ravel_pytree(p)[0]))(params)

    def step(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Array]:
        params, state, norm = jax.vmap(one)(gradient, state, params, lengths)
        return params, state, norm.mean()

    return Optimiser(init, step, lambda gradient, state, params, p: one_alone(gradient, state, params, lengths[p]))


def _filled(vector: Array, parts: PyTree) -> Array:
    """The vector of :func:`ravel_pytree`, written into one of the same size, which XLA does in place."""
    start = 0
    for part in jax.tree.leaves(parts):
        vector = jax.lax.dynamic_update_slice(vector, part.ravel(), (start,))
        start += part.size
    return vector


Adam = Callable[[int, frozenset[str]], Optimiser]
"""(number of nets P, names of frozen arrays) -> an optimiser for parameters [P ...]."""


def by_part(adam: Adam, parts: dict[str, int], frozen: frozenset[str]) -> Optimiser:
    """One optimiser of a dict of parameters, whose parts have axes P of their own; its norm is the mean over parts."""
    own = {
        part: adam(nets, frozenset(name.removeprefix(f"{part}.") for name in frozen if name.startswith(f"{part}.")))
        for part, nets in parts.items()
    }

    def step(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Array]:
        moved = {part: each.step(gradient[part], state[part], params[part]) for part, each in own.items()}
        params, state, norms = ({part: x[k] for part, x in moved.items()} for k in range(3))
        return params, state, jnp.stack(list(norms.values())).mean()

    def step_one(*_: PyTree) -> tuple[PyTree, PyTree, Array]:
        raise TypeError("The parts have no common axis of policies.")

    return Optimiser(lambda params: {part: each.init(params[part]) for part, each in own.items()}, step, step_one)


OptimiserStep = Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, Metrics]]
"""(gradient, optimiser state, parameters) -> (parameters, optimiser state, gradient norms by name)."""


class ByNet(NamedTuple):
    """One tree for actors and one for critics: parameters, gradients or optimiser states; None where there is none.

    In Q-learning the actor is the net of utilities, and the critic the mixer.
    """

    actor: PyTree
    critic: PyTree = None


def step_of_both(
    actor: Optimiser, critic: Optimiser, names: tuple[str, str] = ("actor_grad_norm", "critic_grad_norm")
) -> OptimiserStep:
    """A step of the actors' and one of the critics' optimiser, each with its own clip; ``names`` are their norms'."""

    def step(gradient: ByNet, state: ByNet, params: ByNet) -> tuple[ByNet, ByNet, Metrics]:
        theta, actor_state, norm = actor.step(gradient.actor, state.actor, params.actor)
        norms, phi, critic_state = {names[0]: norm}, params.critic, state.critic
        if phi:
            phi, critic_state, norms[names[1]] = critic.step(gradient.critic, critic_state, phi)
        return ByNet(theta, phi), ByNet(actor_state, critic_state), norms

    return step


def step_of_one(adam: Optimiser, name: str) -> OptimiserStep:
    """A step of one optimiser, whose gradient norm has this name among the metrics."""

    def step(gradient: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree, Metrics]:
        params, state, norm = adam.step(gradient, state, params)
        return params, state, {name: norm}

    return step


# Parts that are not trained.


Init = Callable[[PRNGKeyArray], PyTree]


class Frozen(NamedTuple):
    """Names of the frozen arrays of each net, such as ``layers.0.kernel``."""

    actor: frozenset[str] = frozenset()
    critic: frozenset[str] = frozenset()


def frozen_parameters(config: AgentConfig, actor: Init | None, critic: Init | None = None) -> Frozen:
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
