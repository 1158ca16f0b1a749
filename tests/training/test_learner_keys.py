"""A learner may hold typed PRNG keys: they are checked, saved, selected, gathered and copied as other arrays are."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.errors import NonFiniteError
from shoal.runs.api import trainer_of
from shoal.storage.checkpoint import Checkpoints
from shoal.training import hosts
from shoal.training.callbacks import Context
from shoal.training.evaluation import Selection
from shoal.training.trainer import Trainer, check_learner
from shoal.types import Learner

words = jax.random.key_data


def keys(seed: int) -> jax.Array:
    """Of two seeds."""
    return jax.random.split(jax.random.key(seed), 2)


def learner(theta: float) -> Learner:
    policy = {"key": keys(0), "theta": jnp.full((2, 3), theta)}
    return Learner(policy, (), (), keys(1), jnp.zeros(2, jnp.int32))


def test_a_learner_with_keys_is_finite_unless_another_array_is_not() -> None:
    check_learner(learner(1.0), 1, 0, 0, Path())
    with pytest.raises(NonFiniteError, match="policy/theta of seed 0 is not finite"):
        check_learner(learner(np.nan), 1, 0, 0, Path())
    with pytest.raises(NonFiniteError, match="not finite before the first update, so nothing is saved: the algorithm"):
        check_learner(learner(np.nan), 0, 0, -1, Path())


def test_keys_that_are_gathered_from_other_hosts_stay_typed() -> None:
    crew = SimpleNamespace(read=lambda state, leaves: [hosts.gathered(leaf) for leaf in leaves])
    trainer: Any = SimpleNamespace(crew=crew, state=None)
    given = {"rbg": jax.random.key(3, impl="rbg"), "keys": keys(2), "x": jnp.ones(2)}
    found = Trainer.on_host(trainer, given)
    assert {name: x.dtype for name, x in found.items()} == {name: x.dtype for name, x in given.items()}
    for name in ("rbg", "keys"):
        np.testing.assert_array_equal(words(found[name]), words(given[name]))


def test_the_best_policies_keep_the_keys_of_their_own_update() -> None:
    selection: Any = SimpleNamespace(best=None)
    for update, score in ((1, [1.0, 1.0]), (2, [0.0, 2.0])):
        Selection._select(selection, {"key": jax.device_get(keys(update))}, np.array(score), update)
    expected = np.stack([words(keys(1))[0], words(keys(2))[1]])
    np.testing.assert_array_equal(words(selection.best.policy["key"]), expected)


def test_callbacks_get_a_copy_of_policies_with_keys() -> None:
    context: Any = SimpleNamespace(learner=learner(1.0))
    policy = Context._policy(context)
    np.testing.assert_array_equal(words(policy["key"]), words(keys(0)))
    assert isinstance(policy["theta"], np.ndarray) and policy["theta"].flags.writeable


OWN = """
from support import flawed
from support.flawed import Config
make = flawed.module("keeps keys").make
"""


def test_a_run_with_keys_in_its_learner_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the keys are those of the updates before, one after another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "keeper.py").write_text(OWN, encoding="utf-8")
    flags: dict[str, Any] = {"num_envs": 4, "rollout_length": 2, "seeds": 2, "eval_episodes": 0, "devices": 1}
    flags |= {"tensorboard": False, "progress": False, "keep": 10}
    folder = shoal.train("keeper", "matrix/climbing", folder=tmp_path / "run", steps=2 * 8, **flags).folder
    shoal.resume(folder, steps=4 * 8, progress=False)
    template = trainer_of(shoal.open_run(folder), False).program.template()
    restore: Callable[[int], Learner] = lambda step: (  # noqa: E731
        Checkpoints(folder / "checkpoints").restore(template, step)[0].learner
    )
    expected = restore(0).statistics
    for update in range(4):
        expected = jax.vmap(jax.random.fold_in, (0, None))(expected, update)
    for found in (restore(4).statistics, restore(4).policy["key"]):
        np.testing.assert_array_equal(words(found), words(expected))
