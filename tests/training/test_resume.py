"""A run that is killed and resumed gives results bit-identical to an uninterrupted run."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fwnkf.cli import main
from fwnkf.errors import CheckpointError
from fwnkf.training.checkpointing import CheckpointCallback
from fwnkf.training.experiments import read_experiment
from fwnkf.training.fit import StoppedError, fit
from fwnkf.training.resume import read_state, write_state

pytestmark = pytest.mark.process
STEPS, EVERY = 12, 4


def command(folder: Path, *more: str) -> list[str]:
    small = {
        "trainer.steps": STEPS,
        "trainer.validate_every": EVERY,
        "trainer.batch_size": 4,
        "trainer.save_seconds": 0,
        "trainer.compile": "false",
        "trainer.pretrain": 0,
        "trainer.loggers": "[csv]",
        "data.train": 10,
        "data.val": 4,
        "data.test": 4,
        "filter.options.hidden": 8,
        "optimizer.rates": "{transition: 0.5, head_bias: 0}",
    }
    words = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    call = [sys.executable, "-m", "fwnkf.cli", "train", "lorenz", "--no-references", "--no-plots", *words, *more]
    return [*call, "--run", str(folder)]


def finish(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def here(words: list[str]) -> int:
    """Run the command in this process: importing Lightning again takes longer than the run."""
    return main(words[words.index("train") :])


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {which: load_file(folder / which / "model.safetensors") for which in ("best", "last")}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert here(command(folder)) == 0
    return folder


def test_parameters_with_rate_zero_are_frozen(untouched):
    trained = weights(untouched)["last"]
    assert not trained["head_bias"].any()  # its initial value
    assert trained["head_weight"].any()  # initially zero too


def same_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are bit-identical."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def steps_done(folder: Path) -> int:
    try:
        return int(read_state(folder / "state.safetensors")["global_step"])
    except CheckpointError:
        return 0


@pytest.mark.parametrize("number", range(3))
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(untouched, tmp_path, number):
    kill_and_resume(untouched, tmp_path / "killed", number)


def test_a_run_can_be_stopped_after_any_step(tmp_path, monkeypatch):
    """Stops at every kind of saved state: within an epoch, at its end, before and after a validation."""
    small = command(tmp_path)
    experiment = read_experiment("lorenz", [word for word in small if "=" in word])
    whole = fit(experiment, tmp_path / "whole")
    original = CheckpointCallback.on_train_batch_end
    for stop in (1, EVERY - 1, EVERY, EVERY + 1, 2 * EVERY, STEPS - 1):
        folder = tmp_path / str(stop)

        def stop_at(self, trainer, *rest, at=stop):
            self.stop_requested = self.stop_requested or trainer.global_step == at
            return original(self, trainer, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(CheckpointCallback, "on_train_batch_end", stop_at)
            with pytest.raises(StoppedError):
                fit(experiment, folder)
        assert steps_done(folder) == stop
        fitted = fit(experiment, folder, resume=True)
        assert fitted.record["steps"] == whole.record["steps"] == STEPS
        assert same_tensors(weights(folder)["last"], weights(tmp_path / "whole")["last"]), stop
        assert (folder / "history.jsonl").read_text() == (tmp_path / "whole" / "history.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3, 9))
def test_a_run_killed_between_chunks_equals_an_uninterrupted_one(tmp_path, number):
    extra = ("--set", "trainer.chunk=40")
    assert here(command(tmp_path / "whole", *extra)) == 0
    kill_and_resume(tmp_path / "whole", tmp_path / "killed", number, *extra)


def kill_and_resume(whole: Path, folder: Path, number: int, *extra: str) -> None:
    chance = random.Random(number)
    process = subprocess.Popen(command(folder, *extra), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted = chance.randrange(1, STEPS - 2)
    limit = time.monotonic() + 120
    while steps_done(folder) < wanted and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.15))  # somewhere within a step, a validation or a write
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    step = steps_done(folder)
    assert 0 < step < STEPS
    assert json.loads((folder / "run.json").read_text())["status"] == "running"

    assert here([*command(folder, *extra), "--resume"]) == 0

    for which, tensors in weights(whole).items():
        assert same_tensors(tensors, weights(folder)[which]), f"{which} differs after a kill at step {step}"
    histories = [(place / "history.jsonl").read_text() for place in (whole, folder)]
    assert histories[0] == histories[1]
    assert json.loads((folder / "run.json").read_text())["status"] == "done"


def test_two_runs_of_the_same_experiment_are_bit_identical(untouched, tmp_path):
    finish(command(tmp_path / "again"))  # in a process of its own
    for which, tensors in weights(untouched).items():
        assert same_tensors(tensors, weights(tmp_path / "again")[which])


def test_the_best_filter_is_the_initial_one_if_training_makes_it_worse(tmp_path):
    """The initial filter is validated too: with too high a learning rate it remains the best."""
    wild = ("optimizer.learning_rate=0.1", "trainer.steps=4", "trainer.pretrain=100", "loss=[{kind: state}]")
    assert here(command(tmp_path / "wild", *(word for item in wild for word in ("--set", item)))) == 0
    record = json.loads((tmp_path / "wild" / "run.json").read_text())
    first = json.loads((tmp_path / "wild" / "history.jsonl").read_text().splitlines()[0])
    assert record["best_step"] == first["step"] == 0
    assert record["best"] == pytest.approx(first["val_mse"])
    assert not same_tensors(weights(tmp_path / "wild")["best"], weights(tmp_path / "wild")["last"])


def test_another_seed_gives_other_weights(untouched, tmp_path):
    assert here(command(tmp_path / "other", "--seed", "1")) == 0
    assert not same_tensors(weights(untouched)["last"], weights(tmp_path / "other")["last"])


def test_ctrl_c_saves_the_state_and_prints_the_resume_command(untouched, tmp_path):
    folder = tmp_path / "stopped"
    process = subprocess.Popen(command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while steps_done(folder) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"fwnkf train --resume {folder}" in errors
    assert json.loads((folder / "run.json").read_text())["status"] == "stopped"
    assert main(["train", "--resume", str(folder), "--no-references", "--no-plots"]) == 0
    assert same_tensors(weights(untouched)["last"], weights(folder)["last"])


def test_a_run_is_neither_overwritten_nor_resumed_with_a_different_experiment(untouched, capsys):
    assert here(command(untouched)) == 1
    assert "already has a run; continue it with --resume" in capsys.readouterr().err
    assert here([*command(untouched, "--set", "optimizer.clip=2"), "--resume"]) == 1
    assert "is a run of a different experiment" in capsys.readouterr().err


def test_a_state_round_trips(tmp_path):
    tree = {
        "ints": {0: 1, 1: -3},
        "floats": [0.1, float("inf"), 1e-300],
        "mixed": ("a", None, True, {"deep": (1, [2])}),
        "tensor": torch.arange(6, dtype=torch.int64).reshape(2, 3).mT,
    }
    write_state(tree, tmp_path / "state.safetensors")
    restored = read_state(tmp_path / "state.safetensors")
    assert torch.equal(restored.pop("tensor"), tree.pop("tensor"))
    assert restored == tree
    assert not list(tmp_path.glob("*.part"))


def test_an_unsupported_value_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"checkpoint\.hooks\[1\] is a function"):
        write_state({"hooks": [1, lambda: 0]}, tmp_path / "state.safetensors")


@pytest.mark.parametrize("damage", ["truncate", "garbage", "foreign", "tree"])
def test_a_damaged_state_raises_an_error_that_names_the_file(tmp_path, damage):
    path = tmp_path / "state.safetensors"
    write_state({"a": torch.zeros(100)}, path)
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:50])
    elif damage == "garbage":
        path.write_bytes(b"\x80\x04\x95" + bytes(200))
    elif damage == "foreign":
        from safetensors.torch import save_file

        save_file({"a": torch.zeros(1)}, path)
    else:
        from safetensors.torch import save_file

        save_file({}, path, metadata={"fwnkf_run": "1", "tree": '["object", "os.system"]'})
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        read_state(path)
