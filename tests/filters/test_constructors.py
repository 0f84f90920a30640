"""The typed constructors of filters: one source of truth with the configs, and the same filters as ``build``."""

from __future__ import annotations

import dataclasses
import inspect
from types import NoneType
from typing import get_args, get_type_hints

import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.filters.extended import ExtendedConfig
from fwnkf.filters.factory import options_of
from fwnkf.registry import FILTERS

from .. import systems
from ..tolerances import assert_same_bits

EXPORTS = {  # a promise to users: no name is taken away; a filter without a short name is made with `build`
    "adaptive_kf": "AdaptiveKF",
    "arkf": "ARKF",
    "bayesian_kalmannet": "BayesianKalmanNet",
    "ekf": "EKF",
    "fwnkf": "FWNKF",
    "fwnkf_adaptive": "FWNKFAdaptive",
    "fwnkf_hypotheses": "FWNKFHypotheses",
    "kalmannet": "KalmanNet",
    "kf": "KF",
    "order_tracking": "OrderTracking",
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
        if parameter.default is None and fields[option].default is not None:
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
    "fwnkf": ("FWNKF", {"shaping": "noise", "hidden": 6, "residual_width": 5}),
    "fwnkf_adaptive": ("FWNKFAdaptive", {"hidden": 6, "residual_width": 5, "half_life": 20.0}),
    "fwnkf_hypotheses": ("FWNKFHypotheses", {"hidden": 6, "residual_width": 5, "hypotheses": 2}),
    "order_tracking": ("OrderTracking", {"rotors": 2, "orders": (1.0, 3.0)}),
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
    with pytest.raises(ConfigError, match="did you mean shaping"):
        fwnkf.build("fwnkf", system=systems.wave(torch.float32), shapng="noise")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gate": "full"}, "gate = 'full' has no effect with transition='residual'.*transition='locally_linear'"),
        ({"observation_width": 8}, "observation_width = 8 has no effect with observation='given_function'"),
        ({"shaping": "none", "sections": 2}, "sections = 2 has no effect with shaping='none'"),
        ({"shaping": "none", "pole_radius": 0.9}, "pole_radius = 0.9 has no effect with shaping='none'"),
        ({"hidden": 0, "layers": 2}, "layers = 2 has no effect without an encoder"),
        ({"hidden": 0, "encoder_reads": "current"}, "encoder_reads = 'current' has no effect without an encoder"),
    ],
)
def test_options_without_effect_are_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        fwnkf.FWNKF(systems.wave(torch.float32), **options)


@pytest.mark.parametrize("name", ["residual_width", "residual_order"])
def test_options_of_the_residual_transition_are_refused_elsewhere(name: str):
    with pytest.raises(ConfigError, match=f"{name} = 2 has no effect with transition='locally_linear'"):
        fwnkf.build("fwnkf", H=EYE, Q=EYE, R=EYE, **{name: 2})


def test_a_saved_filter_may_state_options_without_effect(tmp_path):
    """A saved config contains all options, and filters were saved before some of them were refused."""
    config = options_of(fwnkf.FWNKF(systems.wave(torch.float32)).config) | {"gate": "full"}
    cls = FILTERS["fwnkf"]
    assert cls.from_config(cls.Config(**config), systems.wave(torch.float32)).config.gate == "full"


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
