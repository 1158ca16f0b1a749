"""Tuned settings of the algorithms that learn from a replay buffer, each with its source."""

from shoal.presets.on_policy import Flags

# Nothing is tuned to an unknown environment, but a gradient step per 64 environment steps is nearer to what the papers
# do than the sizes of an on-policy run are.
_ANYWHERE: Flags = {"num_envs": 8, "rollout_length": 32, "gradient_steps": 4}

# The paper's settings (Lowe et al. 2017: one gradient step on 1024 transitions per 100 environment steps) with a third
# of its step size; docs/algorithms/maddpg.md has results with it.
_MADDPG: list[tuple[str, Flags]] = [
    ("mpe/*", {"learning_rate": 3e-3, "num_envs": 4, "rollout_length": 25, "steps": 1.5e6}),
    ("*", _ANYWHERE | {"learning_rate": 1e-3}),
]

# Found in short runs on two cores: four gradient steps per 100 environment steps, twice the usual width and an annealed
# step; rewards are standardised, since they lie far from 0 and no episode can end early.
_MPE: Flags = {
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
# λ and the step size are those of the published run (pymarl2), which has a GRU; results: docs/algorithms/qmix.md.
_HUNT: Flags = {
    "num_envs": 8,
    "rollout_length": 25,
    "batch_size": 32,
    "sequence_length": 25,
    "lam": 0.5,
    "learning_rate": 1e-3,
    "target_rate": 0.01,
    "steps": 1.05e6,
}
# The winner of `shoal tune tuned_qmix` (24 trials, 9.4M steps); results: studies/results/tuned_qmix.md.
_FORAGING: Flags = _ANYWHERE | {
    "learning_rate": 5.26551e-4,
    "target_rate": 0.0617244,
    "epsilon_fraction": 0.655394,
    "gamma": 0.9,
    "gradient_steps": 16,
    "buffer_size": 50_000,
    "steps": 3e5,
}
_Q: list[tuple[str, Flags]] = [
    ("mpe/simple_spread", _MPE | {"gamma": 0.9}),
    ("mpe/simple_speaker_listener", _MPE | {"sharing": "independent"}),
    ("mpe/*", _MPE),
    ("grid/stag_hunt", _HUNT),
    ("*", _ANYWHERE),
]

OFF_POLICY: dict[str, list[tuple[str, Flags]]] = {
    "iql": _Q,
    "vdn": _Q,
    "qmix": [("lbf/8x8-2p-2f", _FORAGING), *_Q],
    "qplex": _Q,
    "qtran": _Q,
    "maddpg": _MADDPG,
    "iddpg": _MADDPG,
    "matd3": _MADDPG,
}
