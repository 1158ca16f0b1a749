"""QTRAN's losses against loops over joint actions, what each of them trains, and Theorem 1 on random tables."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import qtran
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Discrete, Scale, Step
from support.joint_values import joint_actions
from support.naive_q import at, dense, greedy, one_hot, team, utilities
from support.trajectories import ACTIONS, E, T, assert_trees_equal, distance, make_spec, make_trajectory, program
from toys import spec_of, step_of

KEY = jax.random.key(1)
SPEC = make_spec()
CONFIG = qtran.Config(
    network=Body((6,), activation="relu", orthogonal=False),
    mixing_width=5,
    opt_coef=0.7,
    nopt_coef=1.3,
    adam_eps=0.5,
    learning_rate=0.5,
    max_grad_norm=None,
)


def q_jt(phi: Any, action: np.ndarray, step: Step, where: tuple[int, ...]) -> float:
    u = one_hot(action, np.asarray(step.alive)[where], ACTIONS)
    return dense(phi["joint"], np.concatenate([np.asarray(step.state, np.float64)[where], u]))[0]


@pytest.mark.parametrize("variant", ["base", "alt"])
def test_losses_are_those_of_a_loop(variant: Any) -> None:
    config = replace(CONFIG, variant=variant)
    prog, traj = program(SPEC, config), make_trajectory(SPEC, carry=())
    _, metrics = prog.update(prog.learner, traj, KEY)
    phi, actor, (_, frozen) = prog.learner.critic, prog.learner.policy.actor, prog.learner.statistics.target
    q, after = utilities(SPEC, config, actor, traj)
    best, best_after = greedy(q, traj.step), greedy(after, traj.outcome)
    action, (reward, discount) = np.asarray(traj.action), team(traj)
    rows = []
    for t, e in np.ndindex(T, E):
        alive, legal = np.asarray(traj.step.alive)[t, e], np.asarray(traj.step.legal)[t, e]
        if not alive.any():
            continue
        v = dense(phi["state"], np.asarray(traj.step.state, np.float64)[t, e])[0]

        def d(u: np.ndarray, t: int = t, e: int = e, v: float = v, alive: np.ndarray = alive) -> float:
            return at(q[t, e], u, alive).sum() - q_jt(phi, u, traj.step, (t, e)) + v

        def least(i: Any, t: int = t, e: int = e, d: Any = d, legal: np.ndarray = legal) -> float:
            return min(d(np.where(np.arange(3) == i, a, action[t, e])) for a in np.flatnonzero(legal[i]))

        nopt = min(d(action[t, e]), 0) ** 2
        if variant == "alt":
            nopt = np.mean([least(i) ** 2 for i in np.flatnonzero(alive)])
        y = reward[t, e] + config.gamma * discount[t, e] * q_jt(frozen, best_after[t, e], traj.outcome, (t, e))
        value = q_jt(phi, action[t, e], traj.step, (t, e))
        rows.append([(y - value) ** 2 / 2, d(best[t, e]) ** 2 / 2, nopt / 2, v, value])
    for name, expected in zip(("td_loss", "opt_loss", "nopt_loss", "v", "q"), np.mean(rows, 0), strict=True):
        np.testing.assert_allclose(metrics[name], expected, rtol=2e-4, err_msg=name)
        assert abs(expected) > 1e-3


def test_rewards_teach_the_joint_value_and_constraints_the_utilities() -> None:
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC, carry=())
    free = program(SPEC, replace(CONFIG, opt_coef=0.0, nopt_coef=0.0))
    tied, alone = (p.update(prog.learner, traj, KEY)[0] for p in (prog, free))
    assert_trees_equal(tied.critic["joint"], alone.critic["joint"])  # ⊥: constraints do not reach it
    assert distance(alone.critic["joint"], prog.learner.critic["joint"]) > 1e-3
    assert_trees_equal(
        (alone.policy.actor, alone.critic["state"]), (prog.learner.policy.actor, prog.learner.critic["state"])
    )
    assert (
        min(distance(tied.policy.actor, alone.policy.actor), distance(tied.critic["state"], alone.critic["state"]))
        > 1e-3
    )


@pytest.mark.parametrize("variant", ["base", "alt"])
def test_constraints_hold_only_where_greedy_actions_are_jointly_optimal(variant: Any) -> None:
    """Theorem 1 (Son et al. 2019): D(ū) = 0 ≤ D(u) everywhere makes ū maximise Q_jt; a wrong ū costs its gap."""
    spec = spec_of("toys/pair", (1, 1), Discrete(3), 1, state_dim=1)
    mixer = qtran.make_mixer(spec, qtran.Config(variant=variant, mixing_width=8))
    constraints = mixer.constraints
    assert constraints is not None
    joint, step = jnp.array(joint_actions(spec)), step_of(spec, jnp.ones(1), 0.0, False, False, state=jnp.ones(1))
    step = jax.tree.map(lambda x: jnp.broadcast_to(x, (1, len(joint), *x.shape)), step)

    def losses(phi: Any, q: jax.Array) -> Any:
        """With the V_jt that makes D(ū) = 0."""
        table = mixer.apply(phi, jnp.zeros(1), jnp.zeros(1), joint[None], step)[0]
        chosen = jnp.stack([q[i, joint[:, i]] for i in range(2)]).sum(0)
        head = phi["state"]["head"]
        fixed = {"kernel": jnp.zeros_like(head["kernel"]), "bias": (table - chosen)[chosen.argmax()].reshape(1, 1)}
        phi = {**phi, "state": {**phi["state"], "head": fixed}}
        rows = constraints(phi, jnp.broadcast_to(q, (1, len(joint), *q.shape)), joint[None], step)[1]
        gap = table.max() - table[chosen.argmax()]
        return rows["opt_loss"].max(), rows["nopt_loss"].max(), gap, (chosen - chosen.max() - table + table.max()).min()

    keys = jax.random.split(jax.random.key(0), 200)
    phi = jax.vmap(mixer.init)(keys)
    q = jnp.logspace(-3, 1, 200)[:, None, None] * jax.random.normal(jax.random.key(1), (200, 2, 3))
    opt, nopt, gap, slack = map(np.asarray, jax.jit(jax.vmap(losses))(phi, q))
    np.testing.assert_allclose(opt, 0, atol=1e-9)
    wrong = gap > 1e-3
    assert 0.5 < wrong.mean() < 0.95
    assert (nopt[wrong] >= gap[wrong] ** 2 / 2 * 0.999).all()
    if variant == "base":
        held = ~wrong & (slack > -1e-6)
        assert held.sum() > 5
        np.testing.assert_allclose(nopt[held], 0, atol=1e-9)


@pytest.mark.parametrize(
    ("spec", "flags", "words"),
    [
        (make_spec(action=Box(2)), {}, "continuous ones"),
        (make_spec(state_dim=0), {}, "no global state"),
        (SPEC, {"variant": "bass"}, "did you mean 'base'"),
        (SPEC, {"mixing": "mxi"}, "did you mean 'mix'"),
        (SPEC, {"mixing_width": 0}, "mixing_width must be at least 1"),
        (SPEC, {"nopt_coef": -1.0}, "nopt_coef must be at least 0"),
    ],
)
def test_invalid_input_is_refused(spec: Any, flags: dict[str, Any], words: str, as_users_run: None) -> None:
    with pytest.raises(InputError, match=words):
        qtran.make(spec, replace(CONFIG, **flags), Scale(E, T, 1))
