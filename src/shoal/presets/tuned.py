"""Tuned settings of all algorithms; :data:`shoal.presets.PRESETS` joins these tables.

The comment above each preset begins with where its values come from: a search or a study, with its name and records in
``studies/``; a paper or its code; or *chosen by hand, no record*.
"""

from typing import Any

Flags = dict[str, Any]

# Algorithms that use each rollout once.

# Chosen by hand, no record; results: docs/algorithms/mappo.md. MPE's episodes last 25 steps and their rewards are
# immediate, so γ is below the paper's 0.99; batches are smaller than the paper's 128 × 25 steps with 10 epochs, and the
# step size is larger and annealed.
_MPE: Flags = {
    "gamma": 0.95,
    "learning_rate": 2e-3,
    "lr_final": 0.0,
    "epochs": 8,
    "minibatches": 4,
    "num_envs": 16,
    "rollout_length": 128,
    "activation": "relu",  # messages need it; the paper's choice outside spread
}
_SPREAD: Flags = _MPE | {"gamma": 0.9, "epochs": 4, "activation": "tanh", "learning_rate": 3e-3, "steps": 1e7}
_SPEAKER: Flags = _MPE | {"sharing": "independent", "steps": 2e6}  # a speaker and a listener have nothing to share
_REFERENCE: Flags = _MPE | {"steps": 3e6}

_GENERAL_PPO: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _SPREAD),
    ("mpe/simple_speaker_listener", _SPEAKER),
    ("mpe/simple_reference", _REFERENCE),
    # Returns of opposing roles have different scales, and their policies have nothing in common.
    ("mpe/simple_adversary", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_push", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_crypto", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_tag", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/simple_world_comm", _MPE | {"sharing": "role", "normalise_advantage": "agent"}),
    ("mpe/*", _MPE),
]

# Search tuned_particles: the best of 12 trials with landmarks within ± 0.5; HAPPO's search found the same. What MAPPO's
# found for spread is not told apart from the preset there (docs/defaults.md). IPPO has MAPPO's.
_FOUND_REFERENCE: Flags = _REFERENCE | {
    "gamma": 0.9,
    "lam": 0.8,
    "learning_rate": 4.22692e-3,
    "entropy_coef": 1.27795e-3,
}
_PPO: list[tuple[str, Flags]] = [("mpe/simple_reference", _FOUND_REFERENCE), *_GENERAL_PPO]

# Chosen by hand, no record. Stags are caught within 100 steps; a rollout holds half an episode.
_HUNT: Flags = {
    "num_envs": 8,
    "rollout_length": 100,
    "epochs": 4,
    "minibatches": 4,
    "activation": "relu",
    "steps": 1.05e6,
}
_MAPPO: list[tuple[str, Flags]] = [*_PPO, ("grid/stag_hunt", _HUNT | {"critic_input": "state"})]
_IPPO: list[tuple[str, Flags]] = [*_PPO, ("grid/stag_hunt", _HUNT)]
# Study messages: with what MAPPO's search found for reference TarMAC diverges, so these are the presets before it.
_MESSAGES: list[tuple[str, Flags]] = [*_GENERAL_PPO, _MAPPO[-1]]

# Chosen by hand, no record: as above, but agents that update in turn have parameters of their own, their default.
_TURNS: list[tuple[str, Flags]] = [
    (pattern, {name: value for name, value in flags.items() if name != "sharing"}) for pattern, flags in _GENERAL_PPO
]

# Chosen by hand, no record, but HARL's single minibatch (Zhong et al. 2024): without a clip many steps on one batch
# lead far from the policy that acted.
_HAA2C: list[tuple[str, Flags]] = [(pattern, flags | {"epochs": 4, "minibatches": 1}) for pattern, flags in _TURNS]

# Search tuned_particles (--only algorithm=happo): the best of 12 trials with four agents.
_HAPPO_SPREAD: Flags = _SPREAD | {"gamma": 0.95, "lam": 0.95, "learning_rate": 4.31219e-3, "entropy_coef": 0.02341}
# Chosen by hand, no record: twice the default bonus. With it one of five seeds of earlier, unrecorded runs told only
# two of three landmarks apart.
_HAPPO_SPEAKER: Flags = dict(_TURNS)["mpe/simple_speaker_listener"] | {"entropy_coef": 0.02}
_HAPPO: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _HAPPO_SPREAD),
    ("mpe/simple_reference", _FOUND_REFERENCE),
    ("mpe/simple_speaker_listener", _HAPPO_SPEAKER),
    *_TURNS,
]

# Chosen by hand, no record: less damping than the code's 0.1, which turns steps towards the plain gradient and shortens
# them, and an entropy bonus.
_TRUST: Flags = {"max_kl": 0.05, "damping": 1e-3, "entropy_coef": 0.02, "epochs": 4}
_HATRPO: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _SPREAD | _TRUST | {"max_kl": 0.03, "entropy_coef": 0.005, "num_envs": 32}),
    *((pattern, flags | _TRUST) for pattern, flags in _TURNS[1:]),
]

# Chosen by hand, no record; the same for learned, independent and shared parameters. An action changes the distance
# that is rewarded at once, hence a short horizon and short rollouts.
_BPS: Flags = {
    "gamma": 0.9,
    "lam": 0.95,
    "learning_rate": 5e-3,
    "lr_final": 0.0,
    "num_envs": 16,
    "rollout_length": 10,
    "steps": 1e6,
}
_SEPS: list[tuple[str, Flags]] = [("bps/*", _BPS)]

# Chosen by hand: smaller steps than for an MLP. What search tuned_particles (--only algorithm=mat) found is equal on
# both of its tasks.
_MAT_MPE: Flags = {
    "gamma": 0.95,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "epochs": 4,
    "minibatches": 4,
    "num_envs": 16,
    "rollout_length": 128,
    "clip": 0.1,
    "value_clip": 0.2,
}
_MAT: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _MAT_MPE | {"gamma": 0.9, "steps": 1e7}),
    ("mpe/simple_speaker_listener", _MAT_MPE | {"steps": 2e6}),
    ("mpe/simple_reference", _MAT_MPE | {"steps": 3e6}),
    ("mpe/*", _MAT_MPE),
]
# Chosen by hand, no record: MAT's, in short rollouts of many environments, since minibatches are of whole rollouts.
_SABLE_MPE: Flags = _MAT_MPE | {"num_envs": 64, "rollout_length": 32, "value_norm": "running", "huber": 10.0}
_SABLE: list[tuple[str, Flags]] = [(pattern, flags | _SABLE_MPE | {"gamma": flags["gamma"]}) for pattern, flags in _MAT]
# Code of MAGPO: what its authors found for three agents and ten actions (experiment_data/params.csv).
_SUM: Flags = {"num_envs": 64, "rollout_length": 128, "epochs": 10, "steps": 1e7}
_SUM_MAGPO: Flags = _SUM | {"minibatches": 8, "guider_width": 32, "clip": 0.05, "decay": 1.0, "blocks": 2}
_SUM_MAGPO |= {"alpha": 2.0, "delta": 1.3, "value_clip": 0.05}
_SUM_SABLE: Flags = _SUM | {"minibatches": 2, "max_grad_norm": 5.0, "epochs": 15, "decay": 0.5, "blocks": 2}
_SUM_MAT: Flags = _SUM | {"epochs": 5, "clip": 0.2, "value_clip": 0.2, "heads": 4, "blocks": 2, "entropy_coef": 0.001}
_SUM_MAT |= {"learning_rate": 2.5e-4}
_SUM_PPO: Flags = _SUM | {"minibatches": 8, "max_grad_norm": 5.0, "epochs": 8, "clip": 0.05, "value_clip": 0.05}
_SUM_PPO |= {"entropy_coef": 1e-5, "learning_rate": 5e-4}
_MAGPO: list[tuple[str, Flags]] = [("matrix/coordsum", _SUM_MAGPO)]
# Chosen by hand, no record: MAPPO's, with MAPPO's clips.
_MAT_DEC: list[tuple[str, Flags]] = [
    (pattern, flags | {"clip": 0.2, "value_clip": 0.2}) for pattern, flags in _GENERAL_PPO
]

# Chosen by hand, no record; results: docs/algorithms/lica.md. There is one actor step per update, so rollouts are short
# and updates many; ξ is in standard deviations of the critic's targets.
_LICA: Flags = {
    "gamma": 0.95,
    "learning_rate": 3e-3,
    "critic_learning_rate": 4e-3,
    "lr_final": 0.0,
    "epochs": 2,
    "minibatches": 1,
    "num_envs": 16,
    "rollout_length": 8,
    "value_norm": "running",
    "entropy_coef": 5e-4,
    "target_rate": 0.1,
    "activation": "relu",
    "chunk_length": 8,
}
_LICA_TASKS: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _LICA | {"gamma": 0.9, "activation": "tanh"}),
    ("mpe/simple_speaker_listener", _LICA | {"sharing": "independent", "steps": 2e6}),
    # With 50 actions for each of two agents a wide mixing layer is expensive.
    ("mpe/simple_reference", _LICA | {"mixing_width": 16, "rollout_length": 16, "steps": 3e6}),
    ("mpe/*", _LICA),
]

# Chosen by hand, no record; results: docs/algorithms/a2c.md. There is one gradient step per batch, so batches are
# small; the entropy bonus is larger than PPO's.
_A2C: Flags = {
    "gamma": 0.95,
    "lam": 0.95,
    "learning_rate": 2e-3,
    "lr_final": 0.0,
    "num_envs": 16,
    "rollout_length": 8,
    "activation": "relu",
    "entropy_coef": 0.03,
}
_A2C_TASKS: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _A2C | {"gamma": 0.9, "activation": "tanh", "entropy_coef": 0.01}),
    ("mpe/simple_speaker_listener", _A2C | {"sharing": "independent", "steps": 2e6}),
    ("mpe/simple_reference", _A2C | {"steps": 3e6}),
    ("mpe/*", _A2C | {"sharing": "role", "normalise_advantage": "agent"}),
]

# Chosen by hand, no record; results: docs/algorithms/coma.md. The worth of one agent's action is a small part of the
# return's variance: Q takes several passes over each batch, and the entropy bonus, in units of the advantage, keeps the
# policy from becoming certain meanwhile.
_COMA: Flags = {
    "gamma": 0.95,
    "learning_rate": 1e-3,
    "critic_learning_rate": 2e-3,
    "lr_final": 0.0,
    "epochs": 4,
    "minibatches": 4,
    "num_envs": 16,
    "rollout_length": 25,
    "chunk_length": 25,
    "hidden": (128, 128),
    "activation": "relu",
    "value_norm": "running",
    "target_rate": 0.02,
    "scale_advantage": True,
    "entropy_coef": 0.03,
    "entropy_final": 0.003,
    "epsilon": 0.0,
    "epsilon_final": 0.0,
}
_COMA_TASKS: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _COMA | {"gamma": 0.9}),
    ("mpe/simple_speaker_listener", _COMA | {"sharing": "independent", "steps": 2e6}),
    ("mpe/simple_reference", _COMA | {"steps": 3e6}),
    ("mpe/*", _COMA),
]

# Search tuned_particles (--only algorithm=pqn_vdn): of 12 trials with four agents, and of 12 on reference, the best was
# the first, which has these values. They had been chosen by hand, no record: JaxMARL's γ, λ and epochs for spread
# (Gallici et al. 2025), fewer environments, longer rollouts and larger annealed steps; the step size and the
# minibatches are the best of five trials of 200,000 steps with seed 0.
_PQN_MPE: Flags = {
    "gamma": 0.9,
    "lam": 0.3,
    "learning_rate": 2e-3,
    "minibatches": 64,
    "num_envs": 128,
    "rollout_length": 25,
    "steps": 2e6,
}
# Chosen by hand, no record. Without replay and target networks few environments do not suffice.
_PQN_ELSEWHERE: Flags = {"num_envs": 32, "rollout_length": 32, "minibatches": 8}
# Search tuned_foraging (--only algorithm=pqn_vdn): the best of 12 trials in lbf/7x7-3p-2f and lbf/8x8-2p-2f. Greedy
# agents block each other there (docs/evaluation.md).
_PQN_FORAGING: Flags = _PQN_ELSEWHERE | {
    "explore_in_evaluation": True,
    "learning_rate": 1.3164e-4,
    "lam": 0.65,
    "epsilon_fraction": 0.440838,
    "gamma": 0.9,
}
# Search tuned_warehouse (--only algorithm=pqn_vdn): the best of 9 trials in warehouses of other sizes.
_PQN_WAREHOUSE: Flags = _PQN_ELSEWHERE | {
    "explore_in_evaluation": True,
    "learning_rate": 3.43672e-4,
    "lam": 0.65,
    "epsilon_fraction": 0.404843,
}
_PQN: list[tuple[str, Flags]] = [
    ("lbf/*", _PQN_FORAGING),
    ("rware/*", _PQN_WAREHOUSE),
    ("mpe/simple_speaker_listener", _PQN_MPE | {"sharing": "independent"}),
    ("mpe/*", _PQN_MPE),
    ("*", _PQN_ELSEWHERE),
]

# Studies unknown, unknown_methods and unknown_foraging, for environments without a preset. Of the tuning tasks that
# decide something, MAPPO is equal on one and not told apart on the other with the paper's 10 passes over undivided
# batches, which take more than twice the time (unknown). HAPPO is better than with its paper's 5 on both
# (unknown_methods, unknown_foraging). With a falling step MAPPO is better on one and worse on none
# (unknown, unknown_foraging). IPPO has MAPPO's. Matrix games have the algorithms' own defaults: nothing is tuned on
# them.
_ELSEWHERE: list[tuple[str, Flags]] = [("matrix/*", {}), ("*", {"epochs": 4, "minibatches": 4})]
_PPO_ELSEWHERE: list[tuple[str, Flags]] = [("matrix/*", {}), ("*", _ELSEWHERE[-1][1] | {"lr_final": 0.0})]

# Study warehouse_settings: MAPPO delivers more with a constant step than with a falling one, and than with what search
# tuned_warehouse found, on both sizes, and more than in 32 environments on one. IPPO has MAPPO's, and so have coloured
# warehouses, which were not compared. HAPPO is worse on one size with what its search found.
_PPO_WAREHOUSES: list[tuple[str, Flags]] = [("rware/*", _ELSEWHERE[-1][1])]

ON_POLICY: dict[str, list[tuple[str, Flags]]] = {
    "coma": _COMA_TASKS,
    "mapg": _COMA_TASKS,
    "maa2c": _A2C_TASKS,
    "ia2c": _A2C_TASKS,
    "lica": _LICA_TASKS,
    "mappo": [*_MAPPO, *_PPO_WAREHOUSES, ("matrix/coordsum", _SUM_PPO), *_PPO_ELSEWHERE],
    "commnet": _MESSAGES,
    "tarmac": _MESSAGES,
    "ippo": [*_IPPO, *_PPO_WAREHOUSES, *_PPO_ELSEWHERE],
    "haa2c": _HAA2C,
    "happo": [*_HAPPO, *_ELSEWHERE],
    "hatrpo": _HATRPO,
    "ipqn": _PQN,
    "pqn_vdn": _PQN,
    "seps": _SEPS,
    "magpo": _MAGPO,
    "mat": [*_MAT, ("matrix/coordsum", _SUM_MAT)],
    "sable": [*_SABLE, ("matrix/coordsum", _SUM_SABLE)],
    "mat_dec": _MAT_DEC,
    "poca": [*_GENERAL_PPO, ("grid/stag_hunt", _HUNT)],
}

# Algorithms that learn from a replay buffer.

# Chosen by hand, no record: a gradient step per 64 environment steps is nearer to what the papers do than the sizes of
# an on-policy run are.
_ANYWHERE: Flags = {"num_envs": 8, "rollout_length": 32, "gradient_steps": 4}

# Study ddpg_exploration: noise on continuous actions that falls is better than a constant 0.1 on both tuning tasks.
_FALLING: Flags = {"noise": 0.5, "noise_final": 0.02}
# Paper (Lowe et al. 2017: one gradient step on 1024 transitions per 100 environment steps), with a third of its step
# size, chosen by hand, no record; results: docs/algorithms/maddpg.md.
_MADDPG_MPE: Flags = _FALLING | {"learning_rate": 3e-3, "num_envs": 4, "rollout_length": 25, "steps": 1.5e6}
# Search tuned_particles (--only algorithm=maddpg): the best of 12 trials, the same with four agents and with landmarks
# within ± 0.5. IDDPG and MATD3, which were not searched, have MADDPG's.
_MADDPG_FOUND: Flags = _MADDPG_MPE | {
    "gamma": 0.9,
    "learning_rate": 1.27259e-3,
    "target_rate": 0.0346074,
    "gradient_steps": 2,
}
_MADDPG: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _MADDPG_FOUND),
    ("mpe/simple_reference", _MADDPG_FOUND),
    ("mpe/*", _MADDPG_MPE),
    ("matrix/*", _ANYWHERE | {"learning_rate": 1e-3}),
    ("*", _FALLING | _ANYWHERE | {"learning_rate": 1e-3}),
]

# Chosen by hand, no record: four gradient steps per 100 environment steps, twice the usual width and an annealed step;
# rewards are standardised, since they lie far from 0 and no episode can end early.
_Q_MPE: Flags = {
    "gamma": 0.95,
    "num_envs": 4,
    "rollout_length": 25,
    "gradient_steps": 4,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "target_rate": 0.01,
    "reward_norm": "standardise",
    "learning_starts": 2500,
    "hidden": (128, 128),
    "steps": 2e6,
}
# Code of pymarl2 (λ and the step size; it has a GRU), the rest chosen by hand, no record; results:
# docs/algorithms/qmix.md.
_Q_HUNT: Flags = {
    "num_envs": 8,
    "rollout_length": 25,
    "batch_size": 32,
    "sequence_length": 25,
    "lam": 0.5,
    "learning_rate": 1e-3,
    "target_rate": 0.01,
    "steps": 1.05e6,
}
# Study foraging_q_targets: the best of five settings in lbf/7x7-3p-2f, of three in lbf/9x9-3p-3f and of two in
# lbf/8x8-2p-2f, one of them the winner of the search tuned_qmix (24 trials in lbf/8x8-2p-2f).
_Q_FORAGING: Flags = _ANYWHERE | {
    "batch_size": 16,
    "sequence_length": 16,
    "lam": 0.6,
    "learning_rate": 1e-3,
    "lr_final": 0.0,
    "target_rate": 0.01,
    "epsilon_fraction": 0.5,
    "gamma": 0.95,
    "reward_norm": "scale",
    "explore_in_evaluation": True,
}
_Q: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _Q_MPE | {"gamma": 0.9}),
    ("mpe/simple_speaker_listener", _Q_MPE | {"sharing": "independent"}),
    ("mpe/*", _Q_MPE),
    ("grid/stag_hunt", _Q_HUNT),
    ("lbf/8x8-2p-2f", _Q_FORAGING | {"steps": 3e5}),
    ("lbf/*", _Q_FORAGING),
    ("*", _ANYWHERE),
]
# Study normalisation_q: QMIX learns more with layer normalisation on both tuning tasks. Its relatives were not
# measured.
_LAYERS: Flags = {"layer_norm": True}
# Search tuned_foraging (--only algorithm=qmix): the best of 12 trials in lbf/7x7-3p-2f and lbf/8x8-2p-2f. Study
# searched_foraging: better in two larger games.
_QMIX_FORAGING: Flags = _LAYERS | {
    "gradient_steps": 8,
    "lam": 0.8,
    "learning_rate": 1.3248e-3,
    "target_rate": 0.0130899,
    "epsilon_fraction": 0.100367,
    "gamma": 0.9,
}
_QMIX_HAS: dict[str, Flags] = {"mpe": _LAYERS, "lbf": _QMIX_FORAGING}
_QMIX: list[tuple[str, Flags]] = [(pattern, flags | _QMIX_HAS.get(pattern.split("/")[0], {})) for pattern, flags in _Q]

# Code of HARL (tuned_configs of its repository; Zhong et al. 2024, Liu et al. 2024): a gradient step per step of all
# its 20 environments, or 10 of HADDPG and HATD3 in MA-MuJoCo. HARL takes 50 of them after 50 such steps; shorter
# rollouts with the same ratio hold fewer batches in memory. HARL's runs of MPE have 5 and 10 million steps.
_HA_MPE: Flags = {"num_envs": 20, "rollout_length": 25, "gradient_steps": 25, "hidden": (128, 128), "steps": 1e6}
_HA_DDPG: list[tuple[str, Flags]] = [("mpe/*", _HA_MPE), ("*", _ANYWHERE)]
_SAC_SIZES: Flags = {"num_envs": 20, "rollout_length": 10, "gradient_steps": 10}
_SAC_MPE: Flags = _SAC_SIZES | {"learning_rate": 5e-4, "critic_learning_rate": 5e-4, "n_step": 20, "steps": 1e6}
_HA_SAC: list[tuple[str, Flags]] = [("mpe/*", _SAC_MPE), ("*", _ANYWHERE)]
# HASAC's sizes, batches and step sizes for teams; targets have one reward. In particle environments the first
# temperature is in the scale of their rewards, and discrete policies may become certain (docs/algorithms/isac.md). For
# Gymnasium's single agents the paper's gradient step for each environment step (Haarnoja et al. 2018). No search.
_ISAC: Flags = {"batch_size": 1000, "learning_rate": 1e-3}
_ISAC_MPE: Flags = {"learning_rate": 5e-4, "alpha": 0.05, "entropy_share": 0.0, "steps": 1e6}
_ISAC_TASKS: list[tuple[str, Flags]] = [
    ("mpe/*", _SAC_SIZES | _ISAC | _ISAC_MPE),
    ("mamujoco/*", _SAC_SIZES | _ISAC | {"steps": 1e6, "eval_episodes": 20}),
    ("gymnasium:*", {"num_envs": 4, "rollout_length": 16, "gradient_steps": 64}),
    ("*", _ANYWHERE | _ISAC),
]

# Chosen by hand, no record: the batches of MA-MuJoCo's preset.
_FACMAC: list[tuple[str, Flags]] = [("*", _ANYWHERE | {"batch_size": 1000})]

OFF_POLICY: dict[str, list[tuple[str, Flags]]] = {
    "iql": _Q,
    "vdn": _Q,
    "qmix": _QMIX,
    "qplex": _Q,
    "qtran": _Q,
    "shaq": _Q,
    "maddpg": _MADDPG,
    "iddpg": _MADDPG,
    "matd3": _MADDPG,
    "facmac": _FACMAC,
    "haddpg": _HA_DDPG,
    "hatd3": _HA_DDPG,
    "hasac": _HA_SAC,
    "masac": _HA_SAC,
    "isac": _ISAC_TASKS,
}

# Skirmish, and environments of other libraries.

# Paper (Yu et al. 2022, appendix, MAPPO on SMAC), with batches of about the same size from more environments, which the
# compiled environment makes cheap, and a larger step with fewer epochs, chosen by hand, no record.
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
# Search tuned_skirmish (--only algorithm=mappo): the best of 9 trials with drawn armies; λ and the clip are the first
# trial's. Study normalisation_battles: layer normalisation.
_SMAC_MAPPO: Flags = _SMAC | {"learning_rate": 2.32734e-3, "entropy_coef": 6.65213e-3, "layer_norm": True}
# Search tuned_skirmish (--only algorithm=happo): the best of 9 trials with drawn armies.
_SMAC_HAPPO: Flags = _SMAC | {"learning_rate": 2.35556e-3, "entropy_coef": 1.86611e-2, "lam": 0.9, "clip": 0.1}
_SMAC_IPPO: Flags = {name: value for name, value in _SMAC.items() if name != "critic_input"}

# Code of pymarl (Rashid et al. 2018; Samvelyan et al. 2019): a GRU of 64 that reads the agent's last action and id, one
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

# Code of JaxMARL for SMAX (Gallici et al. 2025), with a quarter of the data in each update and a smaller net, as suits
# a fifth of its steps, chosen by hand, no record. Search tuned_skirmish (--only algorithm=pqn_vdn) found none better.
_PQN_SMAC: Flags = {
    "hidden": (128,),
    "recurrent": 128,
    "num_envs": 64,
    "rollout_length": 64,
    "minibatches": 16,
    "epsilon_final": 0.01,
    "steps": 2e6,
}

# Study (lica_steps): pymarl2's settings, as far as there are options for them.
_LICA_BATTLES: Flags = {
    "hidden": (64,),
    "recurrent": 64,
    "activation": "relu",
    "critic_input": "state",
    "lam": 0.6,
    "learning_rate": 2.5e-3,
    "critic_learning_rate": 5e-4,
    "adam_eps": 1e-8,
    "entropy_coef": 0.06,
    "entropy_scale": "batch",
    "num_envs": 8,
    "rollout_length": 64,
    "chunk_length": 64,
    "last_action": True,
}

SKIRMISH: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [("skirmish/*", _SMAC_MAPPO)],
    "ippo": [("skirmish/*", _SMAC_IPPO)],
    "commnet": [("skirmish/*", _SMAC)],
    "tarmac": [("skirmish/*", _SMAC)],
    "poca": [("skirmish/*", _SMAC_IPPO)],
    "haa2c": [("skirmish/*", _SMAC | {"minibatches": 1})],  # as in _HAA2C
    "happo": [("skirmish/*", _SMAC_HAPPO)],
    "lica": [("skirmish/*", _LICA_BATTLES)],
    **{name: [("skirmish/*", _PYMARL)] for name in ("qmix", "vdn", "qplex", "qtran", "shaq", "iql")},
    "pqn_vdn": [("skirmish/*", _PQN_SMAC)],
    "ipqn": [("skirmish/*", _PQN_SMAC)],
    **{name: [("*", {"steps": 1, "num_envs": 1, "rollout_length": 1})] for name in ("constant", "random", "scripted")},
}


# Code of HARL for MA-MuJoCo's HalfCheetah 2x3 (Zhong et al. 2024), whose standard deviation starts at 0.37; running
# statistics of the inputs stand in for its norm of each sample's features: study normalisation_bodies.
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
# Search tuned_bodies (--only algorithm=mappo): the best of 6 trials with parameters of each agent's own.
_BODY_MAPPO: Flags = _BODY | {"learning_rate": 1.46011e-3, "clip": 0.2, "entropy_coef": 4.39288e-4}
# Search tuned_bodies (--only algorithm=happo): the best of 6 trials.
_BODY_HAPPO: Flags = _BODY | {"learning_rate": 1.4374e-3, "clip": 0.1, "entropy_coef": 3.99775e-3, "log_std": -0.5}
# Code of HARL for Ant 4x2.
_ANT: Flags = _BODY | {"epochs": 5, "clip": 0.1, "value_clip": 0.1, "entropy_coef": 0.0}
# Code of HARL for Bi-DexHands' ShadowHandOver (Zhong et al. 2024: discount, step size and epochs), with smaller
# batches, since there are fewer hands in parallel. Both are right hands, in the frame of the world: nothing is shared.
_HANDS: Flags = {
    "hidden": (256, 256),
    "activation": "relu",
    "normalise_inputs": True,
    "gamma": 0.95,
    "learning_rate": 5e-4,
    "num_envs": 32,
    "rollout_length": 75,
    "epochs": 5,
    "minibatches": 4,
    "log_std": -0.7,
    "entropy_coef": 0.0,
    "sharing": "independent",
    "critic_input": "state",
    "steps": 1e6,
    "eval_episodes": 32,
}
# Code of HARL for HalfCheetah 2x3 and Ant 4x2, for all robots; its own for Walker2d and Hopper have steps of 1e-4.
_HAA2C_BODY: Flags = {name: value for name, value in _BODY.items() if name != "clip"} | {
    "epochs": 5,
    "value_clip": 0.1,
    "entropy_coef": 0.0,
    "lr_final": 0.0,
}
_HATRPO_BODY: Flags = {name: value for name, value in _BODY.items() if name != "clip"} | {"max_kl": 0.01}
# Code of HARL for its off-policy methods, by task; the comment of _HA_MPE says what was changed.
_BODIES: Flags = {"critic_input": "state", "steps": 1e6, "eval_episodes": 20}
_TEN: Flags = _BODIES | {"num_envs": 10, "rollout_length": 10, "gradient_steps": 10}
_HATD3_BODIES: list[tuple[str, Flags]] = [
    ("mamujoco/Walker2d-2x3", _TEN | {"n_step": 20, "policy_delay": 8}),
    ("mamujoco/Walker2d-*", _TEN | {"n_step": 25}),
    ("mamujoco/HalfCheetah-*", _TEN | {"n_step": 10}),
    ("mamujoco/*", _TEN | {"n_step": 5}),
]
_HADDPG_BODIES: list[tuple[str, Flags]] = [
    ("mamujoco/Ant-*", _TEN | {"n_step": 20, "gradient_steps": 5, "noise": 0.05}),
    ("mamujoco/Walker2d-2x3", _TEN | {"n_step": 10}),
    ("mamujoco/*", _TEN | {"n_step": 20}),
]
# Code of FACMAC for MA-MuJoCo (Peng et al. 2021), which takes a gradient step after every environment step; here a
# batch of ten times the size after every tenth, with ten times its target_rate.
_FACMAC_BODIES: Flags = _TEN | {"batch_size": 1000, "target_rate": 0.01}
# Code of HARL for HASAC, by task.
_SOFT: Flags = _BODIES | {"num_envs": 20, "rollout_length": 10, "gradient_steps": 10}
_FIXED: Flags = _SOFT | {"adapt_alpha": False, "alpha": 0.2}
_FIXED_ANT: Flags = _FIXED | {"n_step": 5, "critic_learning_rate": 3e-4}
_HASAC_BODIES: list[tuple[str, Flags]] = [
    *((f"mamujoco/Ant-{parts}", _FIXED_ANT | {"batch_size": 2200}) for parts in ("2x4", "8x1")),
    ("mamujoco/Ant-*", _FIXED_ANT),
    ("mamujoco/Walker2d-*", _FIXED | {"n_step": 20, "learning_rate": 5e-4}),
    ("mamujoco/*", _SOFT | {"n_step": 10}),
]
# Paper (Wen et al. 2022, HalfCheetah 6x1), with larger steps and fewer minibatches than its 5e-5 and 40, as suits a
# tenth of its steps, chosen by hand, no record.
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

# Chosen by hand, no record: PPO as it is commonly tuned to LunarLander, with larger minibatches and a step annealed to
# match. One agent.
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

# Chosen by hand, no record. Episodes have at most 100 steps; the policy is recurrent because of partial observation.
_PPO_FORAGING: Flags = {
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

# Chosen by hand, no record, in SMAX of JaxMARL 0.2: wider than the paper's 64, and as many timesteps as agents can
# share.
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

# Chosen by hand, no record: sizes of images that keep what moves. The ball of Cooperative Pong is two pixels wide.
_PONG: Flags = {"greyscale": True, "resize": (56, 96), "frame_stack": 4}
# Chosen by hand, no record. The steps are those of half an hour on two cores (docs/results.md).
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
# Study pursuit (channels), the rest chosen by hand, no record. One convolution leaves 5 × 5 × 32 numbers of Pursuit's
# windows, the default three 1 × 1 × 32.
_PURSUIT: Flags = {
    "channels": (32,),
    "normalise_rewards": True,
    "num_envs": 32,
    "rollout_length": 128,
    "epochs": 4,
    "minibatches": 4,
    "steps": 1e6,
}
# Chosen by hand on mini-2p, no record: single runs of 1 to 4 million steps, beside λ = 0.95, an entropy coefficient of
# 0.01, half this step size and nets of 256. MAPPO's critic reads the hand of the player on turn.
_HANABI: Flags = {
    "hidden": (128, 128),
    "num_envs": 256,
    "rollout_length": 32,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 1e-3,
    "lr_final": 0.1,
    "lam": 0.9,
    "entropy_coef": 0.03,
    "steps": 5e6,
}
# PettingZoo's tutorial with CleanRL, which learns values from each agent's own image; those of all 20 would be 328,000
# numbers.
_PISTONS: Flags = {"greyscale": True, "resize": (64, 64), "frame_stack": 4}
ADAPTERS: dict[str, list[tuple[str, Flags]]] = {
    "mappo": [
        ("mamujoco/Ant-*", _ANT),
        ("mamujoco/*", _BODY_MAPPO),
        ("hands/*", _HANDS),
        ("gymnasium:LunarLander*", _LANDER),
        ("lbf/*", _PPO_FORAGING),
        ("jaxmarl/smax/*", _SMAX),
        ("hanabi/*", _HANABI | {"critic_input": "state"}),
        ("pettingzoo:*pistonball*", _PISTONS | {"critic_input": "local"}),
        ("pettingzoo:*cooperative_pong*", _PONG),
    ],
    "ippo": [
        ("mamujoco/*", {name: value for name, value in _BODY.items() if name != "critic_input"}),
        ("hands/*", {name: value for name, value in _HANDS.items() if name != "critic_input"}),
        ("gymnasium:LunarLander*", _LANDER),
        ("pettingzoo:*cooperative_pong*", _PONG_IPPO),
        ("grid/pursuit", _PURSUIT),
        ("hanabi/*", _HANABI),
        ("pettingzoo:*pursuit*", _PURSUIT),
        ("pettingzoo:*pistonball*", _PISTONS),
    ],
    "haa2c": [("mamujoco/*", _HAA2C_BODY)],
    "happo": [("mamujoco/Ant-*", _ANT), ("mamujoco/*", _BODY_HAPPO), ("hands/*", _HANDS)],
    "hatrpo": [("mamujoco/*", _HATRPO_BODY)],
    "facmac": [("mamujoco/*", _FACMAC_BODIES)],
    "haddpg": _HADDPG_BODIES,
    "hatd3": _HATD3_BODIES,
    "hasac": _HASAC_BODIES,
    "masac": _HASAC_BODIES,
    "mat": [("mamujoco/*", _MAT_BODY)],
}
