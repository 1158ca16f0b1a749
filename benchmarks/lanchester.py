"""The table of docs/skirmish.md: how often scripts win SMAC's maps, beside what Lanchester's square law expects.

    shoal study skirmish_scripts
    python benchmarks/lanchester.py

By the square law two armies that shoot at once, each with all its weapons, are equally strong if
(Σ √(life · damage per second))² is. The ratio of allies to enemies counts hit points and shields as life, and the mean
damage on one opponent after armour. It leaves out healing, splash, ranges, walking and terrain. Banelings, which attack
once, have no damage per second.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.units import Unit
from shoal.studies.page_tables import value_text
from shoal.studies.plan import plan
from shoal.studies.state import recorded, records_folder
from shoal.studies.study_file import found, read

ALL_OR_NOTHING = {"0.00 [0.00, 0.00]": "0", "1.00 [1.00, 1.00]": "1"}


def strength(own: Sequence[Unit], others: Sequence[Unit]) -> float:
    """Σ √(life · damage per second) of an army."""
    return sum(float(np.sqrt((unit.hit_points + unit.shield) * _damage(unit, others))) for unit in own)


def _damage(unit: Unit, others: Sequence[Unit]) -> float:
    """Damage per second on one opponent, in the mean over those that the weapon can hit."""
    if unit.heals:
        return 0.0
    hit = []
    for other in others:
        bonus = unit.light_bonus * other.light + unit.armoured_bonus * other.armoured
        armour = other.armour * other.hit_points / (other.hit_points + other.shield)
        if unit.hits_air or not other.flies:
            hit.append(unit.hits * (unit.damage + bonus - armour) / unit.cooldown)
    return float(np.mean(hit)) if hit else 0.0


def ratio(name: str) -> float:
    """The allies' strength over the enemies', squared; NaN with banelings."""
    allies, enemies = MAPS[name].ally_units, MAPS[name].enemy_units
    if any(unit.attack == "explosion" for unit in (*allies, *enemies)):
        return float("nan")
    return (strength(allies, enemies) / strength(enemies, allies)) ** 2


def main() -> None:
    """Print the table."""
    study = read(found("skirmish_scripts"))
    cells = plan(study, Path())
    records = recorded(records_folder(study, None), cells)
    maps = list(dict.fromkeys(str(cell.values["environment"]) for cell in cells))
    scripts = list(dict.fromkeys(str(cell.values["script"]) for cell in cells))
    print("| map | square law |", " | ".join(f"`{script}`" for script in scripts), "|")
    print("| --- | ---------: |", " | ".join("---:" for _ in scripts), "|")
    for environment in maps:
        name = environment.removeprefix("skirmish/")
        shares = [
            ALL_OR_NOTHING.get(text := value_text(records.get(cell.name), "won"), text)
            for script in scripts
            for cell in cells
            if (cell.values["environment"], cell.values["script"]) == (environment, script)
        ]
        law = ratio(name)
        print(f"| `{name}` | {'–' if np.isnan(law) else f'{law:.2f}'} |", " | ".join(shares), "|")


if __name__ == "__main__":
    main()
