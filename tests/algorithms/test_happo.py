"""HAPPO against a plain loop over agents, against PPO where there is one agent, and its factor M."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from shoal.algorithms import haa2c, happo, mappo
from shoal.learning.config import PpoConfig
from shoal.networks.body import Body
from shoal.types import Learner, Scale, Trajectory
from support.trajectories import (
    E,
    T,
    assert_trees_close,
    assert_trees_equal,
    compiled,
    critic_advantage,
    distance,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(3)
SPEC = make_spec()
CONFIG = happo.Config(
    network=Body((6,), orthogonal=False), adam_eps=0.5, learning_rate=1.0, epochs=3, entropy_coef=0.05, order="fixed"
)


UNCLIPPED = haa2c.Config(**{name: getattr(CONFIG, name) for name in haa2c.Config.__dataclass_fields__})


def agents_one_by_one(
    c: happo.Config | haa2c.Config, learner: Learner, traj: Trajectory, order: tuple[int, ...]
) -> Any:
    """Algorithm 3, lines 8 to 13, for feed-forward nets: the actors' parameters as the pages of the paper say it."""
    actor = happo.make_nets(SPEC, c, tuple(range(SPEC.num_agents))).actor
    adam = optax.chain(optax.clip_by_global_norm(c.max_grad_norm or 0.0), optax.adam(c.learning_rate, eps=c.adam_eps))
    team_step = traj.step

    @compiled  # once for all agents
    def improved(own: Any, m: Any, i: Any) -> tuple[Any, Any]:
        """The agent's parameters after the epochs, and its ratio then."""
        old, seen = traj.extras["log_prob"][..., i], team_step.alive[..., i]

        def ratio(params: Any) -> tuple[Any, Any]:
            x = actor.features(team_step)[:, :, i]
            d = actor.alone(params, (), x, team_step.legal[:, :, i], team_step.first)
            return jnp.exp(d.log_prob(traj.action[..., i]) - old), d

        def objective(params: Any) -> Any:
            r, d = ratio(params)
            surrogate = r * m
            if isinstance(c, happo.Config):
                surrogate = jnp.minimum(surrogate, jnp.clip(r, 1 - c.clip, 1 + c.clip) * m)
            return -jnp.where(seen, surrogate + c.entropy_coef * d.entropy(), 0).sum() / seen.sum()

        def epoch(_: Any, state: Any) -> Any:
            own, state = state
            updates, state = adam.update(jax.grad(objective)(own), state)
            return optax.apply_updates(own, updates), state

        own, _ = jax.lax.fori_loop(0, c.epochs, epoch, (own, adam.init(own)))
        return own, ratio(own)[0]

    advantage = compiled(partial(advantage_of, c))(learner, traj)
    alive = team_step.alive
    mean, std = advantage[alive].mean(), advantage[alive].std()
    factor = jnp.ones(alive.shape[:2])
    theta = learner.policy.actor
    for i in order:
        own = jax.tree.map(lambda x, i=i: x[i], theta)
        own, ratio = improved(own, factor * (advantage[..., i] - mean) / (std + 1e-5), i)
        factor = factor * jnp.where(alive[..., i], ratio, 1)
        theta = jax.tree.map(lambda x, y, i=i: x.at[i].set(y), theta, own)
    return theta, factor


def advantage_of(c: happo.Config | haa2c.Config, learner: Learner, traj: Trajectory) -> Any:
    """Â as MAPPO's own update computes it: that part is tested with MAPPO."""
    return critic_advantage(SPEC, c, happo.make_nets(SPEC, c, tuple(range(SPEC.num_agents))), learner, traj)


@pytest.mark.parametrize(("kind", "clip"), [("fixed", True), ("random", True), ("fixed", False)])
def test_the_update_is_the_papers_loop_over_agents(kind: happo.Order, clip: bool) -> None:
    """Without a clip that of HAA2C."""
    config: Any = replace(CONFIG, order=kind) if clip else UNCLIPPED
    prog, traj = program(SPEC, config), make_trajectory(SPEC)
    got, _ = prog.update(prog.learner, traj, KEY)
    order = tuple(int(i) for i in happo.order_of(kind, 3, jax.random.split(KEY, 3)[0]))
    assert (order == (0, 1, 2)) == (kind == "fixed")
    theta, factor = agents_one_by_one(config, prog.learner, traj, order)
    assert_trees_close(got.policy.actor, theta, 1e-4, 1e-5)
    assert distance(theta, prog.learner.policy.actor) > 0.05
    assert float(jnp.abs(factor - 1).max()) > 0.05  # or M would prove nothing


def test_many_capped_ratios_do_not_overflow() -> None:
    """Six ratios of e^20 have a product that float32 cannot hold, and 0 · inf would be NaN."""
    spec = make_spec(n=6)
    nets, traj = happo.make_nets(spec, CONFIG, tuple(range(6))), make_trajectory(spec, dead=0.0)
    actor, shapes = nets.actor, jax.eval_shape(nets.init, KEY).actor
    theta = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), (actor.features(traj.step), traj.step.legal, traj.action))
    first, ones = jnp.broadcast_to(traj.step.first, (6, T, E)), jnp.ones((6, T, E))
    batch = happo.AgentBatch(rows[0], rows[1], first, rows[2], {"log_prob": -1e3 * ones}, ones, ones, ())

    def turn(theta: Any, state: Any, own: happo.AgentBatch, p: Any, key: Any) -> Any:
        return theta, state, {"m": own.advantage.max()}

    *_, metrics = happo.sequential(turn, actor, theta, theta, batch, jnp.arange(6), KEY)
    assert float(metrics["m"]) == pytest.approx((1 + 5 * np.exp(20)) / 6, rel=1e-5)


def test_an_agent_that_is_dead_throughout_does_not_change_its_policy_nor_the_metrics() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC)
    before, _ = prog.update(prog.learner, traj, KEY)  # Adam's moments are not 0 any more
    alive = traj.step.alive.at[..., 1].set(False)
    after, metrics = prog.update(before, traj._replace(step=traj.step._replace(alive=alive)), KEY)
    own = jax.tree.map(lambda x: x[1], (after.policy.actor, after.optimiser.actor))
    assert_trees_equal(own, jax.tree.map(lambda x: x[1], (before.policy.actor, before.optimiser.actor)))
    assert distance(before.policy.actor, after.policy.actor) > 0.01
    entropy = [float(jnp.log(traj.step.legal[..., i, :].sum(-1)).mean()) for i in (0, 2)]
    assert float(metrics["entropy"]) > 0.8 * min(entropy)  # of the two others, whose policies are nearly uniform


def test_the_order_matters_and_is_drawn_anew() -> None:
    traj, prog = make_trajectory(SPEC), program(SPEC, replace(CONFIG, order="random"))
    keys = [jax.random.key(k) for k in range(6)]
    actors = [prog.update(prog.learner, traj, key)[0].policy.actor for key in keys]
    assert max(distance(actors[0], other) for other in actors[1:]) > 1e-3
    orders = {tuple(np.asarray(happo.order_of("random", 3, key))) for key in jax.random.split(KEY, 60)}
    assert len(orders) == 6
    assert tuple(happo.order_of("fixed", 3, KEY)) == (0, 1, 2)


def test_with_one_agent_it_is_ppo() -> None:
    """Line 8 has one order, M is the advantage, and fitting the critic after the actor or beside it is the same."""
    spec = make_spec(n=1, obs_dims=(5,), action_dims=(4,), roles=(0,))
    shared = {field: getattr(CONFIG, field) for field in PpoConfig.__dataclass_fields__}
    alone = program(spec, CONFIG)
    ppo = program(spec, mappo.Config(**shared))
    traj = make_trajectory(spec, dead=0.1)
    (one, metrics), (other, expected) = (p.update(alone.learner, traj, KEY) for p in (alone, ppo))
    assert_trees_close(one, other, 1e-4, 1e-5)
    assert_trees_close(metrics, expected, 1e-4, 1e-5)


def test_agents_that_share_a_policy_change_it_in_turn() -> None:
    """P = 2 for three agents: each policy takes as many Adam steps as its agents have turns and epochs."""
    prog = program(SPEC, replace(CONFIG, sharing=(0, 1, 0)))
    learner, _ = prog.update(prog.learner, make_trajectory(SPEC), KEY)
    actor_state, critic_state = learner.optimiser
    counts = [x for x in jax.tree.leaves(actor_state) if x.dtype == jnp.int32]
    assert [x.tolist() for x in counts] == [[2 * 3, 3]]
    assert [x.tolist() for x in jax.tree.leaves(critic_state) if x.dtype == jnp.int32] == [[3]]


def test_the_program_does_not_grow_with_the_team() -> None:
    """As many equations for 27 agents as for 3; a few more for each would be an unrolled loop."""

    def equations(n: int) -> int:
        spec = make_spec(n=n)
        algorithm = happo.make(spec, CONFIG, Scale(E, T, 10))
        learner = jax.eval_shape(algorithm.init, KEY)
        return str(jax.make_jaxpr(algorithm.update)(learner, make_trajectory(spec), KEY)).count("\n")

    assert equations(27) < 1.02 * equations(3)
