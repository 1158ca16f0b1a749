"""Frozen parts keep every bit, the others are trained as if the frozen ones were constants."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.errors import InputError
from shoal.types import Learner, Scale
from support.algorithm_kinds import config_of
from support.selection import quick
from support.trajectories import Program, acted, make_spec, make_trajectory, program

SPEC = make_spec()
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "mappo's actors": ("mappo", ("actor",)),
    "mappo's critic": ("mappo", ("critic",)),
    "a layer of mappo's actors": ("mappo", ("actor.layers.0", "critic.head.bias")),
    "happo's critic": ("happo", ("critic",)),
    "a layer of happo's actors": ("happo", ("actor.layers",)),
    "hatrpo's critic": ("hatrpo", ("critic.layers",)),
    "mat's encoder": ("mat", ("actor.encoder",)),
    "mapg's critic": ("mapg", ("critic.q", "actor.head")),
    "lica's mixing": ("lica", ("critic.w1",)),
    "utilities": ("qmix", ("actor.layers.0.kernel",)),
    "qmix's mixer": ("qmix", ("critic",)),
    "maddpg's critics": ("maddpg", ("critic",)),
    "a layer of maddpg's actors": ("maddpg", ("actor.layers.0",)),
}


def played(name: str, **flags: Any) -> tuple[Program, Any]:
    prog = program(SPEC, config_of(name, **flags))
    traj = make_trajectory(SPEC, carry=prog.algorithm.initial_carry(4))
    return prog, acted(prog, prog.learner, traj)


def arrays(learner: Learner) -> dict[str, np.ndarray]:
    """Parameters by name, as a user writes it."""
    nets = {"actor": learner.policy.actor, "critic": learner.critic, "inputs": learner.policy.inputs}
    found = jax.tree_util.tree_leaves_with_path(nets)
    return {".".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", None)))) for k in path): np.asarray(x)
            for path, x in found}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_frozen_parameters_are_constant_and_others_change(case: str) -> None:
    name, freeze = CASES[case]
    prog, traj = played(name, freeze=freeze)
    learner = prog.learner
    for turn in range(2):
        learner, _ = prog.update(learner, traj, jax.random.key(turn))
    before, after = arrays(prog.learner), arrays(learner)
    still = {x for x in before if any(x == part or x.startswith(part + ".") for part in freeze)}
    assert still and still != set(before)
    assert all((before[x] == after[x]).all() for x in still)
    moved = {x for x in before if (before[x] != after[x]).any()}
    assert moved == set(before) - still


def test_frozen_parameters_do_not_count_for_the_gradient_norm() -> None:
    """One step of Adam with a large ε is lr · g / (|g| + ε), from which the clipped gradient can be computed."""
    clip, eps, rate = 1e-3, 0.5, 0.5
    norms = []
    for freeze in ((), ("actor.layers",)):
        prog, traj = played("mappo", freeze=freeze, max_grad_norm=clip)
        learner, metrics = prog.update(prog.learner, traj, jax.random.key(0))
        moved = jax.tree.map(jnp.subtract, learner.policy.actor, prog.learner.policy.actor)
        ratio = np.abs(np.concatenate([np.ravel(x) for x in jax.tree.leaves(moved)])) / rate
        np.testing.assert_allclose(np.linalg.norm(eps * ratio / (1 - ratio)), clip, rtol=1e-2)
        norms.append(float(metrics["actor_grad_norm"]))
    assert clip < norms[1] < norms[0]


@pytest.mark.parametrize("freeze", [("inputs",), pytest.param((), marks=pytest.mark.slow)], ids=["frozen", "moving"])
@pytest.mark.parametrize("name", quick(["mappo", "qmix", "maddpg"], "mappo"))
def test_statistics_of_inputs_can_be_frozen(name: str, freeze: tuple[str, ...]) -> None:
    prog, traj = played(name, normalise_inputs=True, freeze=freeze)
    after = prog.update(prog.learner, traj, jax.random.key(0))[0].policy.inputs
    assert (np.asarray(after.obs.weight) > 0).any() == (not freeze)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("mappo", {"freeze": ("actr",)}, r"no part to freeze named 'actr'; there are actor and critic[.,]"),
        (
            "mappo",
            {"freeze": ("layers.0.kernel",)},
            r"there are actor and critic, and nearest to it actor\.layers\.0\.kernel",
        ),
        (
            "mappo",
            {"freeze": ("critic", "actor")},
            r"names all that learns \(actor and critic\), so that nothing would be",
        ),
        ("mat", {"freeze": ("actor",)}, r"names all that learns \(actor\)"),
        ("iql", {"freeze": ("actor",)}, r"names all that learns \(actor\)"),
        ("mappo", {"freeze": ("actor.layers.1",)}, r"no part to freeze named 'actor\.layers\.1'"),
        ("mappo", {"freeze": ("inputs",)}, r"no part to freeze named 'inputs'"),
        ("mappo", {"freeze": ("",)}, r"no part to freeze named ''"),
        ("iql", {"freeze": ("critic",)}, r"no part to freeze named 'critic'"),
        (
            "hatrpo",
            {"freeze": ("actor.head",)},
            r"HATRPO takes one step for each whole actor, so actor\.head cannot be frozen",
        ),
        ("mappo", {"freeze": ("critic",), "value_norm": "popart"}, r"popart rewrites the critic's last layer"),
    ],
)
def test_what_cannot_be_frozen_is_refused(name: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        algorithms.get(name).make(SPEC, config_of(name, **flags), Scale(4, 5, 10))
