"""The command line, in process: what it does, what it prints, and how it refuses."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal import cli
from shoal.algorithms import mapg, mappo, qmix
from shoal.errors import InputError, NonFiniteError
from shoal.presets import preset
from shoal.runs.load import load
from shoal.training.checks import note_on_schedules
from shoal.training.progress import Progress
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer

SPREAD = ["train", "mappo", "mpe/simple_spread"]
TUNED = preset("mappo", "mpe/simple_spread")
# Ten updates, in which episodes end. Nearly every test says the same, so that the program is compiled once.
TINY = ["--num-envs", "2", "--rollout-length", "8", "--steps", "1.6e2", "--seeds", "2", "--env.horizon", "4"]
TINY += ["--hidden", "8", "--orthogonal", "False", "--epochs", "1", "--minibatches", "2", "--eval-episodes", "3"]
TINY += ["--no-tensorboard"]


def tiny(*changes: str) -> list[str]:
    """:data:`TINY` with other values of some flags; a flag may be given once."""
    values = dict(zip(TINY[:-1:2], TINY[1:-1:2], strict=True)) | dict(zip(changes[::2], changes[1::2], strict=True))
    return [*(word for pair in values.items() for word in pair), TINY[-1]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert cli.main([*SPREAD, *TINY, "--folder", str(folder)]) == 0
    return folder


def config(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"]


# Training


def test_flags_reach_settings_config_network_and_environment(run: Path) -> None:
    said = config(run)
    assert (said["algorithm"], said["environment"], said["env"]) == ("mappo", "mpe/simple_spread", {"horizon": 4})
    assert (said["settings"]["steps"], said["settings"]["seeds"], said["settings"]["tensorboard"]) == (160, 2, False)
    assert (said["config"]["minibatches"], said["config"]["hidden"]) == (2, [8])
    assert said["config"]["gamma"] == TUNED["gamma"], "what is not said comes from the preset"


def test_a_finished_run_has_its_pictures(run: Path) -> None:
    assert {"curves.png", "replay.gif", "evaluation.json", "metrics.jsonl", "policy"} <= {p.name for p in run.iterdir()}


def test_the_summary_has_the_next_commands(shoal: Callable, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy of a run"
    shutil.copytree(run, folder)
    code, out, err = shoal("train", "--resume", folder, "--no-progress")
    assert (code, err) == (0, "This run has finished its 160 steps per seed; more steps would continue it.\n")
    assert "greedy score" in out and "2 seeds × 3 episodes" in out
    assert str(folder / "replay.gif") in out
    assert f"shoal train --resume '{folder}' --steps 320" in out, "a command must survive a shell"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--steps 320", True),
        ("--steps 320 --schedule-steps 160", False),
        ("--steps 320 --time-budget 1e-9", False),  # has ended
        ("--steps 80", False),  # is refused
    ],
)
def test_a_run_whose_schedules_more_steps_stretch_says_so(
    words: str, told: bool, shoal: Callable, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(_: Any, trainer: Trainer, *__: Any) -> Any:
        trainer.progress.tell(trainer.notes, [])
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api._trained", trained)
    folder = shutil.copytree(run, tmp_path / "run")
    _, _, err = shoal("train", "--resume", folder, *words.split())
    note = "Schedules stretch to 320 steps, so that rates and exploration jump back; --schedule-steps 160 keeps their "
    assert (f"{note}last values." in err) == told and ("Schedules" in err) == told


def test_there_is_no_such_note_without_schedules() -> None:
    before, after = Settings(steps=1e4), Settings(steps=2e4)
    stay, change = (mappo.Config(), mapg.Config()), (mappo.Config(lr_final=0.5), qmix.Config())
    for config in (*stay, *change):
        assert bool(note_on_schedules(before, after, config)) == (config in change)


def test_the_command_printed_after_ctrl_c_continues_the_run(
    shoal: Callable, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "update", lambda *_: signal.raise_signal(signal.SIGINT))
        code, out, err = shoal(*SPREAD, *TINY, "--folder", folder)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == f"shoal train --resume {folder}"
    code, _, err = shoal("train", "--resume", folder, "--eval-episodes", "0")
    assert code == 0, err
    rows, straight = (
        [json.loads(line) for line in (f / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for f in (folder, run)
    )
    assert [row["update"] for row in rows] == [*range(1, 11)]
    assert [row["entropy"] for row in rows] == [row["entropy"] for row in straight]
    assert config(folder)["config"] == config(run)["config"]


def test_ctrl_c_before_anything_is_saved(shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.runs.api.train_configured", stop)
    assert shoal(*SPREAD, "--folder", tmp_path / "run") == (130, "", "Stopped.\n")


def test_ctrl_c_before_training_says_how_to_start_it(
    shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"

    def stop(*_: object, **__: object) -> None:
        folder.mkdir()
        (folder / "run.json").write_text("{}", encoding="utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.runs.api.train_configured", stop)
    said = f"Stopped before training began; start it with\nshoal train --resume {folder}\n"
    assert shoal(*SPREAD, "--folder", folder) == (130, "", said)


def test_a_run_shorter_than_an_episode_finishes(shoal: Callable, tmp_path: Path) -> None:
    short = tiny("--rollout-length", "2", "--steps", "4", "--minibatches", "1", "--eval-episodes", "0")
    code, out, err = shoal(*SPREAD, *short, "--no-progress", "--folder", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "no episode ended" in out


def test_training_with_nan_exits_with_code_1(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise NonFiniteError("value_loss is nan.")

    monkeypatch.setattr("shoal.runs.api.train_configured", broken)
    assert shoal(*SPREAD) == (1, "", "shoal: value_loss is nan.\n")


def test_a_name_for_one_agent_is_that_of_a_team(shoal: Callable, tmp_path: Path) -> None:
    words = ["--num-envs", "2", "--rollout-length", "8", "--steps", "16", "--hidden", "8", "--epochs", "1"]
    words += ["--minibatches", "2", "--eval-episodes", "0", "--no-tensorboard", "--no-progress", "--seeds", "2"]
    code, _, err = shoal("train", "ppo", "mpe/simple", *words, "--env.horizon", "4", "--folder", tmp_path / "run")
    assert code == 0, err
    assert config(tmp_path / "run")["algorithm"] == "ippo"
    code, _, err = shoal("train", "ppo", "mpe/simple", "--resume", tmp_path / "run", "--no-progress")
    assert code == 0, err
    team = load(tmp_path / "run", seed=1, greedy=False)
    says = "ippo in mpe/simple, seed 1; {}4 numbers observed, 1 of 5 actions chosen; sampled)"
    assert repr(team) == "Policies(" + says.format("one agent (agent_0); ")
    assert repr(team.agent(0)) == "AgentPolicy(agent_0 of " + says.format("")


def test_a_users_environment(shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).parents[2] / "examples" / "own_environment.py"
    (tmp_path / "walkers.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, out, _ = shoal("train", "ippo", "walkers:meeting", "--help")
    assert code == 0
    assert "--env.num-agents INT" in out and "number of walkers. (default: 3)" in out
    words = [*tiny("--eval-episodes", "0", "--seeds", "1"), "--env.num-agents", "4", "--folder", "run"]
    code, out, err = shoal("train", "ippo", "walkers:meeting", *words)
    assert code == 0, err
    assert config(tmp_path / "run")["env"] == {"horizon": 4, "num_agents": 4}
    assert "run/replay.gif" in out


# Looking at a run


def test_evaluate(shoal: Callable, run: Path) -> None:
    code, out, err = shoal("evaluate", run, "--episodes", "3")
    assert (code, err) == (0, "")
    assert "2 seeds × 3 episodes" in out and "seed 1: " in out
    _, sampled, _ = shoal("evaluate", "--sampled", "--episodes", "3", run)
    assert sampled != out and "has not finished" not in out + sampled


def test_evaluate_says_of_which_step_an_unfinished_runs_policies_are(
    shoal: Callable, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "unfinished"
    shutil.copytree(run, folder)
    said = json.loads((folder / "run.json").read_text("utf-8"))
    said["config"]["settings"]["steps"] = 320.0
    (folder / "run.json").write_text(json.dumps(said), "utf-8")
    code, out, err = shoal("evaluate", folder, "--episodes", "3")
    assert (code, err) == (0, "")
    assert out.endswith("\nthe policies of step 160 of 320: the run has not finished\n")


def test_export_prints_the_models_path_and_refuses_other_suffixes(run: Path, shoal: Callable, tmp_path: Path) -> None:
    model = tmp_path / "new" / "team.onnx"
    assert shoal("export", run, "--output", model, "--seed", "1") == (0, f"{model}\n", "")
    assert sorted(path.name for path in model.parent.iterdir()) == ["team.onnx", "team.onnx.json"]
    code, _, err = shoal("export", run, "--format", "stablehlo", "--output", model)
    assert code == 2 and "team.onnx is to be written in the format stablehlo; for this name the format is onnx" in err
    one, other = tmp_path / "one.onnx", tmp_path / "other"
    told = "This is seed 0, the first of 2; --seed chooses another.\n"
    assert shoal("export", run, "--output", one, "--agent", "1") == (0, f"{one}\n", told)
    assert [each["name"] for each in json.loads(Path(f"{one}.json").read_text("utf-8"))["agents"]] == ["agent_1"]
    for command in ("export", "curves", "replay", f"curves {run}"):
        code, _, err = shoal(*command.split(), run, "--output", other / "team.bin")
        assert code == 2 and ("must end in .onnx" in err if command == "export" else "must end in ." in err)
    assert not other.exists()


def test_replay(shoal: Callable, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "video.gif"
    assert shoal("replay", run, "--output", path, "--episodes", "1", "--seed", "1") == (0, f"{path}\n", "")
    assert path.read_bytes()[:3] == b"GIF"


def test_curves_of_one_run_and_of_several(shoal: Callable, run: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    assert shoal("curves", run, "--output", one, "--metrics", "return", "entropy") == (0, f"{one}\n", "")
    assert shoal("curves", run, run, "--output", two) == (0, f"{two}\n", "")
    assert one.exists() and two.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian", "did you mean 'train'?"),
        ("train", "needs an algorithm and an environment"),
        ("train mappo", "needs an environment"),
        ("train mappo mpe/simple_spread again", "'again' is an extra word"),
        ("train mapo mpe/simple_spread", "did you mean 'mappo'?"),
        ("train hatrpo mpe/simple_spread --kl-threshold 0.01", "did you mean --max-kl?"),
        ("train mappo mpe/simple_spred", "did you mean 'mpe/simple_spread'?"),
        ("train mappo no_such_module:thing", "no module 'no_such_module'"),
        ("train mappo mpe/simple_spread --learning-rat 1", "has no flag --learning-rat; did you mean --learning-rate?"),
        ("train mappo mpe/simple_spread --lr 1e-3", "has no flag --lr; did you mean --learning-rate?"),
        ("train mappo mpe/simple_spread --clip-eps=0.1", "has no flag --clip-eps; did you mean --clip?"),
        ("train qmix mpe/simple_spread --tau 0.01", "has no flag --tau; did you mean --target-rate?"),
        ("train mappo mpe/simple_spread --total_timesteps 9", "did you mean --steps?"),
        ("train mappo+ippo mpe/simple_tag --side1-lr 1", "did you mean --side1-learning-rate?"),
        ("train mappo mpe/simple_spread --hidden", "--hidden needs a value: INT..."),
        ("train mappo mpe/simple_spread --hidden --seeds 2", "--hidden needs a value: INT..."),
        ("train mappo mpe/simple_spread --hidden=", "--hidden needs a value: INT..."),
        ("train iddpg mpe/simple_tag --local_roles", "--local-roles needs a value: INT..."),
        ("train ppo mpe/simple_spread", "ppo is for one agent, and mpe/simple_spread has 3: use ippo, which is ppo"),
        ("train dqn mpe/simple_tag", "dqn is for one agent, and mpe/simple_tag has 4: use iql"),
        ("train sac mpe/simple_spread", "sac is for one agent, and mpe/simple_spread has 3: use isac"),
        ("train mappo mpe/simple_spread --zzz", "--help lists all flags"),
        ("train mappo mpe/simple_spread --env.agents 3", "did you mean --env.num-agents?"),
        ("train mappo mpe/simple_spread --seeds 1.5", "--seeds cannot be '1.5'; it takes INT."),
        ("train mappo mpe/simple_spread --hidden 64 wide", "--hidden cannot be '64 wide'; it takes INT..."),
        ("train mappo mpe/simple_spread --sharing rolle", "it takes shared|role|independent|INT..."),
        ("train mappo mpe/simple_spread --env.convention x", "--env.convention cannot be 'x'; it takes mpe2|openai."),
        ("train mappo mpe/simple_spread --steps", "--steps needs a value: NUMBER."),
        ("train mappo mpe/simple_spread --env.num-agents 0", "num_agents must be an integer of at least 1, not 0."),
        ("train mappo mpe/simple_spread --env.local-ratio 1 --env.convention openai", "local_ratio has no meaning"),
        ("train mappo mpe/simple_spread --minibatches 5", "do not divide into 5 minibatches"),
        ("train mappo mpe/simple_spread --num-envs 0", "num_envs must be at least 1"),
        ("train mappo mpe/simple_spread --devices 64", "devices is 64"),
        ("train mappo mpe/simple_spread --recurrent 8 --chunk-length 7", "7"),
        ("train mappo mpe/simple_spread --sharing 0 1", "sharing"),
        (
            "train mappo mpe/simple_spread --address 10.0.0.1:6379",
            "address is that of a Ray cluster: add --workers ray",
        ),
        ("train mappo mpe/simple_spread --curve-episodes 8", "curve_episodes is that of evaluations during training"),
        ("train mappo mpe/simple_spread --chunk-length 8", "chunk_length is that of recurrent nets"),
        ("train sable mpe/simple_spread --chunk-length 8", "the length of chunks with --retention-chunk"),
        ("train hasac mpe/simple_spread --sequence-length 8", "sequence_length is that of sequences, and windows of"),
        ("train maddpg mpe/simple_spread --sequence-length 8", "sequence_length is that of recurrent nets"),
        ("train tarmac mpe/simple_spread --silent --signature-width 8", "signature_width is that of messages: leave"),
        ("train mappo+ippo mpe/simple_tag --side1-chunk-length 8", "side1_chunk_length is that of recurrent nets"),
        ("train mappo mpe/simple_spread --num-workers 4", "compiled with the update: leave out num_workers."),
        ("train qmix skirmish/3m --worker-timeout 5", "worker_timeout is that of worker processes, and skirmish/3m is"),
        ("train mappo counters:hosted --num-workers 0 --worker-timeout 5", "starts none: leave out worker_timeout."),
        ("train mappo mpe/simple_spread --reward-clip 5", "reward_clip clips normalised rewards"),
        ("train sable mpe/simple_spread --no-memory --decay 0.5", "decay is that of memory over time: add --memory"),
        ("train magpo mpe/simple_spread --guider mat --decay 0.5", "decay is that of Sable's network: choose"),
        ("train magpo mpe/simple_spread --recurrent 8 --chunk-length 8", "chunk_length is not used with a guider that"),
        ("train qmix mpe/simple_spread --network mlp --channels 8", "channels is that of networks for images: choose"),
        ("train mappo mpe/simple_spread --entity-heads 2", "entity_heads is that of attention among entities: choose"),
        ("train mappo mpe/simple_spread --no-orthogonal --gain 2", "gain is that of orthogonal kernels: add --orth"),
        ("train mappo mpe/simple_spread --blind --frame-stack 4", "frame_stack changes observations that --blind"),
        ("train mappo mpe/simple_spread --sharing independent --no-agent-id", "agent_id is for agents that share"),
        ("train happo mpe/simple_spread --agent-id", "agent_id is for agents that share parameters: set --sharing"),
        ("train masac mpe/simple_spread --order fixed", "order matters only to agents that share parameters"),
        ("train commnet mpe/simple_spread --draws 4", "draws is that of baselines of MAPPO that need a Q"),
        ("train mapg+maddpg mpe/simple_tag --draws 4", "draws is for continuous actions, and mpe/simple_tag has"),
        ("train constant mpe/simple_spread --value 0.5", "value is for continuous actions, and mpe/simple_spread has"),
        ("train constant mpe/simple_spread --env.continuous-actions --action 3", "action is for discrete actions, and"),
        ("train qmix mpe/simple_spread --hyper-layers 1 --hyper-width 12", "hyper_width is that of a hidden layer"),
        ("train qplex mpe/simple_spread --attention-width 8", "attention_width is that of hidden layers: raise --att"),
        ("train mapg mpe/simple_spread --critic independent --critic-input concat", "is that of a centralised critic"),
        ("train mapg mpe/simple_spread --epsilon-fraction 0.5", "epsilon_fraction is that of a change of the explo"),
        ("train mappo mpe/simple_spread --no-orthogonal --output-gain 1", "output_gain is that of an orthogonal"),
        ("train seps bps/1 --sharing role --latent 3", "latent is for sharing that is learned: leave out --sharing"),
        ("train seps bps/1 --clusters 3 --criterion held_out", "criterion selects the number of clusters: leave out"),
        ("train mappo mpe/simple_spread --epochs 1 --recompute-advantages", "recompute_advantages is for the epochs"),
        ("train mat mpe/simple_spread --epochs 1 --minibatches 1 --clip 0.1", "clip limits changes since the first"),
        ("train maddpg mpe/simple_spread --model-entropy-coef 1", "model_entropy_coef is that of models of the other"),
        ("train haddpg mpe/simple_spread --noise-fraction 0.5", "noise_fraction is that of a change of the noise"),
        ("train matd3 mpe/simple_spread --target-noise 0.1", "target_noise is for continuous actions, and mpe/simple"),
        ("train mappo+maddpg mpe/simple_tag --side2-noise 0.1", "side2_noise is for continuous actions"),
        ("train hasac mpe/simple_spread --no-adapt-alpha --entropy-share 1", "entropy_share is that of adapted temper"),
        (
            "train hasac mpe/simple_spread --env.continuous-actions --entropy-share 1",
            "entropy_share is for discrete actions, and mpe/simple_spread has continuous ones",
        ),
        (
            "train hatd3 mpe/simple_spread --env.continuous-actions --logit-coef 0.1",
            "logit_coef is for discrete actions, and mpe/simple_spread has continuous ones",
        ),
        ("train mappo mpe/simple_spread --target-entropy-rate 0.1", "target_entropy_rate is a step towards"),
        ("train mappo mpe/simple_spread --value-norm none --value-norm-beta 0.9", "value_norm_beta is that of the"),
        ("train mappo mpe/simple_spread --folder a\0b", "holds the character NUL"),
        ("train mappo mpe/simple_spread --folder a\udcff", "must be UTF-8 text"),
        ("train mappo mpe/simple_spread --folder a\\b", "with a backslash in its name"),
        ("train mappo mpe/simple_spread --minibatches 5 --print-config", "do not divide into 5 minibatches"),
        ("train mappo mpe/simple_spread --recurrent 8 --chunk-length 7 --print-config", "chunk_length 7"),
        ("train mappo mpe/simple_spread --env.num-agents 0 --print-config", "num_agents must be an integer"),
        ("train mappo mpe/simple_spread --opponents nobody --print-config", "opponents 'nobody' is neither"),
        ("train mappo mpe/simple_spread --init-from nobody --print-config", "not the folder of a run"),
        ("train mappo mpe/simple_spread --callback nobody --print-config", "--callback takes module:MyCallback"),
        ("train mappo pettingzoo:", "pettingzoo: does not name a module"),
        ("train mappo pettingzoo:.", "pettingzoo:. does not name a module"),
        ("train mappo sub/own.py:Meeting", "has the name of its module: 'sub.own:Meeting', not 'sub/own.py:Meeting'."),
        ("train mappo gymnasium:nobody:", "There is no module 'nobody', which gymnasium:nobody: needs: neither in "),
        ("train mappo gymnasium:Swimmer-v5 --env.xml-file evil", "Gymnasium cannot make 'Swimmer-v5': File"),
        ("train --resume nothing", "not the folder of a run"),
        ("train --resume None --config None", "needs an algorithm and an environment"),
        ("train mappo mpe/simple_spread --progress 0", "--progress takes True or False, not '0'; or write --no-prog"),
        ("train mappo mpe/simple_spread --hosts local:2 --host-timeout inf", "--host-timeout must be at least 1 and"),
        ("train mappo mpe/simple_spread --hosts a:1 --host-index -1", "--host-index must be at least 0, not -1."),
        ("train mappo mpe/simple_spread --hosts a:1 --host-count 0", "--host-count must be at least 1, not 0."),
        ("evaluate nothing", "not the folder of a run"),
        ("evaluate", "shoal evaluate needs RUN"),
        ("replay nothing --seed 1", "not the folder of a run"),
        ("curves", "needs at least one run's folder"),
        ("curves nothing", "not the folder of a run"),
        ("list thing", "known: algorithms, environments."),
        ("list gymnasium:x", "known: algorithms, environments."),
    ],
)
def test_bad_input(shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "run", lambda _: pytest.fail("training began"))
    code, out, err = shoal(*words.split())
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("shoal: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "mappo mpe/simple_spread --target-entropy 0 --target-entropy-rate 0.1",
        "mapg mpe/simple_spread --env.continuous-actions --draws 4",
        "haddpg mpe/simple_spread --env.continuous-actions --noise-final 0 --noise-fraction 0.5",
        "maddpg mpe/simple_spread --env.continuous-actions --logit-coef 0.1",
        "happo mpe/simple_spread --no-agent-id --sharing shared",
        "poca mpe/simple_spread --no-agent-id --sharing independent",
        "masac mpe/simple_spread --sharing shared --order fixed",
        "magpo mpe/simple_spread --recurrent 8 --no-memory --chunk-length 8",
        "mappo skirmish/3m --critic-network entities --entity-heads 2",
        "constant mpe/simple_spread --action 3",
        "constant mpe/simple_spread --env.continuous-actions --value 0.5",
        "shaq mpe/simple_spread --hyper-layers 2 --hyper-width 12",
        "qplex mpe/simple_spread --hyper-width 12",
    ],
)
def test_options_with_an_effect_are_not_refused(shoal: Callable, words: str) -> None:
    code, out, err = shoal("train", *words.split(), "--print-config")
    assert (code, err) == (0, "")
    assert f"{words.split()[-2].removeprefix('--').replace('-', '_')} = " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train mappo mpe/simple_reference --resume RUN", "is a run of mappo in mpe/simple_spread"),
        ("train ippo mpe/simple_spread --resume RUN", "not of ippo in mpe/simple_spread"),
        ("train --resume RUN --learning-rate 1", "learning_rate cannot change in a resumed run"),
        ("train --resume RUN --num-workers 4", "num_workers is that of worker processes, and mpe/simple_spread is"),
        ("train --resume RUN --env.num-agents 5", "num_agents cannot change in a resumed run"),
        ("train --resume RUN --folder elsewhere", "--folder cannot be combined with --resume"),
        ("train mappo mpe/simple_spread --folder RUN", "already contains a run"),
        ("train mappo smax/3m", "did you mean 'jaxmarl/smax/3m'?"),
        ("train mappo 3m", "did you mean 'skirmish/3m' or 'smac/3m' or 'jaxmarl/smax/3m'?"),
        ("train mappo vmas/balance", "'shoal list skirmish/' those of a family"),
        ("train MAPPO mpe/simple_spread", "did you mean 'mappo'?"),
        ("train mappo mpe/simple_spread --use-gpu", "--help lists all flags"),
        ("evaluate RUN --episodes 0", "episodes must be at least 1"),
        ("evaluate RUN --episodes many", "--episodes cannot be 'many'; it takes INT."),
        ("evaluate RUN RUN", "has no argument for"),
        ("train --resume RUN --address 10.0.0.1:6379", "address is that of a Ray cluster: add --workers ray"),
        ("replay RUN --seed 2", "no seed 2"),
        ("evaluate RUN --sampled --no-sampled", "--sampled and --no-sampled contradict each other"),
        ("crossplay RUN --side agent_0 0", "side names agent_0 twice"),
        ("replay RUN --output video.bmp", "video.bmp"),
        ("curves RUN --metrics retrun", "did you mean 'return'?"),
    ],
)
def test_bad_input_about_a_run(shoal: Callable, run: Path, words: str, said: str) -> None:
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    code, out, err = shoal(*words.replace("RUN", str(run)).split())
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("shoal: ") and err.count("\n") == 1
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before


def test_a_deleted_working_directory_is_one_sentence(
    shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = "shoal: The working directory does not exist any more; change to one that does.\n"
    assert shoal("list", "algorithms") == (2, "", said)


def test_cross_play_asks_before_it_plays_whether_it_can_write(
    shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    code, _, err = shoal("crossplay", "nothing", "--output", tmp_path / "matrix.json")
    assert code == 2 and "is not a .json file in a folder that exists and can be written." in err


def test_a_file_in_place_of_a_folder_is_one_sentence(shoal: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = shoal(*SPREAD, *TINY, "--folder", tmp_path / "file")
    assert code == 2
    assert err == f"shoal: {tmp_path / 'file'} is a file, not a folder for a run.\n"
