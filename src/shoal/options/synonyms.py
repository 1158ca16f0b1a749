"""Names of options in papers, other libraries and MAPPO's code, for suggestions."""

import re
from collections.abc import Collection

_CALLED: dict[str, tuple[str, ...]] = {
    "steps": ("total_timesteps", "timesteps", "total_steps", "num_env_steps", "num_steps_total", "max_frames", "t_max"),
    "seeds": ("n_seeds", "num_seeds"),
    "num_envs": ("n_envs", "envs", "num_env", "n_rollout_threads", "num_environments", "batch_size_run"),
    "rollout_length": (
        "n_steps",
        "num_steps",
        "episode_length",
        "rollout_steps",
        "unroll_length",
        "train_freq",
        "horizon",
    ),
    "num_starts": ("num_levels", "num_train_levels", "dynamic_seed"),
    "devices": ("device", "num_devices", "gpus", "num_gpus"),
    "num_workers": ("n_workers", "num_cpus", "num_processes"),
    "normalise_rewards": ("norm_reward", "norm_rewards", "reward_normalization", "standardise_rewards"),
    "reward_clip": ("clip_reward", "clip_rewards"),
    "time_limit": ("max_episode_steps", "max_steps", "max_cycles", "episode_limit"),
    "frame_stack": ("framestack", "stack", "num_stack", "stacked_frames"),
    "blind": ("open_loop", "openloop", "time_only"),
    "last_action": ("obs_last_action", "add_last_action", "last_actions", "prev_action", "use_last_action"),
    "action_mask": ("action_masking", "mask_actions", "use_action_mask", "use_available_actions", "avail_actions"),
    "keep": ("max_to_keep", "num_checkpoints"),
    "checkpoint_seconds": ("save_interval", "checkpoint_interval", "save_freq", "checkpoint_freq"),
    "eval_episodes": ("n_eval_episodes", "num_eval_episodes", "test_nepisode"),
    "folder": ("logdir", "log_dir", "save_dir", "output", "out", "outdir", "run_dir", "results_dir"),
    "progress": ("progress_bar", "verbose", "quiet"),
    "sharing": ("share_policy", "share_param", "share_params", "parameter_sharing", "share_parameters"),
    "agent_id": ("obs_agent_id", "add_agent_id", "use_agent_id"),
    "hidden": (
        "hidden_size",
        "hidden_sizes",
        "hidden_dim",
        "hidden_dims",
        "net_arch",
        "layers",
        "hidden_layers",
        "fcnet",
    ),
    "recurrent": ("rnn", "gru", "lstm", "use_rnn", "use_recurrent_policy", "rnn_hidden_dim", "recurrent_policy"),
    "network": ("policy", "model", "net", "policy_type", "feature_extractor", "features_extractor_class"),
    "cell": ("rnn_cell", "rnn_type", "cell_type"),
    "channels": ("conv_filters", "filters", "cnn_channels", "conv_channels"),
    "critic_hidden": ("critic_hidden_size", "critic_hidden_dim", "critic_hidden_sizes"),
    "normalise_inputs": ("norm_obs", "normalize_observations", "obs_norm", "use_feature_normalization"),
    "gamma": ("discount", "discount_factor"),
    "learning_rate": ("lr", "actor_lr", "lr_actor", "pi_lr", "step_size"),
    "critic_learning_rate": ("critic_lr", "lr_critic", "vf_lr", "value_lr"),
    "lr_final": ("anneal_lr", "lr_decay", "lr_schedule", "use_linear_lr_decay", "lr_end"),
    "adam_eps": ("opti_eps", "optim_eps", "optim_alpha"),
    "max_grad_norm": ("grad_norm_clip", "grad_clip", "clip_grad", "clip_grad_norm", "max_norm", "gradient_clip"),
    "lam": ("gae_lambda", "lambda", "lambda_", "td_lambda", "gae_lam"),
    "entropy_coef": ("ent_coef", "entropy", "ent_coeff", "entropy_coeff", "entropy_coefficient"),
    "value_coef": ("vf_coef", "vf_loss_coeff", "value_loss_coef", "critic_coef"),
    "clip": (
        "clip_eps",
        "clip_range",
        "clip_coef",
        "clip_param",
        "eps_clip",
        "clip_ratio",
        "clip_epsilon",
        "cliprange",
    ),
    "value_clip": ("clip_range_vf", "vf_clip_param", "clip_vloss", "clip_value"),
    "kl_target": ("desired_kl",),
    "kl_stop": ("target_kl", "early_stop_kl", "kl_early_stop", "kl_threshold"),
    "max_kl": ("kl_threshold",),
    "huber": ("huber_delta", "use_huber_loss"),
    "value_norm": ("use_popart", "popart", "use_valuenorm"),
    "epochs": ("n_epochs", "num_epochs", "ppo_epoch", "ppo_epochs", "update_epochs", "k_epochs", "num_sgd_iter"),
    "minibatches": ("num_mini_batch", "num_minibatches", "n_minibatches", "num_mini_batches", "minibatch_size"),
    "chunk_length": ("data_chunk_length", "bptt", "seq_len"),
    "buffer_size": ("replay_size", "buffer_length", "memory_size", "replay_buffer_size", "buffer_capacity"),
    "batch_size": ("train_batch_size", "minibatch", "sample_batch_size"),
    "learning_starts": ("warmup", "warmup_steps", "start_steps", "initial_steps", "random_steps"),
    "gradient_steps": ("updates_per_step", "num_updates", "utd", "replay_ratio"),
    "target_interval": ("target_update_interval", "target_update_freq", "target_network_frequency", "hard_update"),
    "target_rate": ("tau", "polyak", "soft_update", "target_smoothing"),
    "epsilon": ("epsilon_start", "eps_start", "exploration_initial_eps", "start_e", "eps"),
    "epsilon_final": ("epsilon_finish", "epsilon_end", "eps_end", "exploration_final_eps", "end_e", "final_epsilon"),
    "epsilon_fraction": ("exploration_fraction", "epsilon_anneal_time", "eps_decay"),
    "explore_in_evaluation": ("evaluation_epsilon", "eval_epsilon", "test_epsilon"),
    "n_step": ("nstep", "n_steps_return", "multi_step"),
    "noise": ("exploration_noise", "action_noise", "noise_std", "sigma"),
    "adapt_alpha": ("auto_alpha", "autotune", "auto_entropy_tuning"),
    "alpha_learning_rate": ("alpha_lr", "lr_alpha"),
    "policy_delay": ("policy_frequency", "policy_freq", "actor_update_interval"),
    "temperature": ("gumbel_tau", "gumbel_temperature"),
}
_MEANT = {word: [name for name in _CALLED if word in _CALLED[name]] for words in _CALLED.values() for word in words}
_SIDE = re.compile(r"side\d_")


def meant(name: str, known: Collection[str]) -> str | None:
    """The option among ``known`` that other libraries call ``name``; None if there is none.

    Hyphens count as underscores, and a side's prefix (``side1_``) is kept.
    """
    plain = name.replace("-", "_").lower()
    side = match[0] if (match := _SIDE.match(plain)) else ""
    found = (side + name for name in _MEANT.get(plain.removeprefix(side), ()))
    return next((name for name in found if name in known), None)
