"""What a run took: CPU seconds of all, of pretraining and of compilation, also after a stop."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from fwnkf.cli.train import _cost
from fwnkf.training.checkpointing import CheckpointCallback, cpu_time
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import StoppedError, fit, read_record
from tasks.cards import cost
from tasks.results import Results, SeedScore

BURNT = 0.4


def burn(seconds=BURNT):
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass


def experiment(**trainer):
    return parse_experiment(
        {
            "data": {"name": "lorenz", "train": 8, "val": 2, "test": 2},
            "filter": {"name": "ekf", "equations": False, "learned_system": {"width": 4}},
            "trainer": {"pretrain": 2, "steps": 4, "batch_size": 4, "validate_every": 2, "loggers": [], **trainer},
        }
    )


def test_the_clock_counts_processes_that_were_waited_for():
    begin, own = cpu_time(), time.process_time()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    spent = cpu_time() - begin
    assert spent > time.process_time() - own + 0.1


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_pretraining_and_compilation_are_listed_apart_and_survive_a_stop(tmp_path, monkeypatch):
    started = []

    def compile_slowly(function, **options):
        def advance(*inputs):
            if not started or started[-1] is not function:
                started.append(function)
                burn()
            return function(*inputs)

        return advance

    def pretrain_slowly(*inputs):
        burn()
        return "pretrained"

    def stop_after_two(self, trainer, *rest):
        self.stop_requested = self.stop_requested or trainer.global_step == 2
        return original(self, trainer, *rest)

    original = CheckpointCallback.on_train_batch_end
    monkeypatch.setattr(torch, "compile", compile_slowly)
    monkeypatch.setattr("fwnkf.training.fit.pretrain", pretrain_slowly)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointCallback, "on_train_batch_end", stop_after_two)
        with pytest.raises(StoppedError):
            fit(experiment(compile=True), tmp_path / "run")
    stopped = read_record(tmp_path / "run")
    assert BURNT <= stopped["preparation_seconds"] + 0.05 < 3
    assert stopped["compilation_seconds"] >= BURNT
    assert stopped["cpu_seconds"] >= stopped["preparation_seconds"] + stopped["compilation_seconds"] - 0.1
    record = fit(experiment(compile=True), tmp_path / "run", resume=True).record
    assert record["steps"] == 4
    assert record["preparation_seconds"] == stopped["preparation_seconds"]  # not repeated
    assert record["compilation_seconds"] >= 2 * BURNT  # once for each process
    assert record["cpu_seconds"] > stopped["cpu_seconds"]
    assert "of which" in _cost(record)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_run_without_either_says_so(tmp_path):
    record = fit(experiment(pretrain=0), tmp_path / "run").record
    assert record["compilation_seconds"] == 0.0
    assert "compilation" not in _cost(record)


def test_a_card_says_steps_and_seconds_of_regression():
    def results(**fields):
        seeds = tuple(SeedScore({"mse": 1.0}, cpu_seconds=50.0, seed=seed, **fields) for seed in (0, 1))
        return Results("toy", "strict", "mse", seeds, {}, {}, {}, 3)

    assert cost(results()) == "Training took 100 CPU seconds for all seeds."
    assert cost(results(steps=7)).endswith("for all seeds: 7 optimiser steps each.")
    assert "7 optimiser steps each after 9 steps of regression, which took 8 of these seconds" in cost(
        results(steps=7, pretraining_steps=9, pretraining_seconds=4.0)
    )
