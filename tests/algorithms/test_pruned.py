"""``critic_input="pruned"`` where nobody knows what the state holds: refused as the algorithm is made."""

import dataclasses
import typing
from dataclasses import replace

import pytest

from shoal import algorithms
from shoal.errors import InputError
from shoal.networks.inputs import CriticInput
from shoal.options.flags import override
from shoal.types import Scale
from support.trajectories import make_spec

SCALE = Scale(4, 8, 2)
SPEC = make_spec(shared_reward=True)


def reads_critic_input(name: str) -> bool:
    hints = typing.get_type_hints(algorithms.get(name).Config)
    return hints.get("critic_input") == CriticInput


@pytest.mark.parametrize("name", [name for name in algorithms.NAMES if reads_critic_input(name)])
def test_pruned_critic_input_is_refused_if_the_contents_of_the_state_are_unknown(name: str):
    module = algorithms.get(name)
    config = override(module.Config(), {"critic_input": "pruned", "minibatches": 1, "sharing": "shared"})
    unknown = replace(SPEC, novel=None)
    if name == "lica":  # reads the team as one
        with pytest.raises(InputError, match="critic_input must be 'concat' or 'state'"):
            module.make(SPEC, config, SCALE)
        return
    with pytest.raises(InputError, match=r"toy does not declare .* \(EnvSpec.novel\).*: use 'agent', which reads"):
        module.make(unknown, config, SCALE)
    module.make(SPEC, config, SCALE)
    module.make(replace(SPEC, novel=()), config, SCALE)
    module.make(unknown, override(config, {"critic_input": "agent"}), SCALE)


def test_sides_leave_novel_unknown():
    from shoal.sides.sides import narrowed

    assert narrowed(replace(SPEC, novel=None), (0, 1)).novel is None
    assert narrowed(replace(SPEC, novel=(1, 4)), (2,)).novel == (1,)


def test_a_spec_without_novel_is_unknown():
    fields = {f.name: getattr(SPEC, f.name) for f in dataclasses.fields(SPEC) if f.name != "novel"}
    assert type(SPEC)(**fields).novel is None
