"""The batched form of environments: what a rollout does with it, wrappers, and what validation refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.environments.batching import single
from shoal.environments.validation import validate
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.rollouts import fused
from shoal.types import Batched, Environment

ENVS, STEPS = 6, 12


def sampled(policy, carry, step, key, greedy):
    drawn = jax.random.uniform(key, step.legal.shape)
    return carry, jnp.where(step.legal, drawn, -1.0).argmax(-1).astype(jnp.int32), {}


def played(env: Environment):
    rollout = fused.make_rollout(env, ENVS, STEPS)

    def run():
        state = rollout.init(jax.random.key(0), ())
        after, trajectory, stats = rollout.collect(sampled, (), state, jax.random.key(1))
        return after.step, trajectory, stats

    return jax.tree.map(np.asarray, jax.jit(run)())


def batched_of(env: Environment) -> Environment:
    """The same environment with a batched form, which draws the same numbers as ``vmap`` does."""
    return replace(env, batched=fused.vmapped(env))


@pytest.mark.parametrize("wrapping", [Wrapping(), Wrapping(frame_stack=2, agent_ids=True, time_limit=5)])
def test_a_rollout_is_the_same_in_both_forms(wrapping: Wrapping):
    """Also of a wrapped environment: its memory begins anew with each episode."""
    env = toys.busy()
    one, other = (played(wrap(each, wrapping)) for each in (env, batched_of(env)))
    assert one[1].outcome.last.any()
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_single_form_is_a_batch_of_one():
    env = toys.busy()
    form = fused.vmapped(env)
    made = single(env.spec, form)
    validate(made)
    key = jax.random.key(3)
    first, many = jax.jit(made.reset)(key)[1], form.reset(key, 1)[1]
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[0]), first, many)


def test_one_function_of_the_single_form_alone_is_not_replaced():
    """Training would go on with that of the batched form."""
    made = single(toys.busy().spec, fused.vmapped(toys.busy()))
    shaped = replace(made, step=lambda key, state, action: made.step(key, state, action))
    with pytest.raises(InputError, match=r"one alone was replaced: replace batched as well, or set it to None\.$"):
        validate(shaped)
    validate(replace(shaped, batched=None))


def test_a_wrong_batched_form_is_refused_in_a_sentence():
    env = toys.busy()
    form = fused.vmapped(env)

    def short(key, states, actions):
        states, outcome = form.step(key, states, actions)
        return states, outcome._replace(reward=outcome.reward[:, 0])

    def other(key, which, states):
        states, first = form.restart(key, which, states)
        return (states,), first

    with pytest.raises(InputError, match=r"batched\.step gives reward of shape \(3,\)"):
        validate(replace(env, batched=Batched(form.reset, short, form.restart)))
    with pytest.raises(InputError, match=r"batched\.restart returns a state built as"):
        validate(replace(env, batched=Batched(form.reset, form.step, other)))


@pytest.mark.parametrize("name", ["step", "restart"])
def test_batched_forms_whose_steps_have_other_types_are_refused(name: str):
    """Otherwise JAX refuses them, after the run's folder was made."""
    env = toys.busy()
    form = fused.vmapped(env)

    def halved(*given):
        states, step = getattr(form, name)(*given)
        return states, step._replace(obs=step.obs.astype(jnp.float16))

    with pytest.raises(InputError, match=rf"Step \.obs is float32.* after batched\.reset but float16.*\.{name};"):
        validate(replace(env, batched=form._replace(**{name: halved})))
