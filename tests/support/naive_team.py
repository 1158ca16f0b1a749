"""One gradient step of HADDPG, HATD3, MASAC, HASAC and ISAC in NumPy: loops over agents, and derivatives by hand.

Nets have one hidden layer with ReLU, and Adam a large ε. Only random numbers are drawn with JAX, as the algorithms do.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.algorithms import haddpg, hatd3, isac, masac
from shoal.networks.sharing import policy_of
from shoal.types import Box, EnvSpec, Trajectory
from support.trajectories import Program, distance, make_trajectory, program

Net = dict[str, np.ndarray]
LOG_TWO, HALF_LOG_TAU = np.log(2.0), 0.5 * np.log(2 * np.pi)


def as_net(tree: Any, p: int) -> Net:
    (layer,) = tree["layers"].values()
    pair = {"w": layer["kernel"], "b": layer["bias"], "W": tree["head"]["kernel"], "B": tree["head"]["bias"]}
    return {name: np.array(x[p], np.float64) for name, x in pair.items()}


def forward(net: Net, x: np.ndarray) -> tuple[np.ndarray, Any]:
    pre = x @ net["w"] + net["b"]
    return np.maximum(pre, 0) @ net["W"] + net["B"], (x, pre)


def backward(net: Net, cache: Any, dy: np.ndarray) -> tuple[Net, np.ndarray]:
    """(derivative of the parameters, of the input) from that of the output."""
    x, pre = cache
    dpre = dy @ net["W"].T * (pre > 0)
    return {"w": x.T @ dpre, "b": dpre.sum(0), "W": np.maximum(pre, 0).T @ dy, "B": dy.sum(0)}, dpre @ net["w"].T


class Adam:
    """Of one net; its gradient is clipped by its norm."""

    def __init__(self, c: Any, rate: float, like: Net) -> None:
        self.c, self.rate, self.t = c, rate, 0
        self.m, self.v = ({name: np.zeros_like(x) for name, x in like.items()} for _ in range(2))

    def move(self, net: Net, gradient: Net) -> None:
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        shrink = 1.0 if self.c.max_grad_norm is None else min(1.0, self.c.max_grad_norm / norm)
        self.t += 1
        for name, g in gradient.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * g * shrink
            self.v[name] = 0.999 * self.v[name] + 0.001 * (g * shrink) ** 2
            m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            net[name] -= self.rate * m / (np.sqrt(v) + self.c.adam_eps)


class Draw(NamedTuple):
    """An agent's action in every row, with what its derivative needs."""

    u: np.ndarray
    log_p: np.ndarray
    y: np.ndarray
    cache: Any


class Team:
    """Nets, target nets, temperatures and their optimisers; ``step`` trains them."""

    def __init__(self, spec: EnvSpec, c: Any, learner: Any) -> None:
        self.spec, self.c, self.index = spec, c, policy_of(spec, c.sharing)
        self.box, self.width = spec.action if isinstance(spec.action, Box) else None, spec.action.width
        self.soft = not isinstance(c, haddpg.Config)
        policies, critics = range(max(self.index) + 1), range(len(jax.tree.leaves(learner.critic)[0]))
        self.actors = [as_net(learner.policy.actor, p) for p in policies]
        self.critics = [as_net(learner.critic, k) for k in critics]
        target = learner.statistics.target
        self.slow_critics = [as_net(target if self.soft else target.critic, k) for k in critics]
        self.slow_actors = [] if self.soft else [as_net(target.actor, p) for p in policies]
        self.actor_adams = [Adam(c, c.learning_rate, net) for net in self.actors]
        self.critic_adams = [Adam(c, c.critic_rate, net) for net in self.critics]
        if self.soft:
            self.log_alpha = np.full(len(learner.statistics.coefficients.log_alpha), np.log(c.alpha))
            one = {"x": np.zeros(())}
            self.alpha_adams = [Adam(c, c.alpha_learning_rate, one) for _ in self.log_alpha]
        self.t = 0

    # WHAT NETS READ AND DO

    def looks(self, now: Any, i: int, ids: bool = True) -> np.ndarray:
        x = np.where(now.alive[:, i, None], now.obs[:, i], 0)
        return np.concatenate([x, self.id_of(i, len(x))], -1) if ids else x

    def id_of(self, i: int, rows: int) -> np.ndarray:
        n = self.spec.num_agents
        shared = self.c.agent_id and max(self.index) + 1 < n
        return np.tile(np.eye(n)[i], (rows, 1)) if shared else np.zeros((rows, 0))

    def draw(self, net: Net, now: Any, i: int, noise: np.ndarray) -> Draw:
        y, cache = forward(net, self.looks(now, i))
        legal, alive, z, width = now.legal[:, i], now.alive[:, i], noise[:, i], self.width
        if self.soft and self.box:
            log_std = np.clip(y[:, width:], -20, 2)
            x = y[:, :width] + np.exp(log_std) * z
            u = np.tanh(x)
            log_p = -0.5 * z**2 - log_std - HALF_LOG_TAU - 2 * (LOG_TWO - x - np.logaddexp(0, -2 * x))
            log_p = np.where(legal, log_p, 0).sum(-1)
        elif self.box:
            u, log_p = np.tanh(y), np.zeros(len(y))
        else:
            u = np.eye(width)[np.where(legal, y + z, -np.inf).argmax(-1)]
            log_p = (u * np.where(legal, log_softmax(y, legal), 0)).sum(-1)
        u = np.where(legal & alive[:, None], u, 0)
        return Draw(u, np.where(alive, log_p, 0), y, cache)

    def noise(self, key: Any, rows: int) -> np.ndarray:
        kind, shape = jax.random.normal if self.box else jax.random.gumbel, (1, self.spec.num_agents, self.width)
        each = jax.vmap(lambda b: kind(jax.random.fold_in(key, b), shape))(np.arange(rows))
        return np.asarray(each)[:, 0].astype(np.float64)

    def taken(self, now: Any, action: Any) -> list[np.ndarray]:
        found = []
        for i in range(self.spec.num_agents):
            if self.box:
                u = (action[:, i] - self.box.low) / ((self.box.high - self.box.low) / 2) - 1
            else:
                u = np.eye(self.width)[action[:, i]]
            found.append(np.where(now.alive[:, i, None] & (now.legal[:, i] if self.box else True), u, 0))
        return found

    def reads(self, now: Any, joint: list[np.ndarray]) -> np.ndarray:
        n = self.spec.num_agents
        seen = [np.where(now.alive[:, i, None], now.obs[:, i], 0) for i in range(n)]
        return np.concatenate([*([now.state] if self.c.critic_input == "state" else seen), *joint], -1)

    # ONE GRADIENT STEP

    def step(self, traj: Trajectory, key: Any) -> None:
        c, n = self.c, self.spec.num_agents
        traj = jax.tree.map(np.asarray, traj)
        if c.n_step == 1:  # every timestep is a window, environment by environment
            traj = traj._replace(carry=(), extras={})
            traj = jax.tree.map(lambda x: np.swapaxes(x, 0, 1).reshape(1, -1, *x.shape[2:]), traj)
        L, rows = traj.outcome.last.shape
        keys = jax.random.split(jax.random.split(key, 1)[0], 3)
        now = jax.tree.map(lambda x: x[0], traj.step)
        taken = self.taken(now, traj.action[0])

        # y, one row at a time
        after = []
        for b in range(rows):
            k = next((k for k in range(L) if traj.outcome.last[k, b]), L - 1)
            after.append((k, jax.tree.map(lambda x, k=k, b=b: x[k, b], traj.outcome)))
        out = jax.tree.map(lambda *x: np.stack(x), *(one for _, one in after))
        blur, entropy, joint = self.noise(keys[0], rows), np.zeros(rows), []
        for i in range(n):
            acting = (self.actors if self.soft else self.slow_actors)[self.index[i]]
            draw = self.draw(acting, out, i, blur)
            u, entropy = draw.u, entropy - draw.log_p
            if isinstance(c, hatd3.Config) and self.box:
                moved = u + np.clip(c.target_noise * blur[:, i], -c.target_noise_clip, c.target_noise_clip)
                u = np.where(out.legal[:, i] & out.alive[:, i, None], np.clip(moved, -1, 1), 0)
            joint.append(u)
        value = np.min([forward(net, self.reads(out, joint))[0][:, 0] for net in self.slow_critics], 0)
        value += np.exp(self.log_alpha[n]) * entropy if self.soft else 0
        target = np.zeros(rows)
        for b, (k, one) in enumerate(after):
            total = value[b] * one.alive.any()
            for t in range(k, -1, -1):
                there = traj.step.alive[t, b] | traj.outcome.alive[t, b]
                there = there if there.any() else ~there
                total = traj.outcome.reward[t, b].mean() + c.gamma * traj.outcome.discount[t, b][there].max() * total
            target[b] = total

        # CRITICS
        weight = now.alive.any(-1) / max(now.alive.any(-1).sum(), 1)
        for net, adam in zip(self.critics, self.critic_adams, strict=True):
            q, cache = forward(net, self.reads(now, taken))
            adam.move(net, backward(net, cache, (2 * (q[:, 0] - target) * weight)[:, None])[0])
        self.t += 1
        if self.t % getattr(c, "policy_delay", 1):
            return

        # ACTORS
        g = self.noise(keys[1], rows)
        draws = [self.draw(self.actors[self.index[i]], now, i, g) for i in range(n)]
        joint, log_p = [draw.u for draw in draws], [draw.log_p for draw in draws]
        order = np.asarray(jax.random.permutation(keys[2], n)) if c.order == "random" else range(n)
        for i in order:
            net, alive = self.actors[self.index[i]], now.alive[:, i]
            draw = self.draw(net, now, i, g)
            dy = self.slope(draw, now, [*joint[:i], draw.u, *joint[i + 1 :]], i, g[:, i])
            weight = alive / max(alive.sum(), 1)
            self.actor_adams[self.index[i]].move(net, backward(net, draw.cache, dy * weight[:, None])[0])
            if not isinstance(c, masac.Config):
                joint[i] = self.draw(net, now, i, g).u

        # TEMPERATURES
        if getattr(c, "adapt_alpha", False):
            gap = [log_p[i] + now.alive[:, i] * self.wanted(now.legal[:, i]) for i in range(n)]
            self.move_temperatures([*gap, sum(gap)], [*now.alive.T, now.alive.any(-1)])
        self.move_targets()

    def move_temperatures(self, gaps: list[Any], rows: list[np.ndarray]) -> None:
        for k, (x, who) in enumerate(zip(gaps, rows, strict=True)):
            held = {"x": np.array(self.log_alpha[k])}
            self.alpha_adams[k].move(held, {"x": -np.array((x * who).sum() / max(who.sum(), 1))})
            self.log_alpha[k] = held["x"]

    def move_targets(self) -> None:
        pairs = [(self.slow_critics, self.critics)] + ([] if self.soft else [(self.slow_actors, self.actors)])
        for slow, trained in pairs:
            for old, new in zip(slow, trained, strict=True):
                for name in old:
                    old[name] += self.c.target_rate * (new[name] - old[name])

    def wanted(self, legal: Any) -> np.ndarray:
        """Target entropy."""
        if self.box:
            return -legal.sum(-1).astype(float)
        return self.c.entropy_share * np.log(legal.sum(-1))

    def slope(self, draw: Draw, now: Any, joint: list[np.ndarray], i: int, z: np.ndarray) -> np.ndarray:
        """The derivative of an agent's cost in each row, −Q or α log π − min Q, by its net's output."""
        x = self.reads(now, joint)
        start = x.shape[-1] - self.width * (len(joint) - i)
        du = self.slope_of_least(self.critics if self.soft else self.critics[:1], x, start)
        return self.through(draw, du, np.exp(self.log_alpha[i]) if self.soft else 0.0, now.legal[:, i], z)

    def slope_of_least(self, critics: list[Net], x: np.ndarray, start: int) -> np.ndarray:
        """The derivative of −min Q by an agent's action, which critics read from ``start`` on."""
        found = [forward(net, x) for net in critics]
        least = np.argmin([q[:, 0] for q, _ in found], 0)
        du = np.zeros((len(x), self.width))
        for k, (_, cache) in enumerate(found):
            dx = backward(critics[k], cache, -np.ones((len(x), 1)))[1]
            du += (least == k)[:, None] * dx[:, start : start + du.shape[1]]
        return du

    def through(self, draw: Draw, du: np.ndarray, alpha: float, legal: Any, z: np.ndarray) -> np.ndarray:
        """The derivative by the net's output, from that of −Q by the action."""
        width = self.width
        y, size = draw.y[:, :width], legal.sum(-1, keepdims=True)
        if self.box and self.soft:
            log_std = np.clip(draw.y[:, width:], -20, 2)
            u = np.tanh(y + np.exp(log_std) * z)
            dx = du * (1 - u**2) + alpha * 2 * u
            inside = np.abs(draw.y[:, width:] + 9) < 11
            dy = np.concatenate([dx, inside * (dx * np.exp(log_std) * z - alpha)], -1)
            return np.where(np.concatenate([legal, legal], -1), dy, 0)
        if self.box:
            return np.where(legal, du * (1 - np.tanh(y) ** 2), 0)
        log_p, soft = np.where(legal, log_softmax(y, legal), 0), np.where(legal, np.exp(log_softmax(y + z, legal)), 0)
        du = du + alpha * log_p
        dy = soft * (du - (soft * du).sum(-1, keepdims=True))
        if self.soft:
            return dy + alpha * np.where(legal, draw.u - np.exp(log_p), 0)
        return dy + self.c.logit_coef * np.where(legal, 2 * y / size, 0)


class Soloists(Team):
    """ISAC: the critics 2p and 2p + 1 belong to the agents of policy p, and read one agent."""

    def step(self, traj: Trajectory, key: Any) -> None:
        c, n = self.c, self.spec.num_agents
        traj = jax.tree.map(np.asarray, traj._replace(carry=(), extras={}))
        traj = jax.tree.map(lambda x: np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), traj)
        now, out, rows = traj.step, traj.outcome, len(traj.step.first)
        key_target, key_actor = jax.random.split(jax.random.split(key, 1)[0])
        alpha, taken = np.exp(self.log_alpha), self.taken(now, traj.action)

        # y
        blur, values = self.noise(key_target, rows), []
        for i in range(n):
            p, draw = self.index[i], self.draw(self.actors[self.index[i]], out, i, blur)
            x = np.concatenate([self.looks(out, i, ids=False), draw.u, self.id_of(i, rows)], -1)
            least = np.min([forward(net, x)[0][:, 0] for net in self.slow_critics[2 * p : 2 * p + 2]], 0)
            values.append(least - alpha[i] * draw.log_p)
        target = np.zeros((rows, n))
        for b in range(rows):
            for i in range(n):
                others = [j for j in range(n) if out.alive[b, j] and self.spec.shared_reward]
                value = np.mean([values[j][b] for j in others]) if others else 0.0
                value = values[i][b] if out.alive[b, i] else value
                target[b, i] = out.reward[b, i] + c.gamma * out.discount[b, i] * value

        # CRITICS
        together = [[i for i in range(n) if self.index[i] == p] for p in range(len(self.actors))]
        for k, (net, adam) in enumerate(zip(self.critics, self.critic_adams, strict=True)):
            gradients, count = [], sum(now.alive[:, i].sum() for i in together[k // 2])
            for i in together[k // 2]:
                x = np.concatenate([self.looks(now, i, ids=False), taken[i], self.id_of(i, rows)], -1)
                q, cache = forward(net, x)
                dy = 2 * (q[:, 0] - target[:, i]) * now.alive[:, i] / count
                gradients.append(backward(net, cache, dy[:, None])[0])
            adam.move(net, {name: np.sum([g[name] for g in gradients], 0) for name in net})

        # ACTORS
        z = self.noise(key_actor, rows)
        draws = [self.draw(self.actors[self.index[i]], now, i, z) for i in range(n)]
        for p, (net, adam) in enumerate(zip(self.actors, self.actor_adams, strict=True)):
            gradients, count = [], sum(now.alive[:, i].sum() for i in together[p])
            for i in together[p]:
                seen = self.looks(now, i, ids=False)
                x = np.concatenate([seen, draws[i].u, self.id_of(i, rows)], -1)
                du = self.slope_of_least(self.critics[2 * p : 2 * p + 2], x, seen.shape[1])
                dy = self.through(draws[i], du, alpha[i], now.legal[:, i], z[:, i]) * now.alive[:, i, None] / count
                gradients.append(backward(net, draws[i].cache, dy)[0])
            adam.move(net, {name: np.sum([g[name] for g in gradients], 0) for name in net})

        if c.adapt_alpha:
            gap = [draws[i].log_p + now.alive[:, i] * self.wanted(now.legal[:, i]) for i in range(n)]
            self.move_temperatures(gap, list(now.alive.T))
        self.move_targets()


def log_softmax(y: np.ndarray, legal: np.ndarray) -> np.ndarray:
    y = np.where(legal, y, -np.inf)
    y = y - y.max(-1, keepdims=True)
    return y - np.log(np.exp(y).sum(-1, keepdims=True))


def made(spec: EnvSpec, c: Any) -> Program:
    """The compiled algorithm, whose target networks are noise too."""
    prog = program(spec, c)
    rng = np.random.default_rng(1)

    def other(x: jax.Array) -> jax.Array:
        return x + np.float32(0.3) * rng.normal(size=x.shape).astype(np.float32)

    statistics = prog.learner.statistics
    statistics = statistics._replace(target=jax.tree.map(other, statistics.target))
    return prog._replace(learner=prog.learner._replace(statistics=statistics))


def assert_like_loops(spec: EnvSpec, c: Any) -> None:
    """Two updates in a row change parameters, target networks and temperatures as :class:`Team` does."""
    prog = made(spec, c)
    kind = Soloists if isinstance(c, isac.Config) else Team
    traj, learner, team = make_trajectory(spec, envs=8), prog.learner, kind(spec, c, prog.learner)
    ends, goes_on = np.asarray(traj.outcome.last), np.asarray(traj.outcome.discount) > 0
    assert (ends[..., None] & goes_on).any() and (~goes_on).any(), "both a time limit and a termination"
    for t in range(2):
        key = jax.random.key(t)
        learner, _ = prog.update(learner, traj, key)
        team.step(traj, key)
        target = learner.statistics.target
        pairs = [(learner.policy.actor, team.actors), (learner.critic, team.critics)]
        pairs += [(target if team.soft else target.critic, team.slow_critics)]
        pairs += [] if team.soft else [(target.actor, team.slow_actors)]
        for tree, nets in pairs:
            for p, net in enumerate(nets):
                for name, x in as_net(tree, p).items():
                    np.testing.assert_allclose(x, net[name], rtol=2e-4, atol=2e-5, err_msg=f"{t} {p} {name}")
        if team.soft:
            np.testing.assert_allclose(learner.statistics.coefficients.log_alpha, team.log_alpha, rtol=2e-4, atol=2e-6)
    assert distance(learner.policy.actor, prog.learner.policy.actor) > 1e-3
    assert distance(learner.critic, prog.learner.critic) > 1e-2
