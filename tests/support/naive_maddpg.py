"""One gradient step of the MADDPG family in plain loops over agents, sub-policies and twins, one net at a time."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.algorithms import get, iddpg, maddpg, matd3
from shoal.learning.optimiser import ByNet
from shoal.networks.body import Body, build_body
from shoal.networks.sharing import policy_of
from shoal.types import Box, EnvSpec, Learner, Scale, Step, Trajectory
from support.trajectories import Program, assert_trees_close, compiled, distance, from_trajectories, make_trajectory

# A large ε of Adam keeps its steps proportional to the gradient; the norm is sometimes clipped, sometimes not.
BASE = maddpg.Config(
    network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=0.5,
    critic_learning_rate=0.3, target_rate=0.1, logit_coef=0.05, max_grad_norm=0.2,
)  # fmt: skip


@cache
def made(spec: EnvSpec, config: Any, scale: Scale = Scale(4, 5, 10)) -> Program:  # noqa: B008
    """A compiled algorithm whose parameters, trained and slow, are noise: drawing true ones would take long."""
    name = {iddpg.Config: "iddpg", matd3.Config: "matd3"}.get(type(config), "maddpg")
    algorithm = from_trajectories(get(name).make(spec, config, scale))
    shapes, rng = jax.eval_shape(algorithm.init, jax.random.key(0)), np.random.default_rng(0)

    def noise(x: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.array(rng.normal(size=x.shape) * (1.5 / np.sqrt(x.shape[-2]) if x.ndim > 2 else 0.3), jnp.float32)

    learner = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    models = getattr(shapes.statistics, "models", None)
    nets = shapes.policy.actor, shapes.critic, models, slow_copies(shapes)
    actor, critic, models, slow = jax.tree.map(noise, nets)
    policy = learner.policy._replace(actor=actor, noise=jnp.float32(config.noise))
    learner = with_slow_copies(learner._replace(policy=policy, critic=critic), *slow)
    if config.policies == "inferred":
        learner = learner._replace(statistics=learner.statistics._replace(models=models))
    return Program(algorithm, learner, compiled(algorithm.update))


def slow_copies(learner: Any) -> tuple[Any, Any, Any]:
    """(actor, critic, models), None for no models."""
    kept = learner.statistics
    return (*kept.maddpg.target, kept.target) if hasattr(kept, "maddpg") else (*kept.target, None)


def with_slow_copies(learner: Learner, actor: Any, critic: Any, models: Any) -> Learner:
    """The learner with other target networks."""
    kept, target = learner.statistics, ByNet(actor, critic)
    if hasattr(kept, "maddpg"):
        kept = kept._replace(maddpg=kept.maddpg._replace(target=target), target=models)
        return learner._replace(statistics=kept)
    return learner._replace(statistics=kept._replace(target=target))


def sampled(config: Any, traj: Trajectory) -> tuple[Step, Any, Step, Any]:
    """(step, action, outcome, member) as :func:`trajectories.from_trajectories` draws them, [L, B, ...]."""

    def cut(x: jax.Array) -> jax.Array:
        return x if config.network.recurrent else jnp.swapaxes(x, 0, 1).reshape(1, -1, *x.shape[2:])

    return jax.tree.map(cut, (traj.step, traj.action, traj.outcome, traj.extras.get("member", ())))


def of(tree: Any, p: int) -> Any:
    return jax.tree.map(lambda x: x[p], tree)


def adam(c: Any, params: Any, gradient: Any, memory: Any, t: Any, rate: float) -> tuple[Any, Any]:
    """Step number t of every net along the leading axis, each clipped by its own norm."""
    first, second = memory
    norm = jnp.sqrt(sum(jnp.square(g).reshape(len(g), -1).sum(1) for g in jax.tree.leaves(gradient)))
    shrink = 1.0 if c.max_grad_norm is None else jnp.minimum(1.0, c.max_grad_norm / norm)
    gradient = jax.tree.map(lambda g: g * jnp.reshape(shrink, (-1, *(1,) * (g.ndim - 1))), gradient)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

    def move(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return w - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + c.adam_eps)

    return jax.tree.map(move, params, first, second), (first, second)


def step(
    spec: EnvSpec, c: Any, twins: int, delay: int,
    nets: Any, slow: Any, memory: Any, t: Any, traj: Trajectory, key: Any,
) -> Any:  # fmt: skip
    """((actor, critic), target networks (actor, critic, models), both Adams' memories) after gradient step ``t``."""
    n, width, obs_dim, K = spec.num_agents, spec.action.width, spec.obs_dim, c.ensemble
    index = policy_of(spec, c.sharing)
    ids, policies = c.agent_id and max(index) + 1 < n, max(index) + 1
    now, action, then, member = sampled(c, traj)
    L, B = now.first.shape
    box = spec.action if isinstance(spec.action, Box) else None
    actor_net = build_body(c.network, obs_dim + ids * n, width)
    small, local = replace(c.network, recurrent=None), c.critic_input == "local"
    seen = spec.state_dim if c.critic_input == "state" else (1 if local else n) * obs_dim
    critic_net = build_body(small, seen + (1 if local else n) * width + ids * n, 1)
    key_target, key_actor = jax.random.split(jax.random.split(key, 1)[0])
    key_true, key_models = jax.random.split(key_target)
    kind = jax.random.normal if box else jax.random.gumbel

    def noise(key: Any, *shape: int) -> jax.Array:
        return jax.vmap(lambda b: kind(jax.random.fold_in(key, b), (L, *shape)), out_axes=1)(jnp.arange(B))

    def one_hot(i: int) -> jax.Array:
        return jnp.zeros((L, B, n)).at[..., i].set(1.0)

    def looks(s: Step, i: int) -> jax.Array:
        x = jnp.where(s.alive[..., i, None], s.obs[..., i, :], 0)
        return jnp.concatenate([x, one_hot(i)], -1) if ids else x

    def out(actor: Any, i: int, ahead: bool) -> jax.Array:
        """Logits or raw actions of agent i, by the sub-policy that it plays; ``ahead`` in the outcome."""
        result = jnp.zeros((L, B, width))
        for k in range(K):
            params = of(actor, index[i] * K + k)
            start = actor_net.initial_carry((B,))
            if "recurrent_state0" in traj.extras:
                start = jax.tree.map(lambda _: traj.extras["recurrent_state0"][0, :, i], start)
            carry, x = actor_net.apply(params, start, looks(now, i), now.first)
            if c.burn_in and not ahead:
                outputs, state = [], start
                for t in range(L):
                    state = jax.lax.stop_gradient(state) if t <= c.burn_in else state
                    after, y = actor_net.apply(params, state, looks(now, i)[t : t + 1], now.first[t : t + 1])
                    state = jax.tree.map(lambda h: h[0], after)
                    outputs.append(y[0])
                x = jnp.stack(outputs)
            if ahead:
                x, no = looks(then, i), jnp.zeros((1, B), bool)
                states = [jax.tree.map(lambda h, t=t: h[t], carry) for t in range(L)]
                x = jnp.stack([actor_net.apply(params, states[t], x[t : t + 1], no)[1][0] for t in range(L)])
            result = jnp.where((member[..., i] == k)[..., None], x, result) if K > 1 else x
        return result

    def acts(x: Any, g: Any, s: Step, i: int) -> jax.Array:
        if box:
            u = jnp.where(s.legal[..., i, :], jnp.tanh(x), 0)
        else:
            z = jnp.where(s.legal[..., i, :], x + g, -1e9)
            u = soft = jax.nn.softmax(z / c.temperature)
            if c.relaxation == "straight_through":
                u = jax.nn.one_hot(z.argmax(-1), width) + (soft - jax.lax.stop_gradient(soft))
        return jnp.where(s.alive[..., i, None], u, 0)

    def q(critic: Any, i: int, twin: int, s: Step, u: list) -> jax.Array:
        alone = spec.roles[i] in c.local_roles
        read = [j for j in range(n) if j == i or not local]
        parts = [jnp.where(s.alive[..., j, None], s.obs[..., j, :], 0) * (j == i or not alone) for j in read]
        parts = [s.state] if c.critic_input == "state" else parts
        parts += [u[j] * (j == i or not alone) for j in read] + ([one_hot(i)] if ids else [])
        return critic_net.apply(of(critic, index[i] * twins + twin), (), jnp.concatenate(parts, -1), s.first)[1][..., 0]

    def guess(i: int, j: int, g: Any) -> jax.Array:
        model = build_body(small, obs_dim, width, log_std=-1.0 if box else None)
        x = jnp.where(then.alive[..., j, None], then.obs[..., j, :], 0)
        x = model.apply(of(slow[2], i * n + j), (), x, then.first)[1][..., :width]
        if box:  # the mean is in units of half the box, and clipped to it
            return jnp.where(then.legal[..., j, :] & then.alive[..., j, None], jnp.clip(x, -1, 1), 0)
        return acts(x, g[..., i, j, :], then, j)

    g_true, g_own = noise(key_true, n, width), noise(key_actor, n, width)
    g_models = noise(key_models, n, n, width) if slow[2] and not box else None
    done, taken = [], []
    for j in range(n):
        done.append(acts(out(slow[0], j, True), g_true[..., j, :], then, j))
        if box:
            u = (action[..., j, :] - box.low) / ((box.high - box.low) / 2) - 1
            u = jnp.where(now.legal[..., j, :], u, 0)
        else:
            u = jax.nn.one_hot(action[..., j], width)
        taken.append(jnp.where(now.alive[..., j, None], u, 0))
    target = []
    for i in range(n):
        view = [done[j] if j == i or not slow[2] else guess(i, j, g_models) for j in range(n)]
        if box:
            real = [then.legal[..., j, :] & then.alive[..., j, None] for j in range(n)]
            view = [jnp.where(real[j], blur(c, view[j], g_true[..., j, :]), 0) for j in range(n)]
        least = jnp.stack([q(slow[1], i, twin, then, view) for twin in range(twins)]).min(0)
        least = jnp.where(then.alive[..., i], least, 0)
        target.append(then.reward[..., i] + c.gamma * then.discount[..., i] * least)
    warm = (jnp.arange(L) >= (c.burn_in if L > 1 else 0))[:, None]

    def mean(rows: list[tuple[Any, Any]]) -> jax.Array:
        return sum((jnp.where(w, x, 0)).sum() for x, w in rows) / jnp.maximum(sum(w.sum() for _, w in rows), 1)

    def critic_loss(critic: Any) -> jax.Array:
        error = jnp.zeros(())
        for p in range(policies):
            for twin in range(twins):
                error += mean([
                    ((target[i] - q(critic, i, twin, now, taken)) ** 2, now.alive[..., i] & warm)
                    for i in range(n) if index[i] == p
                ])  # fmt: skip
        return error

    def actor_loss(actor: Any) -> jax.Array:
        loss = jnp.zeros(())
        for p in range(policies):
            for k in range(K):
                rows = []
                for i in (i for i in range(n) if index[i] == p):
                    x, legal = out(actor, i, False), now.legal[..., i, :]
                    u = [acts(x, g_own[..., i, :], now, i) if j == i else taken[j] for j in range(n)]
                    square = jnp.where(legal, x**2, 0).sum(-1) / legal.sum(-1)
                    mine = now.alive[..., i] & warm & (member[..., i] == k if K > 1 else True)
                    rows.append((-q(critic, i, 0, now, u) + c.logit_coef * square, mine))
                loss += mean(rows)
        return loss

    actor, critic = nets
    rate = c.critic_rate
    critic, critic_memory = adam(c, critic, jax.grad(critic_loss)(critic), memory[1], t, rate)
    number = jnp.maximum(t // delay, 1)
    after, actor_memory = adam(c, actor, jax.grad(actor_loss)(actor), memory[0], number, c.learning_rate)
    # Hard targets are copies at every target_interval-th step of the actors.
    fraction = 1.0 * (number % c.target_interval == 0) if c.target_rate is None else c.target_rate
    closer = [jax.tree.map(lambda a, b: fraction * a + (1 - fraction) * b, new, old)
              for new, old in ((after, slow[0]), (critic, slow[1]))]  # fmt: skip
    made, waited = (after, (*closer, slow[2]), actor_memory), (actor, slow, memory[0])
    actor, slow, actor_memory = jax.tree.map(lambda a, b: jnp.where(t % delay == 0, a, b), made, waited)
    return (actor, critic), slow, (actor_memory, critic_memory)


def blur(c: Any, u: Any, noise: Any) -> Any:
    if not isinstance(c, matd3.Config):
        return u
    return jnp.clip(u + jnp.clip(c.target_noise * noise, -c.target_noise_clip, c.target_noise_clip), -1, 1)


def assert_like_loops(spec: EnvSpec, c: Any, length: int = 5) -> None:
    """Two updates in a row change parameters and target networks as :func:`step` does."""
    prog = made(spec, c)
    traj = make_trajectory(spec, carry=prog.algorithm.initial_carry(4), length=length)
    ends, goes_on = np.asarray(traj.outcome.last), np.asarray(traj.outcome.discount) > 0
    assert (ends[..., None] & goes_on).any() and (~goes_on).any(), "both a time limit and a termination"
    if c.ensemble > 1:
        member = np.random.default_rng(1).integers(c.ensemble, size=traj.step.alive.shape)
        traj = traj._replace(extras={"member": jnp.array(member, jnp.int32)})
    if c.stored_state:
        stored = np.random.default_rng(2).normal(size=(*traj.step.alive.shape, c.network.recurrent))
        traj = traj._replace(extras=traj.extras | {"recurrent_state0": jnp.array(stored, jnp.float32)})
    twins, delay = (2, c.policy_delay) if isinstance(c, matd3.Config) else (1, 1)
    one = compiled(partial(step, spec, c, twins, delay))
    learner, slow = prog.learner, slow_copies(prog.learner)
    nets = learner.policy.actor, learner.critic
    memory = tuple((jax.tree.map(jnp.zeros_like, net),) * 2 for net in nets)
    for t in range(1, 3):
        key = jax.random.key(t)
        learner, _ = prog.update(learner, traj, key)
        if c.policies == "inferred":  # the models' own step is test_inferred_policies.py's
            slow = (*slow[:2], learner.statistics.target)
        nets, slow, memory = one(nets, slow, memory, jnp.int32(t), traj, key)
        got = learner.policy.actor, learner.critic
        assert_trees_close((got, slow_copies(learner)), (nets, slow), 2e-4, 2e-5)
    assert distance(learner.policy.actor, prog.learner.policy.actor) > 1e-3
    assert distance(learner.critic, prog.learner.critic) > 1e-2
