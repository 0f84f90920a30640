"""The typed constructors of filters: one source of truth with the configs, and the same filters as ``build``."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf import GRU, MLP, Correction, Drift, Hypotheses, Level, Lines, LocallyLinear, Modes, Orders, Phi
from fwnkf.errors import ConfigError
from fwnkf.filters.extended import ExtendedConfig
from fwnkf.filters.factory import options_of
from fwnkf.filters.parts.part import NoisePart, Part
from fwnkf.registry import FILTERS, PARTS

from .. import systems
from ..conformance.cases import shake
from ..tolerances import assert_same_bits

EXPORTS = {  # a promise to users: no name is taken away; a filter without a short name is made with `build`
    "adaptive_kf": "AdaptiveKF",
    "arkf": "ARKF",
    "bayesian_kalmannet": "BayesianKalmanNet",
    "ekf": "EKF",
    "fwnkf": "FWNKF",
    "kalmannet": "KalmanNet",
    "kf": "KF",
    "recursive_kalmannet": "RecursiveKalmanNet",
    "rkn": "RKN",
    "ukf": "UKF",
}
EYE = torch.eye(2)


def of_the_package() -> set[str]:
    return {name for name in FILTERS if FILTERS[name].__module__.startswith("fwnkf.")}


def test_filters_are_exported_under_their_short_names():
    assert set(EXPORTS) <= of_the_package()
    for name, exported in EXPORTS.items():
        assert getattr(fwnkf, exported) is FILTERS[name]
        assert exported in fwnkf.__all__


@pytest.mark.parametrize("name", sorted(of_the_package()))
def test_the_signature_states_the_fields_of_the_config(name: str):
    """Names, types and defaults; an option that follows from a system or matrices is None until it is given."""
    cls = FILTERS[name]
    parameters = dict(inspect.signature(cls.__init__).parameters)
    hints = get_type_hints(cls.__init__)
    parameters.pop("self")
    for array in cls.arrays:
        assert hints[array] == Tensor | None, array
        assert parameters.pop(array).default is None, array
    assert ("system" in parameters) is cls.takes_system
    parameters.pop("system", None)
    fields = {field.name: field for field in dataclasses.fields(cls.Config)}
    assert set(parameters) == set(fields)
    types = get_type_hints(cls.Config)
    for option, parameter in parameters.items():
        if option == "noise":  # one part, several, or a mapping of sensors, of which the config has a list
            assert set(get_args(hints[option])) == {
                *(NoisePart, Sequence[NoisePart], Mapping[str, NoisePart | Sequence[NoisePart]], NoneType),
            }
        elif parameter.default is None and fields[option].default is not None:
            assert set(get_args(hints[option])) - {NoneType} == {types[option]} or hints[option] == types[option] | None
        else:
            assert hints[option] == types[option], option
            default = fields[option].default
            assert parameter.default == (inspect.Parameter.empty if default is dataclasses.MISSING else default), option


CALLS = {
    "kf": ("KF", {"F": EYE, "H": EYE[:1], "Q": 0.1 * EYE, "R": EYE[:1, :1]}),
    "ekf": ("EKF", {"moments": "second_order"}),
    "ukf": ("UKF", {"alpha": 0.5}),
    "kalmannet": ("KalmanNet", {"in_mult": 2, "out_mult": 2}),
    "recursive_kalmannet": ("RecursiveKalmanNet", {"fc1_mult": 2, "hidden_mult": 2, "fc2_mult": 2}),
    "bayesian_kalmannet": ("BayesianKalmanNet", {"members": 3, "in_mult": 2, "hidden_mult": 1, "out_mult": 1}),
    "rkn": ("RKN", {"state_dim": 2, "observation_dim": 1, "latent_dim": 3, "hidden": (4,)}),
    "arkf": ("ARKF", {"F": torch.stack((EYE, 0.1 * EYE)), "H": EYE[:1], "Q": EYE, "R": EYE[:1, :1]}),
    "adaptive_kf": ("AdaptiveKF", {"F": EYE, "H": EYE[:1], "G": EYE[:, :1], "R": EYE[:1, :1], "half_life": 3.0}),
    "fwnkf": ("FWNKF", {"noise": Lines(2), "encoder": GRU(6), "residual": MLP(5), "level": Level(3.0)}),
}


@pytest.mark.parametrize("name", CALLS)
def test_class_and_name_build_the_same_filter(name: str, tmp_path):
    """In float64, although nobody says so: the dtype is that of the system or the matrices."""
    exported, options = CALLS[name]
    options = {key: value.double() if isinstance(value, Tensor) else value for key, value in options.items()}
    if FILTERS[name].takes_system:
        options["system"] = systems.wave(torch.float64)
    built = []
    for make in (getattr(fwnkf, exported), lambda **given: fwnkf.build(name, **given)):
        torch.manual_seed(0)
        built.append(make(**options))
    typed, named = built
    assert type(typed) is type(named)
    assert typed.config == named.config
    assert typed.dtype == (torch.float32 if name == "rkn" else torch.float64)
    for (key, mine), (_, theirs) in zip(typed.state_dict().items(), named.state_dict().items(), strict=True):
        assert_same_bits(mine, theirs, key)
    y = torch.ones(2, 4, typed.observation_dim, dtype=typed.dtype)
    assert_same_bits(typed.run(y).mean, named.run(y).mean)


def test_a_loaded_filter_is_an_instance_of_its_class(tmp_path):
    fwnkf.save(fwnkf.KF(F=EYE, H=EYE, Q=EYE, R=EYE), tmp_path)
    assert isinstance(fwnkf.load(tmp_path), fwnkf.KF)


def test_constructors_report_what_does_not_fit():
    with pytest.raises(ConfigError, match=r"filter ukf: option solve = 'qr' does not fit; wanted \('auto'"):
        fwnkf.build("ukf", system=systems.wave(torch.float32), solve="qr")
    with pytest.raises(ConfigError, match="filter kf: missing option"):
        fwnkf.KF(F=EYE)
    with pytest.raises(ConfigError, match=r"'kf' takes matrices F, H, Q, R .*'ekf'.*, not a system"):
        fwnkf.build("kf", system=systems.wave(torch.float32))
    with pytest.raises(ConfigError, match="'ekf' needs system"):
        fwnkf.build("ekf")
    with pytest.raises(ConfigError, match="'fwnkf' needs system"):
        fwnkf.build("fwnkf", noise=Lines())
    with pytest.raises(ConfigError, match="did you mean residual"):
        fwnkf.build("fwnkf", system=systems.wave(torch.float32), residul={"width": 8})
    with pytest.raises(ConfigError, match=r"no option 'encoder\.unit'.*did you mean encoder\.units"):
        fwnkf.build("fwnkf", system=systems.wave(torch.float32), encoder={"unit": 8})


# ---- parts -------------------------------------------------------------------------------------------------------


def test_an_fwnkf_has_few_arguments():
    """What can be set is an option of a part: the constructor does not grow with them."""
    parameters = inspect.signature(fwnkf.FWNKF).parameters
    assert len(parameters) <= 12
    assert [name for name, item in parameters.items() if item.kind is item.POSITIONAL_OR_KEYWORD] == ["system"]


GIVEN: dict[str, tuple[str, Part, dict[str, Any]]] = {
    "correction": ("correction", Correction(4, 0.2, 0.999), {}),
    "drift": ("noise", Drift(seconds=3.0, std=0.2, sensor="tip"), {}),
    "gru": ("encoder", GRU(6, 2, "current"), {}),
    "hypotheses": ("hypotheses", Hypotheses(2, True, (0.5, 1.0, 2.0), 1.5, 1, 0.8, 2.0), {"noise": Lines()}),
    "level": ("level", Level(3.0, "each"), {}),
    "lines": ("noise", Lines(2, [3.0, 9.0], [0.5, 1.0], [[0.2, 0.4], [0.3, 0.6]], True, 0.999, sensor="tip"), {}),
    "locally_linear": ("transition", LocallyLinear(2), {}),
    "mlp": ("residual", MLP(5, 2), {}),
    "modes": ("noise", Modes(1, 9.0, 0.5, [[0.1], [0.3]], [[0.0], [1.0]], 0.999, sensor="tip"), {}),
    "orders": ("noise", Orders(2, (1.0, 2.5), (5.0, 6.0), 0.4, 0.2, 0.3, 0.02, 4.0, 0.3, 0.5, sensor="tip"), {}),
    "phi": ("phi", Phi(2, False, 0.99, "augmented", "shaped"), {}),
}
"""Every part, where it goes, every option of it with another value than its default, and what it needs beside it."""


def test_every_part_is_given_with_every_option_changed():
    assert {name for name in PARTS if PARTS[name].__module__.startswith("fwnkf.")} == set(GIVEN)
    for name, (_, part, _) in GIVEN.items():
        assert type(part) is PARTS[name]
        for field in dataclasses.fields(part):
            assert getattr(part, field.name) != field.default, f"{name}.{field.name}"


def as_yaml_has_it(value: Any) -> Any:
    """Plain values: mappings and lists."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", GIVEN)
def test_the_options_of_a_part_come_back_from_disk_and_from_plain_values(name: str, tmp_path):
    place, part, beside = GIVEN[name]
    system = systems.pendulum(torch.float64)
    torch.manual_seed(0)
    model = fwnkf.FWNKF(system, **{place: part}, **beside)
    stored = (part,) if place == "noise" else part
    assert getattr(model.config, place) == stored
    loaded = fwnkf.load(fwnkf.save(model, tmp_path))
    # what tensors start at is left out of files, which have the tensors
    assert options_of(loaded.config, saved=True) == options_of(model.config, saved=True)
    plain = {option: as_yaml_has_it(value) for option, value in options_of(model.config).items()}
    torch.manual_seed(0)
    built = fwnkf.build("fwnkf", system=system, **plain)
    assert built.config == model.config
    alone = as_yaml_has_it(options_of(part))
    assert alone.pop("part") == name
    torch.manual_seed(0)
    mapping = {"part": name, **alone} if place == "noise" else alone
    single = fwnkf.build("fwnkf", system=system, **{place: mapping}, **beside)
    assert single.config == model.config
    y = torch.ones(1, 4, model.observation_dim, dtype=torch.float64)
    for other in (loaded, built, single):
        assert_same_bits(other.run(y).mean, model.run(y).mean)


def test_noise_of_a_sensor_is_a_mapping_in_files_too():
    system = systems.pendulum(torch.float64)
    typed = fwnkf.FWNKF(system, noise={"tip": [Lines(hz=3.0), Drift()]})
    named = fwnkf.build("fwnkf", system=system, noise={"tip": [{"part": "lines", "hz": 3.0}, {"part": "drift"}]})
    assert typed.config == named.config
    assert [part.sensor for part in typed.config.noise] == ["tip", "tip"]


@pytest.mark.unchecked("values of the wrong type, on purpose")
def test_options_of_a_part_are_checked_and_named_with_their_place():
    system = systems.wave(torch.float32)
    with pytest.raises(ConfigError, match=r"option noise\[1\].seconds = -1 must be above 0"):
        fwnkf.build("fwnkf", system=system, noise=[{"part": "lines"}, {"part": "drift", "seconds": -1}])
    with pytest.raises(ConfigError, match=r"option residual.order = 3 does not fit; wanted \(1, 2\)"):
        fwnkf.FWNKF(system, residual=MLP(8, order=3))
    with pytest.raises(
        ConfigError, match=r"option noise\[0\] is of part None; wanted part: drift, lines, modes, orders"
    ):
        fwnkf.build("fwnkf", system=system, noise=[{"hz": 3.0}])
    for wrong in ({"hz": 3.0}, {"tip": "lines"}, {"tip": [3]}, "lines", 3):
        with pytest.raises(
            ConfigError, match=r"wanted a part by its name, as .*, a list of parts, or a mapping of sensors to parts"
        ):
            fwnkf.build("fwnkf", system=system, noise=wrong)
    with pytest.raises(ConfigError, match="std are those of given lines; give hz too"):
        Lines(std=0.1)


def test_a_copy_with_other_parts_keeps_what_was_trained():
    model = shake(fwnkf.FWNKF(systems.wave(), noise=Lines(2), encoder=GRU(4), residual=MLP(5)), 0.1)
    changed = model.with_parts(level=Level(3.0), residual=None)
    assert changed.config == dataclasses.replace(model.config, level=Level(3.0), residual=None)
    kept = changed.state_dict()
    assert kept
    for name, value in model.state_dict().items():
        if not name.startswith("residual."):
            assert_same_bits(kept[name], value, name)
    same = model.with_parts()
    y = torch.ones(1, 4, 2, dtype=torch.float64)
    assert_same_bits(same.run(y).mean, model.run(y).mean)


def test_a_filter_of_ones_own_has_a_constructor_with_its_options():
    @dataclasses.dataclass(frozen=True)
    class LouderConfig(ExtendedConfig):
        factor: float = 2.0

    class Louder(fwnkf.EKF):
        Config = LouderConfig

        def setup(self, config, system, arrays):
            super().setup(config, system, arrays)
            self.factor = torch.nn.Parameter(torch.tensor(config.factor))

    model = Louder(systems.wave(torch.float64), factor=3.0)
    assert model.factor.item() == 3.0
    assert model.factor.dtype == torch.float64
    with pytest.raises(ConfigError, match=r"no option 'factr'.*did you mean factor"):
        Louder(systems.wave(torch.float64), factr=3.0)
