"""Ensembles of K sub-policies per agent, one of which acts in an episode (Lowe et al. 2017, section 4.3, eq. 9).

D_i^(k) holds the episodes in which agent i's k-th sub-policy acted. One buffer stores them all, with ``member`` beside
each timestep; each sub-policy learns from its own rows. The factor 1/K of equation 9 is left out: Adam would cancel it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.models.actor_critic import make_distribution
from shoal.models.deterministic import Actors, Carry, acting, inspecting
from shoal.networks.body import Body, build
from shoal.networks.inputs import actor_input
from shoal.networks.sharing import copies, per_agent
from shoal.types import EnvSpec, PyTree, Step


def make_ensemble(spec: EnvSpec, body: Body, index: tuple[int, ...], agent_id: bool, members: int) -> Actors:
    """K = ``members`` sub-policies for each agent; agents with the same number in ``index`` share theirs.

    ``act`` draws each agent's sub-policy at the start of an episode and returns its number as the extra ``member``.

    Raises:
        InputError: continuous actions have no finite box.
    """
    make_distribution(spec, False)  # refuses boxes without bounds
    n, width = spec.num_agents, spec.action.width
    source = actor_input(spec, agent_id and max(index) + 1 < n)
    net = per_agent(build(body, source.layout, width, output_gain=0.01), copies(index, members))
    first_net = jnp.array(index) * members

    def output(params: PyTree, carry: PyTree, step: Step, extras: dict[str, Array]) -> tuple[PyTree, Array]:
        carry, x = net.apply(params, carry, jnp.repeat(source.features(step), members, axis=-2), step.first)
        plays = extras["member"][..., None] == jnp.arange(members)
        return carry, jnp.where(plays[..., None], x.reshape(*x.shape[:-2], n, members, width), 0.0).sum(-2)

    def start(carry: Carry, step: Step, key: PRNGKeyArray) -> tuple[Carry, dict[str, Array]]:
        assert carry.member is not None
        drawn = jax.random.randint(key, carry.member.shape, 0, members)
        member = jnp.where(step.first[:, None], drawn, carry.member)
        return carry._replace(member=member), {"member": member}

    def initial_carry(num_envs: int) -> Carry:
        return Carry(net.initial_carry((num_envs,)), jnp.zeros((num_envs, n), jnp.int32))

    def net_of(extras: dict[str, Array]) -> Array:
        return first_net + extras["member"]

    act, inspect = acting(spec.action, output, start), inspecting(spec.action, output)
    nets = members * (max(index) + 1)
    return Actors(net.init, initial_carry, output, act, inspect, net_of, nets, ("member",))
