"""Training as pure functions: the same as runs in folders, under ``vmap`` over keys and over hyper-parameters."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.errors import InputError
from shoal.runs.make_train import Train
from shoal.storage import log
from support.trained import SMALL, one_program

UPDATES = 4
OF_BOTH = ("num_envs", "rollout_length", "hidden", "orthogonal", "learning_rate", "schedule_steps")
FLAGS: Any = {name: SMALL[name] for name in OF_BOTH} | {"steps": UPDATES * 24}
MORE: Any = {
    "mappo": {"epochs": 1, "minibatches": 1},
    "mappo, minibatches": {"epochs": 2, "minibatches": 2},
    "vdn": {"buffer_size": 96, "batch_size": 4, "learning_starts": 40},
}
LOSS = {"mappo": "value_loss", "vdn": "td_loss"}
KEYS = jax.vmap(jax.random.key)(jnp.arange(2))


def functions(name: str) -> Train:
    return shoal.make_train(name.partition(",")[0], "toys:busy", **FLAGS, **MORE[name])


def trained(train: Train, *init: Any) -> tuple[Any, Any]:
    """The state after all updates, and what they returned."""
    return jax.lax.scan(lambda state, _: train.update(state), train.init(*init), None, length=train.num_updates)


def of_both(name: str) -> tuple[Any, Any]:
    train = functions(name)
    return jax.jit(jax.vmap(lambda key: trained(train, key)))(KEYS)


def assert_close(here: Any, there: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), here, there)


def one(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    """Two keys of MAPPO under ``vmap``."""
    return of_both("mappo")


def assert_as_train(name: str, both: tuple[Any, Any], folder: Path) -> None:
    algorithm = name.partition(",")[0]
    flags: Any = {"seeds": 2, "devices": 1, "eval_episodes": 0, "rows": UPDATES, "tensorboard": False}
    with one_program():
        run = shoal.train(algorithm, "toys:busy", folder=folder, progress=False, **FLAGS, **MORE[name], **flags)
    state, (metrics, _) = both
    assert_close(run._learner().policy, state.learner.policy)
    logged = [row[LOSS[algorithm]] for row in log.read_log(folder)]
    np.testing.assert_allclose(metrics[LOSS[algorithm]].T, logged, rtol=1e-3, atol=1e-6)


def test_two_keys_under_vmap_are_two_seeds_of_train(both: tuple[Any, Any], tmp_path: Path) -> None:
    assert functions("mappo").num_updates == UPDATES
    assert_as_train("mappo", both, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vdn", "mappo, minibatches"])
def test_two_keys_under_vmap_are_two_seeds_of_train_with_samples(name: str, tmp_path: Path) -> None:
    assert_as_train(name, of_both(name), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mappo", "vdn"])
def test_two_keys_under_vmap_are_two_single_runs(name: str) -> None:
    train, many = functions(name), of_both(name)
    alone = jax.jit(lambda key: trained(train, key))
    for i in range(2):
        (state, rows), (here, rows_here) = one(many, i), alone(KEYS[i])
        assert_close((state.learner, rows), (here.learner, rows_here))


@pytest.mark.slow
def test_a_learning_rate_may_be_an_array(both: tuple[Any, Any], unchecked_annotations: None) -> None:
    train, rates = functions("mappo"), jnp.array([0.0, FLAGS["learning_rate"]])

    def learned(rate: Any) -> Any:
        values = {"learning_rate": rate}
        state, _ = trained(train, KEYS[0], values)
        return train.init(KEYS[0], values), state, train.evaluate(state, KEYS[1], episodes=3)

    before, after, played = jax.jit(jax.vmap(learned))(rates)
    np.testing.assert_array_equal(after.learner.policy.values["learning_rate"], rates)
    policy = after.learner.policy.policy
    assert_close(one(policy, 0), one(before.learner.policy.policy, 0))
    assert_close(one(policy, 1), one(both[0].learner.policy, 0))
    assert played.scores.shape == (2, 3) and bool((played.lengths > 0).all())
    np.testing.assert_allclose(played.scores, train.spec.scores(played.returns), rtol=1e-6)


def test_rollouts_that_only_fill_a_buffer_are_counted_where_a_value_is_an_array(unchecked_annotations: None) -> None:
    train = functions("vdn")
    state = jax.eval_shape(train.init, KEYS[0], {"learning_rate": jnp.float32(0.1)})
    after, _ = jax.eval_shape(train.update, state)
    assert jax.tree.structure(after.learner) == jax.tree.structure(state.learner)


@pytest.mark.parametrize(
    ("environment", "flags", "said"),
    [
        ("counters:hosted", {}, "is stepped by worker processes"),
        ("toys:busy", {"seeds": 2}, "leave out seeds."),
        ("toys:busy", {"eval_episodes": 2}, "leave out eval_episodes."),
        ("toys:busy", {"config": {"flags": {"gamma": 0.5, "seeds": 3}}}, "leave out seeds."),
        ("toys:busy", {"config": {"flags": 3}}, "config: flags must be a table of names and values, not 3."),
        ("toys:busy", {"lerning_rate": 2}, "did you mean 'learning_rate'"),
        ("toys:busy", {"minibatches": 7}, "do not divide into 7 minibatches"),
    ],
)
def test_what_is_refused(environment: str, flags: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        shoal.make_train("mappo", environment, **flags)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_configuration_that_starts_from_a_run_is_told_that_functions_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[flags]\ninit_from = 'runs/earlier'\nseeds = 3\n", encoding="utf-8")
    shoal.make_train("mappo", "toys:busy", config=file, **FLAGS, **MORE["mappo"])
    assert capsys.readouterr().err.startswith("init_from of the configuration has no effect: ")


def test_hyper_parameters_that_cannot_be_arrays(unchecked_annotations: None) -> None:
    train = functions("mappo")
    for values, said in (
        ({"hidden": 3.0}, "only floating-point"),
        ({"lerning_rate": 0.1}, "mean 'learning_rate'"),
        ({"gamma": 3.0}, "gamma must be at least 0 and at most 1, not 3"),
        ({"gamma": jnp.array(jnp.nan)}, "gamma must be at least 0 and at most 1, not nan"),
        ({"learning_rate": jnp.ones(2)}, r"must be one number, not an array of shape \(2,\): map over several by vmap"),
        ({"learning_rate": None}, "learning_rate must be a number, not None"),
        (0.1, "values must map names to values"),
    ):
        with pytest.raises(InputError, match=said):
            train.init(KEYS[0], values)
    with pytest.raises(InputError, match="at least 1"):
        train.evaluate(jax.eval_shape(train.init, KEYS[0]), KEYS[1], episodes=0)


def test_a_key_is_one_key_of_jax(unchecked_annotations: None) -> None:
    train = functions("mappo")
    for key, said in (
        (0, r"init takes one PRNG key, such as jax.random.key\(0\), not 0\.$"),
        (None, "not None"),
        (np.zeros(2), r"not an array of float64 of shape \(2,\)"),
        (KEYS, r"not an array of key<fry> of shape \(2,\): map over several by vmap\.$"),
    ):
        with pytest.raises(InputError, match=said):
            train.init(key)
    old_form = jax.eval_shape(train.init, jax.random.PRNGKey(0))
    with pytest.raises(InputError, match="evaluate takes one PRNG key"):
        train.evaluate(old_form, 0)
