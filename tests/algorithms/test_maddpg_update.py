"""Whole updates of MADDPG and DDPG against loops over agents and nets (naive_maddpg.py), two in a row."""

from dataclasses import replace

import pytest

from shoal.algorithms import iddpg
from shoal.networks.body import Body
from shoal.types import Box
from support.naive_maddpg import BASE, assert_like_loops
from support.trajectories import make_spec

GRU = replace(BASE, network=Body((5,), recurrent=3, orthogonal=False), sequence_length=3, burn_in=1)
PAIR, BOX = make_spec(2), make_spec(2, action=Box(2, -2.0, 1.0))
CASES = {
    "discrete, hard targets": (PAIR, replace(BASE, target_rate=None, target_interval=2)),
    "soft, by role, one local, ensemble": (
        make_spec(), replace(BASE, relaxation="soft", temperature=0.7, sharing="role", local_roles=(1,), ensemble=2,
                             max_grad_norm=None),
    ),
    "gru, shared, state": (PAIR, replace(GRU, sharing="shared", critic_input="state", stored_state=True)),
    "box, ddpg": (BOX, iddpg.Config(**vars(replace(BASE, critic_input="local")))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_two_updates_are_those_of_loops(name: str) -> None:
    spec, config = CASES[name]
    assert_like_loops(spec, config, length=3 if config.network.recurrent else 5)
