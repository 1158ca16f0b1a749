"""Your own Gymnasium environment, and its id in Gymnasium's registry. To train, run in this folder:

shoal train mappo own_gymnasium:Cart --steps 2e5
shoal train mappo gymnasium:own_gymnasium:Cart-v0 --steps 2e5
"""

import gymnasium
import numpy as np

import shoal


class Cart(gymnasium.Env):
    """Push a cart to the middle of a track; falling off either end ends the episode.

    Args:
        friction: speed lost in a step, 0 to 1.
    """

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def __init__(self, friction: float = 0.1, render_mode: str | None = None):
        self.friction, self.render_mode = friction, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-1, 1), 0.0
        return self._see(), {}

    def step(self, action):
        self.speed = (1 - self.friction) * self.speed + 0.1 * float(action[0])
        self.place += self.speed
        fell = abs(self.place) > 1.5
        info = {"off_middle": abs(self.place)}  # --env.metrics off_middle
        return self._see(), -abs(self.place) - 10.0 * fell, fell, False, info

    def _see(self):
        return np.array([self.place, self.speed], np.float32)


gymnasium.register("Cart-v0", entry_point="own_gymnasium:Cart", max_episode_steps=100)

if __name__ == "__main__":
    run = shoal.train("mappo", "gymnasium:own_gymnasium:Cart-v0", steps=2e5)
    print(run.evaluate())
