"""``update`` against loops in plain NumPy: every option at least once, each where it makes a difference."""

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from shoal.algorithms import ippo, mappo
from shoal.equations.normalise import Running
from shoal.equations.reduce import DEVICES
from shoal.types import Learner, Scale
from support import naive_update
from support.algorithm_cases import CASES, data, seasoned
from support.trajectories import NUM_UPDATES, E, T, assert_trees_close, compiled, program


@cache
def expected(name: str) -> naive_update.Expected:
    spec, config, _ = CASES[name]
    learner = seasoned(program(spec, config).learner)
    return naive_update.update(spec, config, NUM_UPDATES, learner, data(name))


def assert_as_expected(name: str, learner: Learner, metrics: dict[str, jax.Array]) -> None:
    want = expected(name)
    assert_trees_close(learner.policy.actor, want.actor, 2e-4, 2e-5)
    assert_trees_close(learner.critic, want.critic, 2e-4, 2e-5)
    if want.stats:
        assert_trees_close(learner.statistics.value, Running(*want.stats), 1e-5, 1e-5)
    assert metrics.keys() >= want.metrics.keys()
    for metric, value in want.metrics.items():
        if math.isnan(value):  # the naive loops know no entropy of squashed policies
            continue
        np.testing.assert_allclose(metrics[metric], value, rtol=5e-4, atol=5e-5, err_msg=metric)


@pytest.mark.parametrize("name", CASES)
def test_update_is_that_of_the_naive_loops(name):
    spec, config, bounds = CASES[name]
    prog = program(spec, config)
    learner, metrics = prog.update(seasoned(prog.learner), data(name), jax.random.key(1))
    assert_as_expected(name, learner, metrics)
    missing = [bound for bound in bounds if not expected(name).seen[bound]]
    assert not missing, f"the data do not reach {missing}, so nothing of it was tested"
    assert learner.updates == 5


def test_the_size_of_blocks_does_not_change_the_update():
    spec, config, _ = CASES["central"]
    learner, metrics = program(spec, replace(config, block=13)).update(
        seasoned(program(spec, config).learner), data("central"), jax.random.key(1)
    )
    assert_as_expected("central", learner, metrics)


def test_environments_on_two_devices_change_nothing():
    spec, config, _ = CASES["central"]
    algorithm = mappo.make(spec, config, Scale(E // 2, T, NUM_UPDATES))
    mesh = jax.make_mesh((2,), (DEVICES,), axis_types=(AxisType.Auto,))
    update = jax.shard_map(
        algorithm.update, mesh=mesh, in_specs=(P(), P(None, DEVICES), P()), out_specs=P(), check_vma=False
    )
    learner = seasoned(program(spec, config).learner)
    assert_as_expected("central", *compiled(update)(learner, data("central"), jax.random.key(1)))


def test_seeds_side_by_side_are_those_one_by_one():
    spec, config, _ = CASES["central"]
    prog = program(spec, config)
    first, second = seasoned(prog.learner), prog.learner
    rows = data("central"), data("central", 7)
    keys = jax.random.split(jax.random.key(1))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), (first, rows[0]), (second, rows[1]))
    together, _ = compiled(jax.vmap(prog.algorithm.update))(*stacked, keys)
    for i, learner in enumerate((first, second)):
        apart, _ = prog.update(learner, rows[i], keys[i])
        assert_trees_close(jax.tree.map(lambda x, i=i: x[i], together), apart, 1e-4, 1e-5)


def test_ippo_is_mappo_with_a_local_critic():
    assert ippo.make is mappo.make
    one_word = mappo.Config(critic_input="local")
    assert {f: getattr(ippo.Config(), f) for f in mappo.Config.__dataclass_fields__} == vars(one_word)
    spec, config, _ = CASES["by role"]
    same = ippo.Config(**{**vars(config), "critic_input": ippo.Config().critic_input})
    arguments = data("by role"), jax.random.key(1)
    programs = (module.make(spec, c, Scale(E, T, NUM_UPDATES)) for module, c in ((mappo, config), (ippo, same)))
    learner = program(spec, config).learner
    one, other = (jax.jit(algorithm.update).lower(learner, *arguments).as_text() for algorithm in programs)
    assert one == other
