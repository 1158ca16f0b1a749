"""CoordSum: rewards follow the sum and the guesser, over whole episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from support.environments import device_env

N, A, T = 2, 4, 30


@pytest.mark.parametrize(("guesser", "number", "steps"), [(True, None, T), (False, None, T), (True, 7, 10 * T)])
def test_an_episode_pays_for_right_sums_and_more_where_the_guess_is_wrong(
    guesser: bool, number: int | None, steps: int
) -> None:
    env = device_env("matrix/coordsum", num_agents=N, num_actions=A, num_targets=number, horizon=steps, guesser=guesser)
    actions = np.random.default_rng(0).integers(0, A - 1, (steps, N)).astype(np.int32)

    def play(key: jax.Array) -> tuple:
        key_reset, key_play = jax.random.split(key)
        state, first = env.reset(key_reset)

        def turn(state: tuple, moment: tuple) -> tuple:
            return env.step(moment[0], state, moment[1])

        return first, jax.lax.scan(turn, state, (jax.random.split(key_play, steps), jnp.asarray(actions)))[1]

    first, outcomes = jax.device_get(jax.jit(play)(jax.random.key(0)))
    targets = np.concatenate([first.obs[None], outcomes.obs[:-1]])[:, 0].argmax(-1)
    assert (
        set(targets) == set(range(number or A))
        and (outcomes.obs.sum(-1) == 1).all()
        and (outcomes.obs == outcomes.state[:, None]).all()
    )
    named: list[list[int]] = [[] for _ in range(A)]
    matches, earned = 0, []
    for target, action in zip(targets, actions, strict=True):
        row = min(target, A - 1)
        guess = max(range(A), key=lambda a, row=row: (named[row].count(a), -a))
        right = action.sum() == target
        matches += right
        earned.append((1.0 if not guesser or guess == action[0] else 2.0) if right else 0.0)
        named[row].append(action[0])
    np.testing.assert_array_equal(outcomes.reward, np.array(earned)[:, None].repeat(N, 1))
    assert set(earned) == ({0.0, 1.0, 2.0} if guesser else {0.0, 1.0})
    assert outcomes.last.tolist() == [False] * (steps - 1) + [True] and (outcomes.discount == 1.0).all()
    np.testing.assert_allclose(outcomes.metrics[-1], matches / steps, rtol=1e-6)


def test_the_guessed_agent_is_not_interchangeable_with_the_others() -> None:
    env = device_env("matrix/coordsum", num_agents=3, num_actions=A)
    state = jax.device_get(jax.jit(env.reset)(jax.random.key(0))[0])._replace(target=np.int32(3))
    step = jax.jit(lambda state, action: env.step(jax.random.key(0), state, action)[1].reward[0])
    paid = [float(step(state, np.array(action, np.int32))) for action in ((0, 1, 2), (0, 2, 1), (1, 0, 2))]
    assert paid == [1.0, 1.0, 2.0], "0 is guessed at first"
    assert env.spec.roles == (0, 1, 1)
    assert device_env("matrix/coordsum", num_agents=3, guesser=False).spec.roles == (0, 0, 0)
    assert device_env("matrix/coordsum", num_agents=1).spec.roles == (0,)


def test_options_out_of_their_range_are_refused() -> None:
    for option, value in (("num_agents", 0), ("num_actions", 1), ("num_targets", 1), ("horizon", 0)):
        with pytest.raises(InputError, match=option):
            device_env("matrix/coordsum", **{option: value})


def test_the_share_of_right_sums_is_that_of_the_steps_that_were_made() -> None:
    env = wrap(device_env("matrix/coordsum", num_agents=1, num_actions=A, guesser=False), Wrapping(time_limit=5))
    state, step = env.reset(jax.random.key(0))
    for t in range(5):
        target = step.obs[0].argmax()
        action = target if t else (target + 1) % A  # all but the first are right
        state, step = env.step(jax.random.key(t), state, action[None])
    assert bool(step.last)
    np.testing.assert_allclose(step.metrics, [4 / 5], rtol=1e-6)
