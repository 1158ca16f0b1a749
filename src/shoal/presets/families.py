"""Tuned settings for ``skirmish/…`` and in environments of other libraries, each with its source."""

from shoal.presets.on_policy import Flags

# MAPPO's settings for SMAC (Yu et al. 2022, appendix) with batches of about the same size from more environments, which
# the compiled environment makes cheap, and a larger step with fewer epochs.
_SMAC: Flags = {
    "hidden": (64,),
    "recurrent": 64,
    "activation": "relu",
    "num_envs": 64,
    "rollout_length": 64,
    "epochs": 5,
    "minibatches": 2,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "critic_input": "state",
    "steps": 2e6,
}
_IPPO: Flags = {name: value for name, value in _SMAC.items() if name != "critic_input"}

# As in pymarl (Rashid et al. 2018; Samvelyan et al. 2019): a GRU of 64 that reads the agent's last action and id, one
# gradient step on 32 sequences for each episode's worth of steps, ε from 1 to 0.05 over 50,000 steps. Adam stands in
# for RMSProp; sequences have 60 steps instead of whole episodes.
_PYMARL: Flags = {
    "hidden": (64,),
    "recurrent": 64,
    "activation": "relu",
    "last_action": True,
    "num_envs": 8,
    "rollout_length": 60,
    "sequence_length": 60,
    "batch_size": 32,
    "gradient_steps": 8,
    "buffer_size": 250_000,
    "learning_rate": 5e-4,
    "lr_final": 1.0,
    "epsilon_fraction": 0.025,
    "steps": 2e6,
}

SKIRMISH: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [("skirmish/*", _SMAC)],
    "ippo": [("skirmish/*", _IPPO)],
    "happo": [("skirmish/*", _SMAC)],
    "qmix": [("skirmish/*", _PYMARL)],
    "vdn": [("skirmish/*", _PYMARL)],
    "iql": [("skirmish/*", _PYMARL)],
    "scripted": [("*", {"steps": 1, "num_envs": 1, "rollout_length": 1})],
}


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
# HARL's of Ant 4x2.
_ANT: Flags = _BODY | {"epochs": 5, "clip": 0.1, "value_clip": 0.1, "entropy_coef": 0.0}
_HATRPO_BODY: Flags = {name: value for name, value in _BODY.items() if name != "clip"} | {"max_kl": 0.01}
# Larger steps and fewer minibatches than MAT's own for HalfCheetah 6x1 (Wen et al. 2022: 5e-5, 40), as suits a tenth of
# its steps.
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

# One agent: PPO as it is commonly tuned to LunarLander, with larger minibatches and a step annealed to match.
_LANDER: Flags = {
    "num_envs": 16,
    "rollout_length": 512,
    "gamma": 0.999,
    "lam": 0.98,
    "epochs": 4,
    "minibatches": 32,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "normalise_inputs": True,
    "critic_input": "local",
    "steps": 1e6,
    "eval_episodes": 100,
}

# Episodes have at most 100 steps; the policy is recurrent because of partial observation.
_FORAGING: Flags = {
    "recurrent": 64,
    "num_envs": 64,
    "rollout_length": 32,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "activation": "relu",
    "critic_input": "concat",
    "steps": 1e6,
}

# Found in one short run on two cores, in SMAX of JaxMARL 0.2: wider than the paper's 64, and as many timesteps as
# agents can share.
_SMAX: Flags = {
    "hidden": (128,),
    "recurrent": 128,
    "num_envs": 64,
    "rollout_length": 64,
    "epochs": 4,
    "minibatches": 4,
    "lr_final": 0.0,
    "steps": 2.5e6,
}

# Sizes of images that keep what moves: the ball of Cooperative Pong is two pixels wide. Pistonball's wrappers are those
# of PettingZoo's tutorial with CleanRL, which learns values from each agent's own image; those of all 20 would be
# 328,000 numbers.
_PONG: Flags = {"greyscale": True, "resize": (56, 96), "frame_stack": 4}
# The steps are those of half an hour on two cores (docs/results.md).
_PONG_IPPO: Flags = {
    "greyscale": True,
    "resize": (28, 48),
    "frame_stack": 4,
    "normalise_rewards": True,
    "num_envs": 16,
    "rollout_length": 64,
    "epochs": 4,
    "minibatches": 8,
    "learning_rate": 1e-3,
    "steps": 333_824.0,
    "eval_episodes": 100,
}
# One convolution leaves 5 × 5 × 32 numbers of Pursuit's windows, the default three 1 × 1 × 32 (`shoal study pursuit`).
_PURSUIT: Flags = {
    "channels": (32,),
    "normalise_rewards": True,
    "num_envs": 32,
    "rollout_length": 128,
    "epochs": 4,
    "minibatches": 4,
    "steps": 1e6,
}
_PISTONS: Flags = {"greyscale": True, "resize": (64, 64), "frame_stack": 4}
ADAPTERS: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [
        ("mamujoco/Ant-*", _ANT),
        ("mamujoco/*", _BODY),
        ("gymnasium:LunarLander*", _LANDER),
        ("lbf/*", _FORAGING),
        ("jaxmarl/smax/*", _SMAX),
        ("pettingzoo:*pistonball*", _PISTONS | {"critic_input": "local"}),
        ("pettingzoo:*cooperative_pong*", _PONG),
    ],
    "ippo": [
        ("mamujoco/*", {name: value for name, value in _BODY.items() if name != "critic_input"}),
        ("pettingzoo:*cooperative_pong*", _PONG_IPPO),
        ("grid/pursuit", _PURSUIT),
        ("pettingzoo:*pursuit*", _PURSUIT),
        ("pettingzoo:*pistonball*", _PISTONS),
    ],
    "happo": [("mamujoco/Ant-*", _ANT), ("mamujoco/*", _BODY)],
    "hatrpo": [("mamujoco/*", _HATRPO_BODY)],
    "mat": [("mamujoco/*", _MAT_BODY)],
}
