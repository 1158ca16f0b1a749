"""How far exported policies are from the policies, their sizes, and the time of a call.

    python benchmarks/export.py            # every row
    python benchmarks/export.py gru mat    # rows whose title contains one of these words

One row for each network: the largest differences over ``--episodes`` episodes of random observations and legal actions
between :meth:`shoal.deploy.Policies.act` with its distributions and the exported model, which carries its own state:
``actions`` is the share of equal actions, ``onnx`` and ``stablehlo`` the largest difference of probabilities, means or
utilities. Parameters are drawn at random, so that actions differ from step to step. Times are medians of a call for a
batch of one on one thread, by onnxruntime and by ``act``.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "MLP": ("mappo", "skirmish/3s5z", {}),
    "MLP, own parameters": ("happo", "skirmish/3s5z", {}),
    "MLP, continuous": ("happo", "mpe/simple_spread", {"continuous": True}),
    "MLP, deterministic": ("maddpg", "mpe/simple_spread", {"continuous": True}),
    "GRU": ("mappo", "skirmish/3s5z", {"recurrent": 64}),
    "GRU, Q-learning": ("qmix", "skirmish/3s5z", {"recurrent": 64}),
    "LSTM": ("ippo", "skirmish/3s5z", {"recurrent": 64, "cell": "lstm"}),
    "attention over entities": ("mappo", "skirmish/3s5z", {"network": "entities"}),
    "normalised inputs": ("mappo", "skirmish/3s5z", {"normalise_inputs": True}),
    "convolutions": ("mappo", "grid/pursuit", {"network": "cnn"}),
    "sequence of agents": ("mat", "skirmish/3s5z", {}),
}
STEPS = 20


def team_of(algorithm: str, task: str, flags: dict[str, Any]) -> Any:
    """An untrained team whose parameters are far from zero."""
    import jax
    import numpy as np

    from shoal.algorithms import get
    from shoal.deploy import Policies
    from shoal.environments import registry
    from shoal.options.flags import override

    flags = dict(flags)
    spec = registry.make(task, **({"continuous_actions": True} if flags.pop("continuous", False) else {})).spec
    module = get(algorithm)
    made = module.make_policy(spec, override(module.Config(), flags))
    policy, rng = made.init(jax.random.key(0)).policy, np.random.default_rng(0)
    moved = jax.tree.map(lambda x: (x + 0.1 * rng.normal(size=x.shape)).astype(np.float32), policy.actor)
    return Policies(spec, made, policy._replace(actor=moved))


def measure(title: str, episodes: int) -> str:
    """One row."""
    import jax
    import numpy as np
    import onnxruntime

    from shoal.export.function import policy_function
    from shoal.types import Discrete

    team = team_of(*ROWS[title])
    spec, rng = team.spec, np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        model = team.export(Path(folder) / "policy.onnx")
        seconds, size = time.perf_counter() - began, model.stat().st_size
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        hlo = team.export(Path(folder) / "policy.stablehlo", format="stablehlo")
        call = jax.jit(jax.export.deserialize(bytearray(hlo.read_bytes())).call)
    function = policy_function(spec, team._algorithm, team._learner.policy)
    names = list(function.outputs)
    told = next(name for name in ("probabilities", "mean", "utilities") if name in names)
    reference = jax.jit(function.apply)
    worst, equal, times, acts = {"onnx": 0.0, "stablehlo": 0.0}, [], [], []
    for _ in range(episodes):
        zeros = {name: np.zeros((1, *function.inputs[name].shape), np.float32) for name in function.state}
        states, first = {"onnx": zeros, "stablehlo": zeros, "reference": zeros}, True
        team.reset()
        for _ in range(STEPS):
            obs = rng.normal(size=(spec.num_agents, spec.obs_dim)).astype(np.float32)
            obs = np.where(np.arange(spec.obs_dim) < np.array(spec.obs_dims)[:, None], obs, 0)
            legal = np.arange(spec.action.width) < np.array(spec.action_dims)[:, None]
            if isinstance(spec.action, Discrete):
                legal = legal & (rng.random(legal.shape) < 0.7) | (np.arange(spec.action.width) == 0)
            given: dict[str, Any] = {"observation": obs[None], "legal": legal[None], "first": np.full(1, first)}
            given["alive"] = np.ones((1, spec.num_agents), bool)
            given = {name: x for name, x in given.items() if name in function.inputs}
            found: dict[str, Any] = {}
            began = time.perf_counter()
            found["onnx"] = dict(zip(names, session.run(names, given | states["onnx"]), strict=True))
            times.append(time.perf_counter() - began)
            found["stablehlo"] = call(given | states["stablehlo"])
            found["reference"] = reference(given | states["reference"])
            began = time.perf_counter()
            expected = team.act(obs, legal)
            acts.append(time.perf_counter() - began)
            close = np.isclose(found["onnx"]["action"][0], expected, atol=1e-5)
            equal.append(close.mean())
            for form in worst:
                gap = np.abs(np.asarray(found[form][told]) - np.asarray(found["reference"][told]))
                worst[form] = max(worst[form], float(np.nanmax(gap)))
            states = {form: {name: x[f"next_{name}"] for name in function.state} for form, x in found.items()}
            first = False
    cells = [title, f"{ROWS[title][0]}, `{ROWS[title][1]}`", f"{np.mean(equal):.4f}"]
    cells += [f"{worst['onnx']:.1e}", f"{worst['stablehlo']:.1e}", f"{size / 1024:,.0f}", f"{seconds:.1f}"]
    cells += [f"{np.median(times) * 1e6:,.0f}", f"{np.median(acts) * 1e6:,.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="words of titles; all rows without them")
    parser.add_argument("--episodes", type=int, default=10)
    given = parser.parse_args()
    print("| network | of | actions | onnx | stablehlo | KiB | export (s) | onnxruntime (µs) | `act` (µs) |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for title in ROWS:
        if not given.words or any(word.lower() in title.lower() for word in given.words):
            print(measure(title, given.episodes), flush=True)


if __name__ == "__main__":
    main()
