"""Train an agent in parts, and look at it in between: python examples/agent.py"""

import shoal


def main(part: float = 1e5) -> None:
    agent = shoal.agent("mappo", "mpe/simple_spread", steps=3 * part)
    print(agent.evaluate())  # before any training
    for _ in range(3):
        print(agent.train(part).evaluate())
    observations = [[0.0] * 18] * 3
    print(agent.act(observations))
    print(agent.save("spread"))  # shoal.agent(folder="spread") goes on from here
    agent.close()


if __name__ == "__main__":
    main()
