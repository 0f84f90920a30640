"""A run that is killed and resumed gives results bit-identical to an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import signal
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

from ..shell import start

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
        "system": "{name: lorenz}",
        "data": "{name: simulated, steps: 20, train: 10, val: 4, test: 4}",
        "filter.options.encoder.units": 8,
        "optimizer.rates": "{residual: 0.5, head_bias: 0}",
    }
    words = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    return ["fwnkf", "train", "lorenz", "--no-references", "--no-plots", *words, *more, "--run", str(folder)]


def here(words: list[str]) -> int:
    """Run the command in this process."""
    return main(words[1:])


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


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(untouched, tmp_path, number):
    kill_and_resume(untouched, tmp_path / "killed", number)


@pytest.mark.parametrize(
    "stops", [(EVERY - 1, EVERY, EVERY + 1), pytest.param((1, 2 * EVERY, STEPS - 1), marks=pytest.mark.slow)]
)
def test_a_run_can_be_stopped_after_any_step(tmp_path, monkeypatch, stops):
    """Stops at every kind of saved state: at the end of an epoch, at a validation, and within an epoch after it."""
    small = command(tmp_path)
    experiment = read_experiment("lorenz", [word for word in small if "=" in word])
    whole = fit(experiment, tmp_path / "whole")
    original = CheckpointCallback.on_train_batch_end
    for stop in stops:
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
    extra = ("--set", "trainer.chunk=8")  # records have 20 steps
    assert here(command(tmp_path / "whole", *extra)) == 0
    kill_and_resume(tmp_path / "whole", tmp_path / "killed", number, *extra)


def kill_and_resume(whole: Path, folder: Path, number: int, *extra: str) -> None:
    chance = random.Random(number)
    process = start(command(folder, *extra), folder.parent)
    wanted = chance.randrange(1, STEPS - 2)
    limit = time.monotonic() + 120
    while steps_done(folder) < wanted and time.monotonic() < limit and process.is_alive():
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.05))  # somewhere within a step, a validation or a write
    assert process.is_alive(), "the run ended before it could be killed"
    process.kill()
    process.join()
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
    process = start(command(tmp_path / "again"), tmp_path)
    process.join(300)
    assert process.exitcode == 0
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
    process = start(command(folder), tmp_path, err=tmp_path / "errors")
    while steps_done(folder) < 3 and process.is_alive():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join(120)
    errors = (tmp_path / "errors").read_text(encoding="utf-8")
    assert process.exitcode == 130, errors
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
