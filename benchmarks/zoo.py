"""Trains the policies of the zoo, and puts them into zoo/ (docs/zoo.md).

    python benchmarks/zoo.py spread tag
    python benchmarks/zoo.py --list

A run is kept in runs/zoo/NAME, and continued if it is there already; its policies, without what only training needs,
are written to zoo/NAME. An entry that exists is kept: delete its folder to make it again.
"""

import argparse
import shlex
from pathlib import Path

import shoal
from shoal.cli import main as command
from shoal.sharing.policies import keep_policies
from shoal.system import shipped

ENTRIES = {
    "spread": "mappo mpe/simple_spread --steps 2e6",
    "tag": "mappo mpe/simple_tag --steps 2e6",
    "speaker-listener": "mappo mpe/simple_speaker_listener",
    "reference": "mappo mpe/simple_reference",
    "3m": "mappo skirmish/3m --steps 5e5",
    "2s3z": "mappo skirmish/2s3z --steps 1e6",
    "3s5z": "mappo skirmish/3s5z",
    "3s_vs_5z": "mappo skirmish/3s_vs_5z --steps 5e6 --recurrent None --hidden 64 64 --frame-stack 4 --num-envs 8 "
    "--rollout-length 400 --epochs 15 --minibatches 1 --clip 0.05 --value-clip 0.05 --learning-rate 5e-4 --lr-final 1 "
    "--entropy-coef 0.01 --critic-input agent --layer-norm --input-layer-norm --dead-value masked --eval-every 1e6 "
    "--seed 50",
    "mmm2": "mappo skirmish/MMM2 --steps 3e6",
    "5m-universal": "mappo skirmish/5m --steps 733184 --seeds 3 --schedule-steps 2e6 --no-agent-id --network universal "
    "--critic-input concat",
    "foraging": "mappo lbf/8x8-2p-3f",
    "pursuit": "ippo grid/pursuit",
    "warehouse": "mappo rware/tiny-2ag-easy --steps 5e6",
    "hanabi": "mappo hanabi/mini-2p",
    "half-cheetah": "mappo mamujoco/HalfCheetah-2x3 --sharing independent",
}
"""What ``shoal train`` is called with, by the policy's name; seed 0, or from seed 0 on, where none is named."""
MOST_BYTES = 10_000_000
"""Of all entries together."""


def make(name: str) -> None:
    """Train an entry, and write its folder.

    Raises:
        SystemExit: training failed, or was interrupted.
    """
    folder = Path("runs/zoo") / name
    words = (
        ["--resume", str(folder)]
        if (folder / "run.json").is_file()
        else [*shlex.split(ENTRIES[name]), "--folder", str(folder)]
    )
    if code := command(["train", *words]):
        raise SystemExit(code)
    print(keep_policies(shoal.open_run(folder), shipped.zoo() / name))


def main() -> None:
    """Make entries, or list those that can be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*ENTRIES, []], help="entries to make", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the entries and their commands")
    args = parser.parse_args()
    if args.list or not args.names:
        for name, words in ENTRIES.items():
            made = "made" if (shipped.zoo() / name).is_dir() else "    "
            print(f"{made}  {name:<17} shoal train {words}")
    for name in args.names:
        if not (shipped.zoo() / name).is_dir():
            make(name)
    size = sum(path.stat().st_size for path in shipped.zoo().rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise SystemExit(f"The zoo has {size:,} bytes, more than {MOST_BYTES:,}: remove an entry.")


if __name__ == "__main__":
    main()
