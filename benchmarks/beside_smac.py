"""What scripts win on SMAC's maps here, beside what the same scripts win in SMAC and in SMAClite where it is known.

    shoal study skirmish_scripts
    python benchmarks/beside_smac.py

``heuristic`` is SMAC's own script, ``attack-nearest`` the one that was played in SMAClite. Numbers are the per cent of
battles won, with their 95 % intervals here.
"""

from lanchester import measured

SMAC = {
    # "Heuristic", median win rate, in the results of arXiv 1902.04043 (Samvelyan et al. 2019) as listed by
    # paperswithcode.com/paper/the-starcraft-multi-agent-challenge. Version 4.6.2 of the game. The paper's numbers of
    # the other maps were not found in readable form.
    "27m_vs_30m": "0",
    "3s5z_vs_3s6z": "0",
}
"""Of SMAC's ``heuristic_ai``, by map."""
SMACLITE = {
    # Own runs in SMAClite at commit 0d6abbe, with SMAC's step limits. Its units have other weapons and clocks, and its
    # episodes have almost no noise, so that a script wins all of them or none.
    "10m_vs_11m": (0, 14),
    "2s3z": (17, 17),
    "3s5z": (0, 12),
    "corridor": (0, 2),
}
"""Battles won by ``attack-nearest`` and battles played, by map."""


def main() -> None:
    """Print the table."""
    print("| map | `heuristic` | in SMAC | `attack-nearest` | in SMAClite |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, won in measured().items():
        lite = "{} of {}".format(*SMACLITE[name]) if name in SMACLITE else ""
        print(f"| `{name}` | {won['heuristic']} | {SMAC.get(name, '')} | {won['attack-nearest']} | {lite} |")


if __name__ == "__main__":
    main()
