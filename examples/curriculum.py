"""Learn an easy task first, then a harder one: python examples/curriculum.py"""

import shoal

TASK = {"num_agents": 4, "num_stags": 2, "grid": (4, 4), "horizon": 20}
SIZES = {"seeds": 8, "num_envs": 32, "rollout_length": 20, "hidden": (32,), "epochs": 4}


def main(steps: float = 6e4) -> None:
    earlier = None
    for penalty in (0.0, -1.0, -2.0, -5.0):  # for each stag that an agent tries to catch alone
        env = TASK | {"penalty": penalty}
        run = shoal.train("ippo", "grid/stag_hunt", env=env, init_from=earlier, steps=steps, **SIZES)
        print(f"penalty {penalty:g}: {run.evaluate(128)}")
        earlier = run


if __name__ == "__main__":
    main()
