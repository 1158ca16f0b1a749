"""Train a team with several seeds and print the results: python examples/train.py"""

import shoal


def main() -> None:
    run = shoal.train("mappo", "mpe/simple_spread", steps=1e6, seeds=2)
    print(run.summary())
    print(run.evaluate(episodes=512))
    print(run.curves())
    print(run.replay(run.folder / "spread.gif"))


if __name__ == "__main__":
    main()
