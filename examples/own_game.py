"""A host environment with Shoal's own interface: bidders with little money. To train in it, run in this folder:

shoal train mappo own_game:Auction --steps 2e5 --env.bidders 4
"""

import numpy as np

import shoal


class Auction:
    """One item after another goes to the highest bid, until all are sold or no bidder has money left.

    Args:
        bidders: number of bidders.
        rounds: items for sale.
    """

    def __init__(self, bidders: int = 3, rounds: int = 10):
        n = self.n = bidders
        self.spec = shoal.EnvSpec(
            name="auction",
            agents=tuple(f"bidder_{i}" for i in range(n)),
            obs_dims=(3,) * n,
            state_dim=2 * n,
            action=shoal.Discrete(5),  # how much to bid
            action_dims=(5,) * n,
            roles=(0,) * n,
            horizon=rounds,
            shared_reward=False,
            metrics=("spent",),
        )

    def reset(self, seed: int, out: shoal.HostTimestep) -> None:
        self.rng = np.random.default_rng(seed)
        self.money, self.time = np.full(self.n, 10), 0
        self._show(out)

    def step(self, action: np.ndarray, out: shoal.HostTimestep) -> None:
        winner = int(action.argmax())
        self.money[winner] -= action[winner]
        out.reward[winner] = self.worth[winner] - action[winner]
        out.metrics[0] = 10 * self.n - self.money.sum()
        self.time += 1
        broke = not self.money.any()
        if broke:
            out.discount[:] = 0.0  # a termination; at the time limit it stays 1
        out.last[...] = broke or self.time >= self.spec.horizon
        self._show(out)

    def _show(self, out: shoal.HostTimestep) -> None:
        self.worth = self.rng.uniform(0, 4, self.n)
        left = np.full(self.n, 1 - self.time / self.spec.horizon)
        out.obs[:] = np.stack([self.money / 10, self.worth, left], axis=1)
        out.state[:] = out.obs[:, :2].ravel()
        out.legal[:] = np.arange(5) <= self.money[:, None]  # no bid above the bidder's money

    def render(self) -> np.ndarray | None:
        return None

    def close(self) -> None:
        pass


if __name__ == "__main__":
    run = shoal.train("mappo", "own_game:Auction", steps=2e5)
    print(run.evaluate())
