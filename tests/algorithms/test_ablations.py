"""Options of an algorithm that are files of their own: the algorithm's file does not know them, the registry does."""

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

import self_imitation
from shoal import algorithms
from shoal.algorithms import maddpg, mappo
from shoal.errors import InputError
from shoal.types import Scale
from support.algorithm_cases import BASE
from support.naive_maddpg import BASE as MADDPG
from support.trajectories import E, T, make_spec

SPEC, SCALE = make_spec(), Scale(E, T, 10)
OPTIMAL: dict[str, Any] = vars(BASE) | {"baseline": "optimal"}
FOLDER = Path(algorithms.__file__).parent


def imported(path: Path) -> set[str]:
    """The algorithms that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "shoal.algorithms":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shoal.algorithms."):
            found.add((node.module or "").split(".")[2])
    return found


def test_no_algorithm_imports_one_that_imports_it() -> None:
    imports = {path.stem: imported(path) for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    while leaves := [name for name, others in imports.items() if not others & imports.keys()]:
        for name in leaves:
            del imports[name]
    assert not imports


@pytest.mark.parametrize("options", [{"baseline": "optimal"}, {"dead_value": "masked", "critic_input": "local"}])
def test_mappo_itself_refuses_them_and_the_registry_makes_them(options: dict[str, Any]) -> None:
    config = replace(BASE, **options)
    with pytest.raises(InputError, match=r"algorithms.get\('mappo'\).make in place of mappo.make"):
        mappo.make(SPEC, config, SCALE)
    algorithms.get("mappo").make(SPEC, config, SCALE)


def test_maddpg_itself_refuses_them_and_the_registry_makes_them() -> None:
    config = replace(MADDPG, policies="inferred")
    with pytest.raises(InputError, match=r"algorithms.get\('maddpg'\).make in place of maddpg.make"):
        maddpg.make(SPEC, config, SCALE)
    learner = jax.eval_shape(algorithms.get("maddpg").make(SPEC, config, SCALE).init, jax.random.key(0))
    assert hasattr(learner.statistics, "models")


def test_an_algorithm_of_the_users_own_has_them_if_it_takes_parts() -> None:
    config = self_imitation.Config(**OPTIMAL)
    own: Any = self_imitation
    algorithm = algorithms.with_ablations("mappo", own).make(SPEC, config, SCALE)
    assert "q" in jax.eval_shape(algorithm.init, jax.random.key(0)).critic


def test_an_algorithm_of_the_users_own_that_takes_no_parts_is_refused_them() -> None:
    @dataclass(frozen=True)
    class Config(mappo.Config):
        pass

    module = ModuleType("my_idea")
    module.Config, module.make = Config, lambda spec, config, scale: mappo.make(spec, config, scale)  # type: ignore[attr-defined]
    mine = algorithms.with_ablations("mappo", module)
    mine.make(SPEC, Config(**vars(BASE)), SCALE)
    with pytest.raises(InputError, match="baseline replaces parts of the algorithm, which make of 'my_idea'"):
        mine.make(SPEC, Config(**OPTIMAL), SCALE)

    def twice(spec: Any, config: Any, scale: Any, **parts: Any) -> Any:
        return mappo.make(spec, config, scale, credit=None, **parts)

    module.make = twice  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="baseline replaces credit of the algorithm, which 'my_idea' replaces too"):
        algorithms.WithAblations(module, algorithms.ABLATIONS["mappo"]).make(SPEC, Config(**OPTIMAL), SCALE)
