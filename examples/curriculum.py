"""Learn an easy task first, then a harder one: python examples/curriculum.py"""

import shoal

TASK = {"num_agents": 4, "num_stags": 2, "grid": (4, 4), "horizon": 20}


def main(steps: float = 6e4) -> None:
    earlier = None
    for penalty in (0.0, -5.0):  # for every stag that an agent tries to catch alone
        run = shoal.train(
            "ippo",
            "grid/stag_hunt",
            env={**TASK, "penalty": penalty},
            init_from=earlier,
            steps=steps,
            seeds=3,
            epochs=4,
        )
        print(f"penalty {penalty:g}: {run.evaluate(128)}")
        earlier = run


if __name__ == "__main__":
    main()
