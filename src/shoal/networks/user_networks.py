"""Networks of the user's own, ``module:function``: what they are given and must return, and how they are checked.

    def conv(inputs, outputs, body):        # Layout, int, Body
        return shoal.from_nnx(lambda rngs: Conv(inputs, outputs, rngs))

The function returns a :class:`Net` on rows: features are [T, B, F], recurrent states [B, H]. Here it is extended to the
batches of agents and environments that algorithms use.
"""

import inspect
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.errors import InputError, shortened
from shoal.networks.architecture import Body
from shoal.networks.inputs import Layout
from shoal.networks.net import Net, from_module, functional
from shoal.security import user_modules
from shoal.types import PyTree

# From modules of Flax NNX and Equinox, and from plain functions, to a :class:`Net`.


InitialCarry = Callable[[tuple[int, ...]], PyTree]
"""Batch shape (B,) -> the recurrent state at the start of an episode, leaves [B, H]."""


def feed_forward(
    init: Callable[[PRNGKeyArray], PyTree], apply: Callable[[PyTree, Float[Array, "R F"]], Float[Array, "R K"]]
) -> Net:
    """A net of two functions: key -> parameters, and (parameters, features [R, F]) -> outputs [R, K]."""

    def over_time(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        del first
        y = apply(params, x.reshape(-1, x.shape[-1]))
        return carry, y.reshape(*x.shape[:-1], *y.shape[1:])

    return Net(init, over_time, lambda batch: ())


def from_nnx(make: Callable[[nnx.Rngs], nnx.Module], initial_carry: InitialCarry | None = None) -> Net:
    """A net of a Flax NNX module.

    Args:
        make: random numbers -> the module.
        initial_carry: of a recurrent module, which is called with (carry [B, H], x [T, B, F], first [T, B]) and returns
            (carry after each timestep [T, B, H], y [T, B, K]). Without it the module is called with x [R, F] and
            returns y [R, K].

    Raises:
        InputError: ``make`` is a module that is already built, or makes one of ``flax.linen``.
    """
    if isinstance(make, nnx.Module):
        raise InputError(_already_built(make, "from_nnx", "nnx.Rngs", "rngs"))

    def made(rngs: nnx.Rngs) -> nnx.Module:
        module = make(rngs)
        if isinstance(module, linen.Module):
            raise InputError(
                f"from_nnx is for modules of flax.nnx, and a {type(module).__name__} is a module of flax.linen: use "
                f"shoal.feed_forward(lambda key: module.init(key, jnp.zeros((1, inputs.width))), module.apply)."
            )
        return module

    if initial_carry is not None:
        return from_module(made, initial_carry)
    return feed_forward(*functional(made))


def from_equinox(make: Callable[[PRNGKeyArray], Any], initial_carry: InitialCarry | None = None) -> Net:
    """A net of an Equinox module, or of another callable that is a pytree; its arrays are the parameters.

    Args:
        make: key -> the module.
        initial_carry: of a recurrent module; see :func:`from_nnx`. Without it the module is called with the features
            [F] of one row, as Equinox's layers are, and returns [K].

    Raises:
        InputError: ``make`` is a module that is already built.
    """
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(make)):
        raise InputError(_already_built(make, "from_equinox", "a key", "key"))
    kept: dict[str, Any] = {}

    def init(key: PRNGKeyArray) -> dict[str, Array]:
        leaves, kept["tree"] = jax.tree_util.tree_flatten_with_path(make(key))
        named = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
        kept["names"] = [name for name, _ in named]
        kept["others"] = {name: leaf for name, leaf in named if not isinstance(leaf, jax.Array)}
        return {name: leaf for name, leaf in named if isinstance(leaf, jax.Array)}

    jax.eval_shape(init, jax.random.key(0))
    tree, names, others = kept["tree"], kept["names"], kept["others"]

    def module(params: dict[str, Array]) -> Any:
        return jax.tree.unflatten(tree, [others[name] if name in others else params[name] for name in names])

    if initial_carry is not None:
        return Net(init, lambda params, carry, x, first: module(params)(carry, x, first), initial_carry)
    return feed_forward(init, lambda params, x: jax.vmap(module(params))(x))


def _already_built(module: Any, function: str, argument: str, short: str) -> str:
    kind = type(module).__name__
    return (
        f"{function} takes a function from {argument} to a module, such as lambda {short}: {kind}(..., "
        f"{short}={short}), since every policy of every seed has weights of its own; it was given a {kind} that is "
        f"already built."
    )


# Checks of the user's own networks.


def make_own(body: Body, layout: Layout, outputs: int, output_gain: float, log_std: float | None) -> Net:
    """The net that the user's function returns, with ``log_std`` as a parameter of Shoal's own.

    Raises:
        InputError: there is no such function, it raises, or what it returns is not such a net.
    """
    name = body.network
    function = user_modules.import_user_object(name, "network")
    user_modules.refuse_standard(user_modules.defining(function), name, "network")
    net = _called(name, function, layout, outputs, body, output_gain)
    _check_net(name, net, layout, outputs, body)
    if not any(isinstance(value, Tracer) for value in (*vars(body).values(), output_gain)):
        with jax.ensure_compile_time_eval():  # also while an algorithm is traced
            _probe(name, net, layout.width)
    return _batched(net, log_std, outputs)


def _called(name: str, function: Callable[..., Any], layout: Layout, outputs: int, body: Body, gain: float) -> Net:
    try:
        known = inspect.signature(function).parameters
        extra = {"output_gain": gain} if "output_gain" in known else {}
        inspect.signature(function).bind(layout, outputs, body, **extra)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"A network is a function (inputs, outputs, body) -> shoal.Net, but {name!r} cannot be called like this: "
            f"{error}."
        ) from error
    net = _tried(name, lambda: function(layout, outputs, body, **extra))
    if not isinstance(net, Net):
        raise InputError(f"{name!r} returned {shortened(net)}, which is not a shoal.Net.")
    return net


def _tried(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InputError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        said = f"{type(error).__name__}: {text[:300]}".rstrip(":. ")
        raise InputError(f"The network {name!r} failed with {said} ({user_modules.place_of(error)}).") from error


def _check_net(name: str, net: Net, layout: Layout, outputs: int, body: Body) -> None:
    """Check shapes and types without computing anything."""
    T, B = 2, 3
    params = _tried(name, lambda: jax.eval_shape(net.init, jax.random.key(0)))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            where = jax.tree_util.keystr(path, simple=True, separator="/")
            raise InputError(
                f"The network {name!r} has the parameter {where!r} of type {dtype or type(leaf).__name__}: all "
                f"parameters are floating-point arrays, so layers with counters or random keys cannot be used."
            )
    carry = _tried(name, lambda: jax.eval_shape(lambda: net.initial_carry((B,))))
    if bool(jax.tree.leaves(carry)) != bool(body.recurrent):
        raise InputError(
            f"The network {name!r} keeps a recurrent state where body.recurrent is None: train it with --recurrent H, "
            f"and return a net without one for critics of single timesteps, where it is None all the same."
            if not body.recurrent
            else f"recurrent is {body.recurrent}, and the network {name!r} keeps no recurrent state (initial_carry)."
        )
    x = jax.ShapeDtypeStruct((T, B, layout.width), jnp.float32), jax.ShapeDtypeStruct((T, B), bool)
    result = _tried(name, lambda: jax.eval_shape(net.apply, params, carry, *x))
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError(f"apply of the network {name!r} returns a recurrent state and an output, not {type(result)}.")
    after, y = result
    wanted = jax.ShapeDtypeStruct((T, B, outputs), jnp.float32)
    if getattr(y, "shape", None) != wanted.shape or not jnp.issubdtype(y.dtype, jnp.floating):
        shape = f"{y.dtype}{list(y.shape)}" if hasattr(y, "shape") else shortened(y)
        raise InputError(
            f"The network {name!r} gives {shape} for {T} timesteps of {B} rows, and {outputs} numbers for each row "
            f"are wanted: {list(wanted.shape)}."
        )
    wanted = jax.tree.map(lambda h: (T, *h.shape, h.dtype), carry)
    given = jax.tree.map(lambda h: (*h.shape, h.dtype), after)
    if wanted != given or any(h.ndim != 2 or h.shape[0] != B for h in jax.tree.leaves(carry)):
        raise InputError(
            f"The network {name!r} begins with the recurrent state {_shapes(carry)} for {B} rows and gives "
            f"{_shapes(after)} for {T} timesteps: each array is [rows, H], and [timesteps, rows, H] afterwards."
        )
    if not jax.tree.leaves(params):
        raise InputError(f"The network {name!r} has no parameters, so it cannot learn.")


def _probe(name: str, net: Net, width: int) -> None:
    """Compute random rows: each is independent of the others, and of the recurrent state where an episode begins.

    Raises:
        InputError: an output is NaN or infinite, also for positive inputs, or depends on what it must not depend on.
    """
    x = np.random.default_rng(0).normal(size=(2, 3, width)).astype(np.float32)

    @jax.jit
    def outputs(x: Array) -> tuple[Array, Array]:
        params, carry = net.init(jax.random.key(0)), net.initial_carry((3,))
        # Each row twice, with two recurrent states at the start of an episode.
        carry = jax.tree.map(lambda h: jnp.concatenate([h, h + 1]), carry)
        many = net.apply(params, carry, jnp.concatenate([x, x], axis=1), jnp.ones((2, 6), bool))[1]
        # Each row alone: a layer that normalises over rows gives others then, and one that reads them in turn, too.
        one = lambda row: net.apply(params, net.initial_carry((1,)), row[None, None], jnp.ones((1, 1), bool))[1]  # noqa: E731
        return many, jax.vmap(one)(x[0])

    for inputs in (x, np.abs(x)):  # a network of logarithms or roots is for features that are never negative
        many, alone = (np.asarray(y, np.float64) for y in _tried(name, partial(outputs, inputs)))
        together, other = np.split(many, 2, axis=1)
        if np.isfinite(together).all():
            break
    else:
        raise InputError(
            f"The network {name!r} gives NaN or infinite outputs for random inputs with its initial parameters."
        )
    near = 1e-3 * np.abs(together).max()  # far above rounding in products of other shapes
    if alone.shape != (3, 1, 1, together.shape[-1]) or np.abs(together[0] - alone[:, 0, 0]).max() > near:
        raise InputError(
            f"The output of the network {name!r} for a row depends on the other rows, which are other agents, "
            f"environments and timesteps: do not normalise or average over them, as batch normalisation does."
        )
    if np.abs(together - other).max() > near:
        raise InputError(
            f"The network {name!r} uses its recurrent state where first is True, the start of an episode: reset it "
            f"there before it is used."
        )


def _shapes(tree: PyTree) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree)) or "nothing"


def _batched(net: Net, log_std: float | None, outputs: int) -> Net:
    """The net for inputs [T, *b, F] with any batch axes, and for ``first`` with fewer axes than these."""

    def init(key: PRNGKeyArray) -> PyTree:
        params = net.init(key)
        if log_std is not None:
            return {"net": params, "log_std": jnp.full(outputs, log_std, jnp.float32)}
        return params if isinstance(params, dict) else {"net": params}

    plain = not isinstance(jax.eval_shape(net.init, jax.random.key(0)), dict)

    def apply(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        lead = x.shape[:-1]
        reset = jnp.broadcast_to(first.reshape(first.shape + (1,) * (len(lead) - first.ndim)), lead)
        rows = jax.tree.map(lambda h: h.reshape(-1, h.shape[-1]), carry)
        own = params["net"] if plain or log_std is not None else params
        after, y = net.apply(own, rows, x.reshape(lead[0], -1, x.shape[-1]), reset.reshape(lead[0], -1))
        after = jax.tree.map(lambda h: h.reshape(*lead, h.shape[-1]), after)
        y = y.reshape(*lead, outputs)
        if log_std is not None:
            y = jnp.concatenate([y, jnp.broadcast_to(params["log_std"], y.shape)], axis=-1)
        return after, y

    def initial_carry(batch: tuple[int, ...]) -> PyTree:
        rows = net.initial_carry((prod(batch),))
        return jax.tree.map(lambda h: h.reshape(*batch, h.shape[-1]), rows)

    return Net(init, apply, initial_carry)
