"""Random specs and trajectories, and programs that compile fast: what the tests of algorithms have in common."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun

from shoal import algorithms
from shoal.equations.returns import gae
from shoal.models import on_policy
from shoal.models.actor_critic import Carry
from shoal.types import Algorithm, Box, Discrete, EnvSpec, Experience, Learner, Replay, Scale, Step, Trajectory

T, E, N = 5, 4, 3
NUM_UPDATES = 10
OBS, STATE, ACTIONS = 5, 4, 4

FEED_FORWARD = Carry((), ())

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiling takes most of these tests' time; what is compiled runs for microseconds."""


def compiled(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return jax.jit(f, compiler_options=FAST, **options)


def make_spec(n: int = N, action: Discrete | Box | None = None, **changes: Any) -> EnvSpec:
    """A team of ``n`` whose last agent plays another role and sees one feature less."""
    action = action or Discrete(ACTIONS)
    last = action.width if isinstance(action, Discrete) else action.width - 1
    fields = {
        "name": "toy",
        "agents": tuple(f"agent_{i}" for i in range(n)),
        "obs_dims": (OBS,) * (n - 1) + (OBS - 1,),
        "state_dim": STATE,
        "action": action,
        "action_dims": (action.width,) * (n - 1) + (last,),
        "roles": (0,) * (n - 1) + (1,),
        "horizon": 8,
        "shared_reward": False,
        "novel": (1, 3),
    }
    return EnvSpec(**(fields | changes))


def make_step(rng: np.random.Generator, spec: EnvSpec, batch: tuple[int, ...], dead: float = 0.3) -> Step:
    """Nothing but noise; about ``dead`` of the agents are dead, and a third of the actions illegal (never action 0)."""
    n, width = spec.num_agents, spec.action.width

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=(*batch, *shape)).astype(np.float32))

    if isinstance(spec.action, Discrete):
        legal = rng.random((*batch, n, width)) > 0.3
        legal[..., 0] = True
    else:
        legal = np.broadcast_to(np.arange(width) < np.array(spec.action_dims)[:, None], (*batch, n, width))
    return Step(
        obs=normal(n, spec.obs_dim),
        state=normal(spec.state_dim),
        legal=jnp.array(legal),
        alive=jnp.array(rng.random((*batch, n)) >= dead),
        reward=normal(n),
        discount=jnp.asarray((rng.random((*batch, n)) > 0.2).astype(np.float32)),
        first=jnp.array(rng.random(batch) > 0.7),
        last=jnp.array(rng.random(batch) > 0.7),
    )


def make_trajectory(
    spec: EnvSpec, seed: int = 0, carry: Any = FEED_FORWARD, length: int = T, envs: int = E, dead: float = 0.3
) -> Trajectory:
    """Legal actions whose stored log-probabilities are noise, so that ratios lie on both sides of every clip range.

    Within an episode an outcome is the next step.
    """
    rng = np.random.default_rng(seed)
    batch = (length, envs)
    step = make_step(rng, spec, batch, dead)
    if isinstance(spec.action, Discrete):
        action = np.argmax(rng.random(step.legal.shape) * np.array(step.legal), -1).astype(np.int32)
        log_prob = -1.3 + 0.4 * rng.normal(size=action.shape)
    else:
        low, high = spec.action.low, spec.action.high
        action = np.where(step.legal, rng.uniform(low, high, step.legal.shape), 0).astype(np.float32)
        log_prob = -2.5 + 0.4 * rng.normal(size=action.shape[:-1])
    outcome = make_step(rng, spec, batch, dead)._replace(first=jnp.asarray(np.zeros(batch, bool)))
    # An episode starts where the one before it ended.
    first = np.concatenate([np.asarray(step.first)[:1], np.asarray(outcome.last)[:-1]])
    extras = {"log_prob": jnp.asarray(log_prob.astype(np.float32))}
    step = step._replace(first=jnp.asarray(first))
    return Trajectory(step, jnp.asarray(action), extras, going_on(step, outcome), carry)


def going_on(step: Step, outcome: Step) -> Step:
    """The outcomes, with the next step's observations where the episode goes on."""

    def follow(name: str) -> jax.Array:
        after, own = np.asarray(getattr(step, name)), np.asarray(getattr(outcome, name))
        last = np.asarray(outcome.last).reshape(*outcome.last.shape, *(1,) * (own.ndim - 2))
        return jnp.asarray(np.concatenate([np.where(last[:-1], own[:-1], after[1:]), own[-1:]]))

    return outcome._replace(**{name: follow(name) for name in ("obs", "state", "legal", "alive")})


def leaving(traj: Trajectory, seed: int = 0) -> Trajectory:
    """The trajectory, in which most agents that die while the episode goes on reach a time limit of their own instead:
    they are alive in the outcome, with an observation that the next step does not show, and gone from there on."""
    step, out = traj.step, traj.outcome
    own = np.random.default_rng(seed).random(step.alive[1:].shape) < 0.7
    alone = own & step.alive[:-1] & ~step.alive[1:] & ~out.last[:-1, :, None]
    alone = jnp.concatenate([alone, jnp.zeros_like(alone[:1])])
    assert alone.any()
    obs, discount = jnp.where(alone[..., None], -out.obs, out.obs), jnp.where(alone, 1.0, out.discount)
    return traj._replace(outcome=out._replace(alive=out.alive | alone, obs=obs, discount=discount))


def from_trajectories(algorithm: Algorithm) -> Algorithm:
    """The algorithm, whose update draws one batch from the trajectory itself where it would draw from a replay buffer.

    Transitions are drawn environment by environment, so that cutting environments over devices keeps their order.
    """

    def sample(one: Replay, traj: Trajectory) -> Any:
        assert one.length in (1, traj.step.first.shape[0])

        def cut(x: jax.Array) -> jax.Array:
            return (
                x[None]
                if one.length > 1
                else jnp.swapaxes(x, 0, 1).reshape(1, 1, x.shape[0] * x.shape[1], *x.shape[2:])
            )

        return jax.tree.map(cut, one.keep(traj))

    def update(learner: Learner, traj: Trajectory, key: jax.Array) -> Any:
        samples = jax.tree.map(lambda one: sample(one, traj), algorithm.replay, is_leaf=lambda x: isinstance(x, Replay))
        return algorithm.update(learner, Experience(traj, samples), key)

    return algorithm._replace(update=update) if algorithm.replay else algorithm


class Program(NamedTuple):
    algorithm: Algorithm
    learner: Learner
    update: Callable[..., Any]
    """Compiled."""


def _drawn(jaxpr: Any) -> list[bool]:
    """Whether each result depends on the arguments: on the key, if these are an algorithm's initial values."""
    dependent = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        if any(x in dependent for x in eqn.invars if not isinstance(x, Literal)):
            dependent.update(eqn.outvars)
    return [not isinstance(x, Literal) and x in dependent for x in jaxpr.outvars]


@cache
def program(spec: EnvSpec, config: Any, scale: Scale | None = None) -> Program:
    """Compiled once per configuration, whatever data it is run on; parameters are noise, as are those of target
    networks, and all else is as initialised."""
    own = sys.modules[type(config).__module__]  # the algorithm that the configuration is of
    name = own.__name__.removeprefix("shoal.algorithms.")
    make = (algorithms.get(name) if name in algorithms.NAMES else own).make
    algorithm = from_trajectories(make(spec, config, scale or Scale(E, T, NUM_UPDATES)))
    init, update = jax.jit(algorithm.init), jax.jit(algorithm.update)  # traced once, whoever asks for shapes as well
    algorithm, traced = algorithm._replace(init=init, update=update), init.trace(jax.random.key(0))
    rng = np.random.default_rng(0)

    def noise(x: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray((rng.normal(size=x.shape) / np.sqrt(x.shape[-2] if x.ndim > 2 else 25.0)).astype(x.dtype))

    def without_draws(key: jax.Array) -> list[jax.Array]:  # drawing them takes as long to compile as an update
        leaves = jaxpr_as_fun(traced.jaxpr)(key)
        return [x for x, drawn in zip(leaves, noisy, strict=True) if not drawn]

    structure, shapes = jax.tree.structure(traced.out_info), jax.tree.leaves(traced.out_info)
    learner = jax.tree.unflatten(structure, _drawn(traced.jaxpr.jaxpr))
    actor, critic = jax.tree.map(lambda _: True, (learner.policy.actor, learner.critic))
    noisy = jax.tree.leaves(learner._replace(policy=learner.policy._replace(actor=actor), critic=critic))
    rest = iter(compiled(without_draws)(jax.random.key(0)))
    leaves = [noise(x) if drawn else next(rest) for x, drawn in zip(shapes, noisy, strict=True)]
    learner = jax.tree.unflatten(structure, leaves)
    return Program(algorithm, learner, update)


def acted(prog: Program, learner: Learner, traj: Trajectory, seed: int = 0, greedy: bool = False) -> Trajectory:
    """The same steps with the actions that ``act`` takes in them one after the other, and what it notes of them."""

    def turn(carry: Any, moment: tuple[Step, jax.Array]) -> Any:
        step, key = moment
        carry, action, extras = prog.algorithm.act(learner, carry, step, key, greedy)
        return carry, (action, extras)

    keys = jax.random.split(jax.random.key(seed), traj.step.first.shape[0])
    _, (action, extras) = compiled(lambda carry: jax.lax.scan(turn, carry, (traj.step, keys)))(traj.carry)
    return traj._replace(action=action, extras=extras)


def assert_trees_close(got: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for (path, x), y in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


def assert_trees_equal(got: Any, expected: Any) -> None:
    assert_trees_close(got, expected, 0, 0)


def distance(a: Any, b: Any) -> float:
    """The largest difference between two trees of one structure."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs)


def critic_advantage(spec: EnvSpec, c: Any, nets: Any, learner: Learner, traj: Trajectory) -> jax.Array:
    """Â [T, E, N] as the family computes it, before it is standardised: that part is tested with MAPPO."""
    values = on_policy.scale_of_agents(c.value_norm, nets.critic.group_of, c.value_norm_beta)

    def of(learner: Learner, traj: Trajectory) -> jax.Array:
        v, out = on_policy.denormalise_values(spec, values, learner, traj, nets.evaluate(learner, traj)), traj.outcome
        return gae(out.reward, out.discount, v.now, v.next, out.last, gamma=c.gamma, lam=c.lam)[0]

    return jax.jit(of)(learner, traj)
