"""A team in PettingZoo by onnxruntime and NumPy: python examples/deploy_onnx.py policy.onnx mpe2.simple_spread_v3

Neither Shoal nor JAX is imported. The model was trained in the same environment and exported, for example by

shoal train mappo pettingzoo:mpe2.simple_spread_v3 --steps 2e5 --folder runs/x
shoal export runs/x --output policy.onnx

It plays environments whose agents act at once, with flat observations and discrete actions.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class Team:
    """An exported team, with the state that it keeps between the timesteps of an episode."""

    def __init__(self, path):
        self.about = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
        self.session = onnxruntime.InferenceSession(path)
        self.inputs = {port["name"]: port for port in self.about["inputs"]}
        self.reset()

    def reset(self):
        """Start an episode."""
        self.first = True
        self.state = {name: self.zeros(name) for name in self.about["state"]}

    def zeros(self, name):
        """An input for a batch of one."""
        return np.zeros((1, *self.inputs[name]["shape"][1:]), self.inputs[name]["dtype"])

    def act(self, observations, masks):
        """Actions by agent.

        Args:
            observations: arrays by agent; an agent that is missing has left.
            masks: of legal actions, by agent; without one all are legal.
        """
        given = {name: self.zeros(name) for name in self.inputs}
        for i, agent in enumerate(self.about["agents"]):
            given["legal"][0, i, : agent["actions"]] = masks.get(agent["name"], True)
            if agent["name"] in observations:
                given["observation"][0, i, : agent["features"]] = observations[agent["name"]].reshape(-1)
                if "alive" in given:
                    given["alive"][0, i] = True
        if "first" in given:
            given["first"][:] = self.first
        names = [port["name"] for port in self.about["outputs"]]
        found: dict[str, Any] = dict(zip(names, self.session.run(names, given | self.state), strict=True))
        self.first, self.state = False, {name: found[after] for name, after in self.about["state"].items()}
        chosen = zip(self.about["agents"], found["action"][0], strict=True)
        actions = {agent["name"]: agent["space"][2] + int(index) for agent, index in chosen}  # from the space's start
        return {name: actions[name] for name in observations}


def play(team, env, seed=0):
    """The sum of all rewards in one episode."""
    observations, infos = env.reset(seed=seed)
    team.reset()
    total = 0.0
    while env.agents:
        masks = {name: info["action_mask"] for name, info in infos.items() if "action_mask" in info}
        actions = team.act({name: observations[name] for name in env.agents}, masks)
        observations, rewards, _, _, infos = env.step(actions)
        total += sum(rewards.values())
    return total


def main(model, module):
    team = Team(model)
    total = play(team, importlib.import_module(module).parallel_env())
    print(f"{len(team.about['agents'])} agents; their rewards sum to {total:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
