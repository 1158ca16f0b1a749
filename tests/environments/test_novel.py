"""``EnvSpec.novel``: what the state of an environment of Shoal's own holds of its observations (``mpe/`` stands beside
its other tests), and what becomes of it under wrappers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.registry import names, validate
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.types import Environment, Step
from support.contract import broken_rules
from support.environments import device_env
from support.novel_oracle import Seen, check_novel, fresh, gather

OTHERS = [name for name in names() if name.startswith("matrix/")] + [
    "grid/pursuit",
    "grid/stag_hunt",
    "bps/spread",
    "bps/h1",
]


def played(env: Environment, episodes: int = 24, steps: int = 6) -> Step:
    """Timesteps [E, T + 1] of random legal play, also after an episode's end."""

    def run(key: jax.Array):
        state, first = env.reset(key)

        def body(now, key):
            act, move = jax.random.split(key)
            action = jax.random.categorical(act, jnp.where(now[1].legal, 0.0, -jnp.inf))
            after = env.step(move, now[0], action)
            return after, after[1]

        _, rest = jax.lax.scan(body, (state, first), jax.random.split(key, steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    many = jax.jit(lambda: jax.vmap(run)(jax.random.split(jax.random.key(0), episodes)))()
    return jax.tree.map(np.asarray, many)


def seen_in(many: Step) -> Seen:
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), many)
    return gather(jax.tree.map(lambda x, k=k: x[k], flat) for k in range(flat.last.size))


@pytest.mark.parametrize("name", OTHERS)
def test_the_state_holds_exactly_what_is_not_novel(name: str):
    """And play breaks no rule of ``shoal check``."""
    options = {"num_agents": 3, "num_stags": 2, "grid": 4} if name == "grid/stag_hunt" else {}
    env = device_env(name, **options)
    many = played(env)
    assert broken_rules(env.spec, [jax.tree.map(lambda x, e=e: x[e], many) for e in range(len(many.last))]) == []
    seen = seen_in(many)
    check_novel(env.spec, seen)
    assert tuple(np.flatnonzero(fresh(seen).any(0))) == env.spec.novel


@pytest.mark.parametrize("wrapping", [Wrapping(frame_stack=2), Wrapping(last_action=True), Wrapping(agent_ids=True)])
def test_wrapped_observations_keep_what_is_known(wrapping: Wrapping):
    env = device_env("mpe/simple_spread", num_agents=2)
    check_novel(wrap(env, wrapping).spec, seen_in(played(wrap(env, wrapping))), least=0.8)  # zeros of the past are kept
    unknown = replace(env, spec=replace(env.spec, novel=None))
    assert wrap(unknown, wrapping).spec.novel is None


@pytest.mark.parametrize("novel", [(0, 99), (1, 1)])
def test_indices_that_cannot_be_are_refused(novel: tuple[int, ...]):
    env = device_env("mpe/simple_spread")
    with pytest.raises(InputError, match="must hold distinct indices below 18"):
        validate(replace(env, spec=replace(env.spec, novel=novel)))
