"""The table of docs/skirmish.md: how often scripts win SMAC's maps, beside what Lanchester's square law expects.

    shoal study skirmish_scripts
    python benchmarks/lanchester.py

By the square law two armies that shoot at once, each with all its weapons, are equally strong if
(Σ √(life · damage per second))² is. The ratio of allies to enemies counts hit points and shields as life, and the mean
damage on one opponent after armour. It leaves out healing, splash, ranges, walking and terrain. Banelings, which attack
once, have no damage per second. Numbers of scripts are the per cent of battles won, with their 95 % intervals.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.units import Unit
from shoal.studies.plan import plan
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study, study_path
from shoal.studies.tables import mean_text

ALL_OR_NOTHING = {"0.00 [0.00, 0.00]": "0", "100.00 [100.00, 100.00]": "100"}


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


def measured() -> dict[str, dict[str, str]]:
    """The per cent of battles won, with the interval, by map and script, from the records of study skirmish_scripts."""
    study = read_study(study_path("skirmish_scripts"))
    cells = plan(study, Path())
    records = records_of_cells(records_folder(study, None), cells)
    shares: dict[str, dict[str, str]] = {}
    for cell in cells:
        text = mean_text(records.get(cell.name), "won")
        name = str(cell.values["environment"]).removeprefix("skirmish/")
        shares.setdefault(name, {})[str(cell.values["script"])] = ALL_OR_NOTHING.get(text, text)
    return shares


def main() -> None:
    """Print the table."""
    shares = measured()
    scripts = list(next(iter(shares.values())))
    print("| map | square law |", " | ".join(f"`{script}`" for script in scripts), "|")
    print("| --- | ---------: |", " | ".join("---:" for _ in scripts), "|")
    for name, won in shares.items():
        law = ratio(name)
        print(f"| `{name}` | {'–' if np.isnan(law) else f'{law:.2f}'} |", " | ".join(won.values()), "|")


if __name__ == "__main__":
    main()
