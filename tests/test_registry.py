"""Registries and configurations: every error names the field, its value and the values accepted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError, FwnkfError, UnknownNameError
from fwnkf.registry import FILTERS, MOTIONS, PREPROCESS, SYSTEMS, Registry, at_least, parse_config

SOURCE = Path(fwnkf.__file__).parent


@dataclass(frozen=True)
class Config:
    size: int
    rate: float = 0.1
    mode: Literal["fast", "slow"] = "fast"
    on: bool = False
    names: tuple[str, ...] = ()
    order: int = at_least(1, 2)
    sides: tuple[int, ...] = field(default_factory=tuple)


def test_plain_values_parse_and_lists_become_tuples():
    config = parse_config(Config, {"size": 3, "rate": 1, "names": ["a", "b"], "mode": "slow"}, "thing")
    assert config == Config(3, 1, "slow", False, ("a", "b"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 3, "raet": 1.0}, "thing: no option 'raet'; there are: size, rate, mode"),
        ({"size": "3"}, "thing: option size = '3' does not fit; wanted .*int"),
        ({"size": 3.5}, "option size = 3.5 does not fit"),
        ({"size": True}, "option size = True does not fit"),
        ({"size": 3, "rate": "high"}, "option rate = 'high' does not fit; wanted .*float"),
        ({"size": 3, "mode": "medium"}, r"option mode = 'medium' does not fit; wanted \('fast', 'slow'\)"),
        ({"size": 3, "on": 1}, "option on = 1 does not fit; wanted .*bool"),
        ({"size": 3, "names": ["a", 1]}, r"option names = \['a', 1\] does not fit; wanted a list of str"),
        ({"size": 3, "names": "ab"}, "option names = 'ab' does not fit"),
        ({"size": 3, "order": 0}, "option order = 0 is below 1"),
        ({"rate": 1.0}, "thing: missing option.* size"),
    ],
)
def test_every_error_names_field_value_and_accepted_values(values, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config(Config, values, "thing")
    assert isinstance(caught.value, (FwnkfError, ValueError))


def test_all_faults_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_config(Config, {"size": "x", "mode": "y", "z": 0}, "thing")
    assert len(str(caught.value).splitlines()) == 3


def test_a_duplicate_name_raises_a_config_error():
    names = Registry("animal")
    names.register("cat")(int)
    with pytest.raises(ConfigError, match=r"animal 'cat' is registered twice.*int.*float"):
        names.register("cat")(float)
    assert names["cat"] is int
    assert names.name_of(int) == "cat"
    assert names.name_of(float) is None


def test_an_unknown_name_lists_the_registered_names():
    with pytest.raises(UnknownNameError) as caught:
        fwnkf.build("kalman")
    message = str(caught.value)
    assert "no filter is called 'kalman'" in message
    assert all(name in message for name in FILTERS)
    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kf", {"sovle": "auto"}, "filter kf: no option 'sovle'; there are: .*solve"),
        ("kf", {"solve": "qr"}, r"filter kf: option solve = 'qr' does not fit; wanted \('auto', 'cholesky'"),
        ("ekf", {}, "filter 'ekf' needs system="),
        ("kf", {}, "filter kf: missing option.*state_dim, observation_dim"),
        ("arkf", {"state_dim": 1, "observation_dim": 1, "order": 0}, "option order = 0 is below 1"),
        ("arkf", {"F": torch.zeros(2, 3, 2), "state_dim": 2, "observation_dim": 1}, r"F has shape \(2, 3, 2\)"),
        ("kf", {"F": torch.eye(2), "H": torch.eye(3, 2), "R": torch.eye(2)}, r"[HR] has shape"),
    ],
)
def test_build_errors_name_the_fault(name, options, message):
    with pytest.raises(ConfigError, match=message):
        fwnkf.build(name, **options)


def test_every_declared_name_is_registered_by_the_module_declared_for_it():
    registries = {"FILTERS": FILTERS, "SYSTEMS": SYSTEMS, "MOTIONS": MOTIONS, "PREPROCESS": PREPROCESS}
    packages = {"MOTIONS": "systems"}
    for kind, registry in registries.items():
        files = (SOURCE / packages.get(kind, kind.lower())).glob("*.py")
        pattern = rf'{kind}\.register\("(\w+)"\)'
        found = {name for file in files for name in re.findall(pattern, file.read_text("utf-8"))}
        assert found
        assert found <= set(registry), "declare the new name in the __init__.py of its package"
        assert all(registry.name_of(registry[name]) == name for name in found)


def test_a_name_of_the_package_cannot_be_taken_before_its_module_is_imported():
    names: Registry[type] = Registry("animal")
    names.declare("zoo", cat="felines")
    assert "cat" in names
    with pytest.raises(ConfigError, match=r"animal 'cat' is registered twice: zoo.felines and .*int"):
        names.register("cat")(int)
