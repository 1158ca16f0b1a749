"""A team in PettingZoo by onnxruntime and NumPy: python examples/deploy_onnx.py policy.onnx mpe2.simple_spread_v3

Neither Shoal nor JAX is imported. The model was trained in the same environment and exported, for example by

shoal train mappo pettingzoo:mpe2.simple_spread_v3 --steps 2e5 --folder runs/x
shoal export runs/x --output policy.onnx

It plays environments whose agents act at once, with flat observations, and with discrete actions or boxes. Policies of
the mode ``sampled`` are drawn from, which those of MAT and Sable cannot be in this way (docs/export.md).
"""

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class Team:
    """An exported team, with the state that it keeps between the timesteps of an episode."""

    def __init__(self, path, seed=0):
        self.draws = np.random.default_rng(seed)
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
            observations: arrays by agent, whose names may be numbers; an agent that is missing has left.
            masks: of legal actions, by agent; without one all are legal.
        """
        given, agents = {name: self.zeros(name) for name in self.inputs}, self.about["agents"]
        seen, masks = ({str(name): row for name, row in rows.items()} for rows in (observations, masks))
        legal = np.zeros((1, len(agents), max(agent["actions"] for agent in agents)), bool)
        for i, agent in enumerate(agents):
            legal[0, i, : agent["actions"]] = masks.get(agent["name"], True)
            if agent["name"] in seen:
                if "observation" in given:  # a blind policy reads none
                    given["observation"][0, i, : agent["features"]] = seen[agent["name"]].reshape(-1)
                if "alive" in given:
                    given["alive"][0, i] = True
        if "legal" in given:
            given["legal"][...] = legal
        if "first" in given:
            given["first"][:] = self.first
        names = [port["name"] for port in self.about["outputs"]]
        found: dict[str, Any] = dict(zip(names, self.session.run(names, given | self.state), strict=True))
        self.first, self.state = False, {name: found[after] for name, after in self.about["state"].items()}
        chosen = self.drawn(found, legal) if self.about["mode"] == "sampled" else found["action"]
        if "last_action" in self.state:
            self.state["last_action"] = chosen
        box = self.about["action"]
        actions = {agent["name"]: own(agent["space"], box, row) for agent, row in zip(agents, chosen[0], strict=True)}
        return {name: actions[str(name)] for name in observations}

    def drawn(self, found, legal):
        """Actions drawn from the distributions among the outputs, in place of the greedy ones."""
        action, box = found["action"], self.about["action"]
        if "probabilities" in found:
            rows = found["probabilities"][0]
            index = np.array([self.draws.choice(len(row), p=row) for row in rows])
            allowed = legal[0, np.arange(len(rows)), index]  # False only for policies without masks
            return np.where(allowed, index, legal[0].argmax(-1))[None].astype(action.dtype)
        noise = self.draws.standard_normal(action.shape)
        if "mean" not in found:
            return action
        low, high = float(box["low"]), float(box["high"])  # infinite ones are text
        drawn = np.clip(found["mean"] + found["std"] * noise, low, high)
        if "normal_mean" in found:  # NaN for agents of a side whose actions are not squashed
            x = np.tanh(found["normal_mean"] + found["normal_std"] * noise)
            drawn = np.where(np.isnan(x), drawn, low + (high - low) * (x + 1) / 2)
        return np.where(legal, drawn, action).astype(action.dtype)


def own(space, whole, row):
    """An agent's action in its own space: from an index, or from a row of at least as many numbers as a box has, which
    lie in the box ``whole``."""
    if space[0] == "index":
        return space[2] + int(row)  # from the space's start
    _, shape, low, high, dtype = space
    row = row[: math.prod(shape)]
    if low is None:
        row, low, high = row.astype(np.float64), float(whole["low"]), float(whole["high"])
    else:
        low, high = np.array(low), np.array(high)
        row = low + (row + 1) / 2 * (high - low)
    row = np.clip(row, low, high)
    if np.issubdtype(np.dtype(dtype), np.integer):
        row = np.rint(row)
    return row.astype(dtype).reshape(shape)


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
