"""Tuned settings for ``skirmish/…``, each with its source."""

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
