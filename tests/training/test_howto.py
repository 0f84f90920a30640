"""The how-to guides match the code: examples run as written, and all fields and options are documented."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.cli.main import parser
from fwnkf.data import protocols
from fwnkf.registry import FILTERS
from fwnkf.training.config import Experiment
from fwnkf.training.experiments import parse_yaml, read_experiment
from fwnkf.training.losses import LOSSES

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
EXAMPLE = HOWTO / "own_filter.py"
TINY = [
    "data.train=6",
    "data.val=2",
    "data.test=3",
    "trainer.steps=2",
    "trainer.validate_every=2",
    "trainer.batch_size=4",
    "trainer.chunk=50",
    "trainer.loggers=[]",
]


@pytest.fixture(scope="module")
def example():
    """The script as a module; its registry entries are removed afterwards, because other tests iterate over them."""
    before = [(registry, set(registry)) for registry in (FILTERS, LOSSES)]
    spec = importlib.util.spec_from_file_location("own_filter", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
    for registry, names in before:
        for name in set(registry) - names:
            del registry._classes[name]


def test_the_untrained_example_filter_equals_the_filter_it_extends(example):
    records = protocols.simulated("lorenz", "strict", train=1, val=1, test=3).split.test
    ours, theirs = (fwnkf.build(name, system=records.system).run(**records.inputs()) for name in ("tuned_ekf", "ekf"))
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.cov, theirs.cov)


@pytest.mark.process  # hundreds of steps through the shape checker would take too long
def test_the_comparison_runs_on_the_same_test_records(example, tmp_path, capsys):
    assert example.compare(tmp_path, 1, TINY, ("--no-references",)) == 0
    table = capsys.readouterr().out.splitlines()
    for name in example.FILTERS:
        assert sum(line.startswith(f"{name} ") and "pink" in line for line in table) == 1
    assert not any("not judged on the same" in line for line in table)
    record = json.loads((tmp_path / "tuned_ekf-0" / "run.json").read_text())
    assert record["parameters"] == 2
    trained = fwnkf.load(tmp_path / "tuned_ekf-0" / "last")
    assert trained.log_sensor.item() != 0.0


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (HOWTO / "train.md").read_text(encoding="utf-8"), re.S)


def test_the_guide_quotes_the_example_exactly():
    source = EXAMPLE.read_text(encoding="utf-8")
    lines = [line for block in blocks("python") for line in block.splitlines()]
    assert len(lines) > 20
    assert [line for line in lines if line not in source] == []


def test_the_experiments_of_the_guide_are_valid_and_show_every_field():
    whole, tables = (parse_yaml(block, "train.md") for block in blocks("yaml"))
    read_experiment(whole)
    read_experiment(tables)
    # a system of your own is the subject of own_system.md
    assert {*whole, "system"} == {field.name for field in dataclasses.fields(Experiment)}
    defaults = Experiment(data=read_experiment(whole).data)
    for section in ("filter", "optimizer", "trainer"):
        assert set(whole[section]) == {field.name for field in dataclasses.fields(getattr(defaults, section))}
    known = {field.name for field in dataclasses.fields(defaults.data)}
    assert set(whole["data"]) | set(tables["data"]) | {"control", "angles", "options"} == known
    for section in ("optimizer", "trainer"):  # shown with their default values, as the guide says
        assert getattr(read_experiment(whole), section) == getattr(defaults, section)


def test_every_command_line_option_is_documented():
    text = (HOWTO / "commands.md").read_text(encoding="utf-8")
    for name, command in choices(parser()).items():
        section = text[text.index(f"## {name}\n") :].split("\n## ")[0]
        for leaf in (command, *choices(command).values()):
            flags = {flag for action in leaf._actions for flag in action.option_strings if flag.startswith("--")}
            common = {"--help", "--json", "--import", "--quiet"}
            assert [flag for flag in sorted(flags - common) if flag not in section] == [], name
    assert common - {"--help"} <= set(re.findall(r"--\w+", text.split("## list")[0]))


def choices(command):
    subparsers = [action.choices for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return subparsers[0] if subparsers else {}
