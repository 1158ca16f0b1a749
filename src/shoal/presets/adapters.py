"""Tuned settings in environments that others wrote, each with its source."""

from shoal.presets.on_policy import Flags

# HARL's tuned settings of MA-MuJoCo's HalfCheetah 2x3 (Zhong et al. 2024), whose standard deviation starts at 0.37;
# running statistics of the inputs stand in for its norm of each sample's features.
_BODY: Flags = {
    "hidden": (128, 128, 128),
    "activation": "relu",
    "normalise_inputs": True,
    "learning_rate": 5e-4,
    "num_envs": 20,
    "rollout_length": 200,
    "epochs": 15,
    "clip": 0.05,
    "value_clip": 0.05,
    "log_std": -1.0,
    "critic_input": "state",
    "steps": 1e6,
    "eval_episodes": 20,
}
_HATRPO_BODY: Flags = {name: value for name, value in _BODY.items() if name != "clip"} | {"max_kl": 0.01}
# MAT's published settings of HalfCheetah 6x1 (Wen et al. 2022), with as many environments as the others.
_MAT_BODY: Flags = {
    "normalise_inputs": True,
    "learning_rate": 3e-4,
    "num_envs": 20,
    "rollout_length": 200,
    "epochs": 10,
    "minibatches": 8,
    "clip": 0.05,
    "value_clip": 0.05,
    "entropy_coef": 0.001,
    "log_std": -1.0,
    "steps": 1e6,
    "eval_episodes": 20,
}

ADAPTERS: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [("mamujoco/*", _BODY)],
    "ippo": [("mamujoco/*", {name: value for name, value in _BODY.items() if name != "critic_input"})],
    "happo": [("mamujoco/*", _BODY)],
    "hatrpo": [("mamujoco/*", _HATRPO_BODY)],
    "mat": [("mamujoco/*", _MAT_BODY)],
}
