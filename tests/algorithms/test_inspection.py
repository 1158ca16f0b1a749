"""What algorithms tell of their policies is what these act by."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.equations.normalise import Running
from shoal.options.flags import override
from shoal.sides.opponents import FrozenPolicies, against
from shoal.sides.reward_normalisation import normalise_rewards, return_deviation
from shoal.sides.sides import narrowed
from shoal.types import EnvSpec, Learner, Scale, Trajectory
from support.algorithm_kinds import SPECS, WITHOUT_BOX, config_of
from support.selection import quick
from support.trajectories import E, N, T, compiled, make_spec, make_trajectory, program

CASES = [(name, kind) for name in algorithms.NAMES for kind in SPECS if kind == "discrete" or name not in WITHOUT_BOX]
QUICK = [("mappo", "discrete"), ("mappo", "box"), ("mat", "discrete"), ("qmix", "discrete"), ("maddpg", "discrete")]
every_case = pytest.mark.parametrize(("name", "kind"), quick(CASES, *QUICK, ("coma", "discrete")))


def told(
    algorithm: Any, learner: Learner, traj: Trajectory, greedy: bool = False
) -> tuple[Trajectory, dict[str, np.ndarray]]:
    """The trajectory as ``act`` plays it (``acted``), and ``inspect`` at each of its steps, [T, E, N ...]."""

    def turn(carry: Any, moment: Any) -> Any:
        step, key = moment
        after, action, extras = algorithm.act(learner, carry, step, key, greedy)
        return after, (action, extras, algorithm.inspect(learner, carry, step, action, extras))

    keys = jax.random.split(jax.random.key(0), T)
    action, extras, found = compiled(lambda carry: jax.lax.scan(turn, carry, (traj.step, keys))[1])(traj.carry)
    return traj._replace(action=action, extras=extras), jax.device_get(found)


@cache
def played(name: str, kind: str, greedy: bool = False) -> tuple[Any, Trajectory, dict[str, np.ndarray]]:
    prog = program(SPECS[kind], config_of(name))
    traj = make_trajectory(SPECS[kind], carry=prog.algorithm.initial_carry(E))
    return prog, *told(prog.algorithm, prog.learner, traj, greedy)


@every_case
def test_inspection_has_the_documented_shapes(name: str, kind: str) -> None:
    prog, traj, found = played(name, kind)
    width = SPECS[kind].action.width
    shapes = {"value": (), "attention": (N,)}
    normal = {"normal_mean", "normal_std"} if name in ("hasac", "isac", "masac") and "mean" in found else set()
    assert normal <= found.keys() <= normal | {"probabilities", "mean", "std", "utilities", "value", "attention"}
    assert {"probabilities", "mean", "utilities"} & found.keys() and "value" in found
    assert ("attention" in found) == (name in ("commnet", "mat", "tarmac"))
    for about, x in found.items():
        assert x.shape == (T, E, N, *shapes.get(about, (width,))), about
    assert np.isfinite(found["value"]).all()
    bare = prog.learner._replace(critic=(), optimiser=(), statistics=())
    step, action, extras = jax.tree.map(lambda x: x[0], (traj.step, traj.action, traj.extras))
    deployed = jax.eval_shape(lambda carry: prog.algorithm.inspect(bare, carry, step, action, extras), traj.carry)
    assert deployed.keys() == found.keys() - {"value"}


@pytest.mark.parametrize("name", ["qmix", "pqn_vdn"])
def test_probabilities_of_exploring_utilities_are_the_frequencies_of_actions(name: str) -> None:
    prog = program(SPECS["discrete"], config_of(name, explore_in_evaluation=True))
    traj = make_trajectory(SPECS["discrete"], carry=prog.algorithm.initial_carry(E))
    step = jax.tree.map(lambda x: x[0], traj.step)
    learner = prog.learner._replace(policy=prog.learner.policy._replace(epsilon=jnp.float32(0.4)))
    keys = jax.random.split(jax.random.key(1), 4000)
    actions = jax.vmap(lambda key: prog.algorithm.act(learner, traj.carry, step, key, False)[1])(keys)
    found = prog.algorithm.inspect(learner, traj.carry, step, actions[0], {})["probabilities"]
    seen = jax.nn.one_hot(actions, found.shape[-1]).mean(0)
    np.testing.assert_allclose(found, seen, atol=0.035)  # 4.5 standard errors
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)


@every_case
def test_inspected_probabilities_are_zero_for_illegal_actions_and_largest_for_the_greedy_one(
    name: str, kind: str
) -> None:
    for greedy in (False, True):
        _, traj, found = played(name, kind, greedy)
        legal, action, alive = (np.asarray(x) for x in (traj.step.legal, traj.action, traj.step.alive))
        if kind == "box":
            np.testing.assert_array_equal(np.isnan(found["mean"]), ~legal)
            assert (found["std"][legal] > 0).all()
            if greedy:
                np.testing.assert_allclose(np.nan_to_num(found["mean"])[alive], action[alive], rtol=1e-5, atol=1e-6)
        elif "utilities" in found:
            np.testing.assert_array_equal(np.isnan(found["utilities"]), ~legal)
            if greedy:
                np.testing.assert_array_equal(np.nanargmax(found["utilities"], -1), action)
        else:
            p = found["probabilities"]
            np.testing.assert_allclose(p.sum(-1), 1.0, rtol=1e-5)
            assert (p[~legal] == 0).all() and (p >= 0).all()
            if greedy:
                np.testing.assert_array_equal(p.argmax(-1)[alive], action[alive])  # MAT's dead decode last


@every_case
def test_sampled_actions_follow_the_inspected_probabilities(name: str, kind: str) -> None:
    _, traj, found = played(name, kind)
    if "log_prob" not in traj.extras:
        assert name not in ("mappo", "mat", "mapg")
        return
    if name == "magpo":  # a guider draws them, and inspection tells of the policies that are deployed
        return
    if kind == "box":
        z = (traj.action - found["mean"]) / found["std"]
        log_p = np.nansum(-0.5 * z**2 - np.log(found["std"]) - 0.5 * np.log(2 * np.pi), -1)
    else:
        log_p = np.log(np.take_along_axis(found["probabilities"], np.asarray(traj.action)[..., None], -1)[..., 0])
    alive = np.asarray(traj.step.alive)
    np.testing.assert_allclose(np.asarray(traj.extras["log_prob"])[alive], log_p[alive], rtol=1e-4, atol=1e-4)


def dense(params: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(params["kernel"][0]) + np.asarray(params["bias"][0])


def test_mappos_inspected_value_is_the_critics_in_units_of_reward() -> None:
    """By the layers written out: the mean of the targets seen plus their deviation times the net's output."""
    spec = make_spec(shared_reward=True)
    prog = program(spec, config_of("mappo", critic_input="state", layer_norm=False, input_layer_norm=False))
    seen = Running(jnp.array([4.2]), jnp.array([50.0]), jnp.array([0.7]))  # mean, mean square, weight
    learner = prog.learner._replace(statistics=prog.learner.statistics._replace(value=seen))
    traj, found = told(prog.algorithm, learner, make_trajectory(spec, carry=prog.algorithm.initial_carry(E)))
    critic = jax.device_get(learner.critic)
    x = np.asarray(traj.step.state)
    for layer in critic["layers"].values():
        x = np.tanh(dense(layer, x))
    output = dense(critic["head"], x)
    expected = 4.2 + np.sqrt(50.0 - 4.2**2) * output
    np.testing.assert_allclose(found["value"], np.broadcast_to(expected, (T, E, N)), rtol=1e-4, atol=1e-4)


def test_inspected_values_of_normalised_rewards_are_in_units_of_reward() -> None:
    spec = SPECS["discrete"]
    prog, traj, found = played("mappo", "discrete")
    wrapped = normalise_rewards(prog.algorithm, spec, 0.9, 10.0)
    returns = Running(jnp.float32(1.0), jnp.float32(10.0), jnp.float32(1.0))
    kept = jax.jit(wrapped.init)(jax.random.key(0)).statistics._replace(
        statistics=prog.learner.statistics, returns=returns
    )
    carry = wrapped.initial_carry(E)._replace(carry=traj.carry)
    again = traj._replace(carry=carry)
    learner = prog.learner._replace(statistics=kept)
    _, scaled = told(wrapped, learner, again)
    np.testing.assert_allclose(scaled["value"], 3.0 * found["value"], rtol=1e-4)
    assert abs(float(return_deviation(returns)) - 3.0) < 1e-5
    np.testing.assert_array_equal(scaled["probabilities"], found["probabilities"])


def test_each_side_is_inspected_for_its_own_agents() -> None:
    spec: EnvSpec = make_spec(4, roles=(0, 1, 0, 1), action_dims=(4, 3, 4, 3))
    module = algorithms.get("mappo+iql")
    config = override(module.Config(), {"hidden": (6,), "epochs": 1, "minibatches": 1})
    both = module.make(spec, config, Scale(E, T, 10))
    learner, carry = jax.jit(both.init)(jax.random.key(0)), both.initial_carry(E)
    own = jnp.arange(4) < jnp.array(spec.action_dims)[:, None]
    step = jax.tree.map(lambda x: x[0], make_trajectory(spec).step)
    step = step._replace(legal=step.legal & own)
    _, action, extras = jax.jit(both.act, static_argnums=4)(learner, carry, step, jax.random.key(1), False)
    found = jax.jit(both.inspect)(learner, carry, step, action, extras)
    p, q = (np.asarray(found[name]) for name in ("probabilities", "utilities"))
    np.testing.assert_allclose(p[:, [0, 2]].sum(-1), 1.0, rtol=1e-5)
    assert np.isnan(p[:, [1, 3]]).all() and np.isnan(q[:, [0, 2]]).all()
    np.testing.assert_array_equal(np.isfinite(q[:, [1, 3]]), np.asarray(step.legal)[:, [1, 3]])
    chosen = np.take_along_axis(p[:, [0, 2]], np.asarray(action)[:, [0, 2], None], -1)[..., 0]
    np.testing.assert_allclose(np.log(chosen), extras["side1/log_prob"], rtol=1e-4)
    assert np.isfinite(found["value"]).all()


def test_frozen_policies_are_inspected_too() -> None:
    """Each in its own environments; what the learning side tells is not theirs."""
    spec: EnvSpec = make_spec(4, roles=(0, 1, 0, 1), action_dims=(4, 3, 4, 3))
    who, others = (1, 3), np.array([0, 2])
    made = {
        name: algorithms.get(name).make_policy(of, override(algorithms.get(name).Config(), {"hidden": (6,)}))
        for name, of in (("iql", narrowed(spec, who)), ("mappo", spec))
    }
    two = jax.vmap(made["mappo"].init)(jax.random.split(jax.random.key(1), 2)).policy
    opposed = against(made["iql"], spec, who, FrozenPolicies(made["mappo"], two))
    assert opposed.inspect is not None and made["mappo"].inspect is not None
    learner, carry = opposed.init(jax.random.key(0)), opposed.initial_carry(E)
    step = jax.tree.map(lambda x: x[0], make_trajectory(spec).step)
    _, action, extras = jax.jit(opposed.act, static_argnums=4)(learner, carry, step, jax.random.key(1), False)
    found = jax.jit(opposed.inspect)(learner, carry, step, action, extras)
    for env in range(E):
        frozen = learner._replace(policy=jax.tree.map(lambda x, env=env: x[env % 2], two))
        alone = made["mappo"].inspect(frozen, carry.frozen_policies, step, action, {})["probabilities"]
        np.testing.assert_allclose(found["probabilities"][env, others], alone[env, others], rtol=1e-5)
    q = np.asarray(found["utilities"])
    assert np.isnan(q[:, others]).all() and np.isfinite(q[:, who]).any()
    assert np.isnan(found["probabilities"][:, who]).all()


def test_attention_sums_to_one_over_the_living() -> None:
    _, traj, found = played("mat", "discrete")
    alive = np.asarray(traj.step.alive)
    np.testing.assert_allclose(found["attention"].sum(-1), 1.0, rtol=1e-5)
    some = alive.any(-1)
    assert (np.where(alive[..., None, :], 0.0, found["attention"])[some] < 1e-6).all()
