"""Evaluate a run with its most probable actions and with sampled ones: python examples/evaluate.py runs/x"""

import sys

import shoal


def main(folder: str) -> None:
    run = shoal.open_run(folder)
    print("greedy ", run.evaluate(episodes=512, greedy=True))
    print("sampled", run.evaluate(episodes=512, greedy=False))


if __name__ == "__main__":
    main(sys.argv[1])
