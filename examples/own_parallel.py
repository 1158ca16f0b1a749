"""Your own PettingZoo environment: scouts and a carrier who must meet. To train, run in this folder:

shoal train mappo own_parallel:Meeting --steps 2e5
"""

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import shoal


class Meeting(ParallelEnv):
    """Scouts and a slow carrier on a line should meet; a scout that leaves the field is lost.

    Args:
        num_scouts: number of scouts beside the carrier.
        max_cycles: steps after which an episode is cut off.
    """

    def __init__(self, num_scouts: int = 2, max_cycles: int = 25, render_mode: str | None = None):
        self.max_cycles, self.render_mode = max_cycles, render_mode
        self.scouts = [f"scout_{i}" for i in range(num_scouts)]
        self.possible_agents = [*self.scouts, "carrier"]

    def observation_space(self, agent):
        # A scout observes its place, the carrier's and the time; the carrier only its own place.
        return Box(-2.0, 2.0, (1 if agent == "carrier" else 3,), np.float32)

    def action_space(self, agent):
        return Discrete(3 if agent == "carrier" else 5)  # left, stay, right; a scout can also move twice as far

    def reset(self, seed=None, options=None):
        rng = np.random.default_rng(seed)
        self.agents, self.time = list(self.possible_agents), 0
        self.place = {agent: rng.uniform(-1, 1) for agent in self.agents}
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        for agent, action in actions.items():
            self.place[agent] += 0.1 * (action - self.action_space(agent).n // 2)
        lost = {agent for agent in self.agents if abs(self.place[agent]) > 1.5}
        apart = max(abs(self.place[a] - self.place["carrier"]) for a in self.agents)
        met, late = apart < 0.1, self.time >= self.max_cycles
        reward = 10.0 * met - apart - 5.0 * len(lost)

        seen = self._see()
        rewards = dict.fromkeys(self.agents, reward)
        terminations = {agent: met or agent in lost or "carrier" in lost for agent in self.agents}
        truncations = dict.fromkeys(self.agents, late)  # a time limit, not a termination
        self.agents = [a for a in self.agents if not (terminations[a] or late)]
        infos = {agent: {"won": met} for agent in seen}  # --env.metrics won
        return seen, rewards, terminations, truncations, infos

    def _see(self):
        scout = [self.place["carrier"], self.time / self.max_cycles]
        rows = {agent: [self.place[agent]] + (scout if agent != "carrier" else []) for agent in self.agents}
        return {agent: np.array(row, np.float32) for agent, row in rows.items()}


if __name__ == "__main__":
    run = shoal.train("mappo", "own_parallel:Meeting", steps=2e5)
    print(run.evaluate())
