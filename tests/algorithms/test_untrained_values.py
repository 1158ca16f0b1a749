"""No target reads a value that no gradient step fits: that of a dead agent's input, or of a team with no agent alive.

In the data agents die while their team plays on, and in one environment all of them; every reward is 0. The critics
(for Q-learning the utilities and mixers) are set to give 0 for each input that is trained, and about 1000 for each that
is not. The losses are then 0, unless a target reads what it must not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.options.flags import override
from shoal.types import EnvSpec, Learner, Trajectory
from support.trajectories import E, N, Program, T, make_spec, make_trajectory, program

KEY = jax.random.key(0)
HIGH = 1000.0
SMALL = {
    "hidden": (4,), "layer_norm": False, "input_layer_norm": False, "orthogonal": False, "mixing_width": 4,
    "hyper_width": 4, "epochs": 1, "minibatches": 1, "chunk_length": T, "sequence_length": T, "policy_delay": 1,
    "value_norm": "none", "value_clip": None, "huber": None, "entropy_coef": 0.01, "learning_rate": 0.1,
    "lam": 0.8, "max_grad_norm": None, "value_coef": 1.0, "sharing": "shared", "agent_id": True,
}  # fmt: skip
LOSSES = {"value_loss", "q_loss", "td_loss", "critic_loss"}


@dataclass(frozen=True)
class Case:
    """An algorithm whose values read an input that may be a dead agent's.

    Feature 0 of an observation, and of the state, is 1 in all inputs that are trained and 0 in all others.
    """

    flags: dict[str, Any]
    feature: Callable[[EnvSpec, int], int] = lambda spec, net: 0
    """(spec, number of the net along the axis of policies) -> where its input has that feature."""
    acts: bool = False
    """Whether the values are part of what acts (utilities of Q-learning, MAT's encoder)."""


LOCAL = Case({"critic_input": "local"})
UTILITIES = Case({}, acts=True)
TEAM = Case({"critic_input": "state"})
SOFT = Case(TEAM.flags | {"alpha": 1e-12})  # targets have no entropy
CENTRAL = Case({"critic_input": "state"}, lambda spec, net: spec.state_dim)  # the own observation follows the state
EACH = Case({"critic_input": "concat", "sharing": "independent"}, lambda spec, net: net * spec.obs_dim)
CASES = {
    "coma": CENTRAL,
    "commnet": LOCAL,
    "facmac": TEAM,
    "haa2c": LOCAL,
    "haddpg": TEAM,
    "happo": LOCAL,
    "hasac": SOFT,
    "hatd3": TEAM,
    "hatrpo": LOCAL,
    "ia2c": LOCAL,
    "iddpg": LOCAL,
    "ippo": LOCAL,
    "ipqn": UTILITIES,
    "iql": UTILITIES,
    "isac": Case({"alpha": 1e-12}),  # two local critics for each agent, whose targets have no entropy
    "lica": Case({"critic_input": "state"}),
    "lica, mlp": Case({"critic_input": "state", "mixing": "mlp"}),
    "maa2c": LOCAL,
    "maddpg": EACH,
    "maddpg, inferred": Case(EACH.flags | {"policies": "inferred"}, EACH.feature),
    "mapg": CENTRAL,
    "mapg, independent": Case({"critic": "independent"}),
    "mapg, independent, value": Case({"critic": "independent", "baseline": "value", "sharing": "independent"}),
    "mappo": LOCAL,
    "mappo, optimal": Case({"critic_input": "local", "baseline": "optimal", "recompute_advantages": True}),
    "masac": SOFT,
    "mat": Case({}, acts=True),
    "mat_dec": LOCAL,
    "matd3": Case(EACH.flags, lambda spec, net: net // 2 * spec.obs_dim),  # two critics for each agent
    "poca": LOCAL,
    "pqn_vdn": UTILITIES,
    "qmix": UTILITIES,
    "qplex": UTILITIES,
    "qtran": UTILITIES,
    "sable": Case({}, acts=True),
    "seps": LOCAL,
    "shaq": UTILITIES,
    "tarmac": LOCAL,
    "vdn": UTILITIES,
}
OWN_REWARDS = ("iql", "isac", "maddpg", "mapg, independent", "mappo")
"""Those that learn each agent's own return where agents earn different rewards."""
PLAYS = [(name, True) for name in CASES] + [(name, False) for name in OWN_REWARDS]


@cache
def made(name: str, shared: bool) -> tuple[EnvSpec, Program]:
    spec, algorithm = make_spec(shared_reward=shared), algorithms.get(name.partition(",")[0])
    return spec, program(spec, override(algorithm.Config(), SMALL | CASES[name].flags))


def high_where_untrained(tree: Any, feature: Callable[[int], int]) -> Any:
    """All nets within ``tree`` with other parameters: outputs of 0 where the feature is 1, about ``HIGH`` where 0."""
    if isinstance(tree, dict) and "head" in tree:
        return one_net(tree, feature)
    if isinstance(tree, dict):
        return {name: high_where_untrained(x, feature) for name, x in tree.items()}
    if isinstance(tree, tuple | list):
        new = [high_where_untrained(x, feature) for x in tree]
        return type(tree)(*new) if hasattr(tree, "_fields") else type(tree)(new)
    return tree  # statistics and counters


def one_net(net: dict[str, Any], feature: Callable[[int], int]) -> dict[str, Any]:
    """The first layer's first unit is tanh, or ReLU, of 1 − feature, and each layer behind it passes it on."""
    inner = {name: one_net(x, feature) for name, x in net.items() if isinstance(x, dict) and "head" in x}
    new = jax.tree_util.tree_map_with_path(
        lambda path, x: np.ones(x.shape) if path[-1].key == "scale" else np.zeros(x.shape), net
    )
    stacks = [new, *(new[name] for name in ("embed", "value", "hidden") if name in new)]
    found = [stack["layers"] for stack in stacks if "layers" in stack]
    chain = [layer for x in found for layer in (list(x.values()) if isinstance(x, dict) else x)] + [new["head"]]
    for i, layer in enumerate(chain):
        out, size = (slice(None), HIGH) if i == len(chain) - 1 else (0, 1.0)
        for p in range(len(layer["kernel"])):
            row = feature(p) % layer["kernel"].shape[1] if i == 0 else 0
            layer["kernel"][p, row, out] = -size if i == 0 else size
            layer["bias"][p, out] = size if i == 0 else 0.0
    return jax.tree.map(lambda x: jnp.array(x, jnp.float32), new) | inner


def set_values(name: str, spec: EnvSpec, learner: Learner) -> Learner:
    case = CASES[name]
    high = lambda tree: high_where_untrained(tree, lambda net: case.feature(spec, net))  # noqa: E731
    if case.acts:
        learner = learner._replace(policy=learner.policy._replace(actor=high(learner.policy.actor)))
    return learner._replace(critic=high(learner.critic), statistics=high(learner.statistics))


def data(spec: EnvSpec, carry: Any) -> Trajectory:
    """Noise but for what matters: agent 2 dies in environment 0, all die in 1, and agent 0 at the time limit of 2."""
    traj = make_trajectory(spec, carry=carry)
    alive = np.ones((T + 1, E, N), bool)
    alive[2:, 0, 2] = alive[3:, 1, :] = alive[T, 2, 0] = False
    start, end = np.arange(T) == 0, np.arange(T) == T - 1

    def moment(step: Any, alive: np.ndarray) -> Any:
        return step._replace(
            obs=step.obs.at[..., 0].set(1.0),
            state=step.state.at[..., 0].set(alive.any(-1)),
            alive=jnp.array(alive),
            reward=jnp.zeros((T, E, N)),
            discount=jnp.ones((T, E, N)),
        )

    step = moment(traj.step, alive[:-1])._replace(first=jnp.array(np.repeat(start[:, None], E, 1)))
    outcome = moment(traj.outcome, alive[1:])._replace(last=jnp.array(end[:, None] & (np.arange(E) > 1)))
    return traj._replace(step=step, outcome=outcome)


QUICK = {"coma", "happo", "iql", "lica", "maddpg", "mappo", "mat", "qmix"}
"""One of each family; the others are slow tests."""


@pytest.mark.parametrize(
    ("name", "shared"),
    [pytest.param(*play, marks=() if play[0] in QUICK else pytest.mark.slow) for play in PLAYS],
    ids=[f"{n}, {'shared' if s else 'own'} reward" for n, s in PLAYS],
)
def test_targets_do_not_read_values_that_nothing_trains(name: str, shared: bool) -> None:
    spec, prog = made(name, shared)
    learner = set_values(name, spec, prog.learner)
    traj = data(spec, prog.algorithm.initial_carry(E))
    _, metrics = prog.update(learner, traj, KEY)
    losses = {key: float(x) for key, x in metrics.items() if key in LOSSES}
    assert losses
    assert all(abs(x) < 1e-6 for x in losses.values()), losses

    out = traj.outcome  # a living agent's value of such an input is read: the test would see it
    blank = out._replace(obs=out.obs.at[-1, 3].set(0.0), state=out.state.at[-1, 3].set(0.0))
    _, metrics = prog.update(learner, traj._replace(outcome=blank), KEY)
    assert all(metrics[key] > 1e3 for key in losses)


def test_every_algorithm_is_tested_for_untrained_values() -> None:
    # MAGPO's values are those of MAT's or Sable's network, with norms of its input; test_magpo.py has its targets.
    assert {name.partition(",")[0] for name in CASES} == set(algorithms.NAMES) - {"magpo"}
