"""Let the policies of two runs play against or with each other: python examples/crossplay.py runs/a runs/b"""

import sys

import shoal


def main(*folders: str) -> None:
    found = shoal.crossplay(folders, episodes=128)
    print(found)
    print(f"the first run's side 1 with the last run's side 2: {found.mean[0, -1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
