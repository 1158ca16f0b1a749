"""Policies without optimiser and critic act as the whole algorithm's do, and are told to be what these are."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest

from shoal import algorithms
from shoal.options.flags import flags_of, override
from shoal.runs.build import acting_algorithm
from shoal.training.settings import Settings
from shoal.types import Scale
from support.trajectories import E, T, assert_trees_equal, compiled, make_spec, make_step

KEY, SPEC = jax.random.key(3), make_spec()
SMALL = {"hidden": (4,), "mixing_width": 3, "hyper_width": 3, "minibatches": 1, "chunk_length": T}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in algorithms.NAMES),
    ("coma", {"epsilon": 0.0, "epsilon_final": 0.0}),
    ("maddpg", {"ensemble": 2, "policies": "inferred", "critic_input": "concat"}),
    ("mapg", {"critic": "independent"}),
    ("mappo", {"recurrent": 3, "normalise_inputs": True, "baseline": "optimal", "sharing": "role"}),
    ("mat", {"order": "shuffled", "advantage": "agent", "critic_input": "agent"}),
    ("qmix", {"recurrent": 3}),
]
ANOTHERS = {
    "facmac", "haa2c", "hatd3", "hatrpo", "ia2c", "iddpg", "ippo", "ipqn", "isac", "maa2c", "masac", "mat_dec", "matd3",
    "poca", "qplex", "qtran", "seps", "shaq", "vdn",
}  # fmt: skip
"""Their policies are made by another one's function, or by that of several: slow tests."""
NUMBERED = ("coma", "maddpg", "mappo", "qmix")
"""One of each kind of which initial numbers are compared; of the others structures and shapes are."""
STEP = make_step(np.random.default_rng(0), SPEC, (E,))


def both(name: str, flags: dict[str, Any]) -> Any:
    module = algorithms.get(name)
    known = flags_of(module.Config())
    config = override(module.Config(), {flag: x for flag, x in (SMALL | flags).items() if flag in known})
    return module.make(SPEC, config, Scale(E, T, 10)), module.make_policy(SPEC, config)


@pytest.mark.parametrize(
    ("name", "flags"),
    [pytest.param(*case, marks=pytest.mark.slow if case[0] in ANOTHERS else ()) for case in CASES],
    ids=[" ".join((name, *flags)) for name, flags in CASES],
)
def test_they_are_the_whole_algorithms_policies(name: str, flags: dict[str, Any]) -> None:
    whole, policy = both(name, flags)
    for fact in ("acts_on", "learns_from", "unequal_rewards"):
        assert getattr(policy, fact) == getattr(whole, fact), fact
    learner = jax.eval_shape(policy.init, KEY)
    assert learner.policy == jax.eval_shape(whole.init, KEY).policy
    assert learner.critic == learner.optimiser == learner.statistics == ()
    carry = policy.initial_carry(E)
    for greedy in (True, False) if name in (*NUMBERED, "mat") else (False,):
        (here, shapes), (there, _) = (
            jax.make_jaxpr(lambda own, a=a: a.act(own, carry, STEP, KEY, greedy), return_shape=True)(learner)  # noqa: B023
            for a in (policy, whole)
        )
        assert str(here) == str(there)
    _, action, extras = shapes
    assert policy.inspect is not None
    told = jax.eval_shape(policy.inspect, learner, carry, STEP, action, extras)
    assert told and "value" not in told
    with pytest.raises(TypeError, match="for acting only"):
        policy.update(learner, None, KEY)


@pytest.mark.parametrize("name", NUMBERED)
def test_they_start_with_the_whole_algorithms_numbers(name: str) -> None:
    whole, policy = both(name, {})
    assert_trees_equal(*(compiled(lambda key, a=a: a.init(key).policy)(KEY) for a in (policy, whole)))


def test_they_build_no_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(*_: Any) -> Any:
        raise AssertionError("an optimiser is built")

    monkeypatch.setattr(optax, "chain", chain)
    for name in algorithms.NAMES:
        acting_algorithm(name, SPEC, override(algorithms.get(name).Config(), {"hidden": (4,)}), Settings())
    both_sides = algorithms.get("mappo+qmix").Config()
    acting_algorithm("mappo+qmix", SPEC, both_sides, Settings())
    with pytest.raises(AssertionError, match="an optimiser is built"):
        both("qmix", {})


def test_an_algorithm_that_has_only_make_is_made_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    iql, made = algorithms.get("iql"), []

    def make(*given: Any) -> Any:
        made.append(given)
        return iql.make(*given)

    monkeypatch.setattr(algorithms, "get", lambda name: SimpleNamespace(make=make, __name__="mine"))
    acting_algorithm("mine", SPEC, override(iql.Config(), {"hidden": (4,)}), Settings(rollout_length=9))
    assert made[0][2] == Scale(1, 9, 1)
