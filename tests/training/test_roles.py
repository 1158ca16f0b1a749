"""What a run says at its start of who learns."""

from typing import Any

import pytest

from shoal import algorithms
from shoal.environments import registry
from shoal.options.flags import override
from shoal.training import checks
from shoal.training.settings import Settings

ADVERSARIES = "adversary_0, adversary_1, adversary_2"


@pytest.mark.parametrize(
    ("environment", "options", "flags", "said"),
    [
        ("mpe/simple_tag", {}, {}, []),
        (
            "mpe/simple_tag",
            {},
            {"opponents": "runs/early"},
            [f"Trained: {ADVERSARIES}. Controlled by runs/early, not trained: agent_0."],
        ),
        (
            "mpe/simple_tag",
            {},
            {"opponents": "past", "past_share": 0.25},
            [f"All agents are trained. In 4 of 16 environments, past selves control {ADVERSARIES} or agent_0."],
        ),
        (
            "skirmish/3m",
            {},
            {"opponents": "past"},
            [
                "All agents are trained. In 8 of 16 environments, past selves control ally_0 or ally_1, ally_2.",
                "All agents of skirmish/3m share one reward, so past selves are partners, not opponents. With "
                "--env.both, skirmish/ maps have two sides.",
            ],
        ),
        (
            "mpe/simple_spread",
            {"num_agents": 24},
            {"opponents": "scripted", "freeze": ("critic", "actor.head")},
            [
                f"Trained: {', '.join(f'agent_{i}' for i in range(10))} … (12 agents). Controlled by scripted, not "
                f"trained: {', '.join(f'agent_{i}' for i in range(12, 22))} … (12 agents).",
                "Not trained (freeze): critic, actor.head.",
            ],
        ),
        ("skirmish/3m", {"both": True}, {"opponents": "scripted"}, None),
    ],
)
def test_the_notice_says_which_roles_learn(
    environment: str, options: dict[str, Any], flags: dict[str, Any], said: list[str] | None
) -> None:
    settings, config = override(Settings(), flags), override(algorithms.get("mappo").Config(), flags)
    found = checks.notes_on_roles(registry.make(environment, **options).spec, settings, config, 16)
    assert found == said if said is not None else (len(found) == 1 and "Controlled by scripted" in found[0])


def test_the_notice_leaves_out_a_frozen_side() -> None:
    config = override(algorithms.get("mappo+ippo").Config(), {"side2_freeze": "actor"})
    spec = registry.make("mpe/simple_tag").spec
    assert checks.notes_on_roles(spec, Settings(), config, 4) == ["Not trained (side2_freeze): actor."]
