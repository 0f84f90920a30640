"""Small instances of every filter, one for every form that has code of its own.

Every test of ``test_conformance.py`` runs for every case. A filter that is declared in ``fwnkf.filters`` and has no
line in ``CASES`` gets one: with its defaults on a toy system. A filter with other needs, or with forms that have code
of their own, gets lines here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import fwnkf
from fwnkf import GRU, MLP, Correction, Drift, Hypotheses, Level, Lines, LocallyLinear, Modes, Orders, Phi, filters
from fwnkf.core.preprocess import Calibration, CalibrationConfig
from fwnkf.systems import LearnedSystem

from .. import systems

Builder = Callable[[torch.dtype], fwnkf.Filter]


@dataclass(frozen=True)
class Case:
    """A filter to build, and its inputs."""

    filter: str
    build: Builder
    observation_dim: int
    control_dim: int = 0
    uses_dt: bool = False
    innovation_dim: int | None = None
    """Size of the innovation if it is not the number of channels (the RKN's innovation is latent)."""
    prior_matters: bool = True
    """Whether the filter starts from the prior."""
    same_in_both_dtypes: bool = True
    """Whether float32 and float64 instances have the same values; the samples of an ensemble have not."""
    name: str = ""
    detaches: str = ""
    """A method of the filter that returns its argument without a gradient, on purpose."""
    traced_first: bool = False
    """Export from a make_fx trace: where Jacobians are differentiated through ``where`` and ``cat``, as rotations are,
    torch.export records their zero tangents as constants without data."""


def shake(model: fwnkf.Filter, size: float, seed: int = 0) -> fwnkf.Filter:
    """Add small noise to every parameter: the zeros of an untrained filter would hide faults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)  # the same sample for every dtype
            parameter.add_(size * noise.to(parameter))
    return model


def calm(model: fwnkf.Filter, factor: float) -> fwnkf.Filter:
    """Make every weight small: a random gain network makes an unstable filter, and infinities would hide faults."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


def built(name: str, *, shaken: float = 0.0, calmed: float = 1.0, **options: Any) -> fwnkf.Filter:
    """Build with the same weights every time, without changing torch's global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = fwnkf.build(name, **options)
    return calm(shake(model, shaken), calmed).eval()


def on(make: Callable[..., fwnkf.System], name: str, **options: Any) -> Builder:
    """A filter on a toy system; options of the system are those its config knows."""
    ours = {key: options.pop(key) for key in ("correlation",) if key in options}
    return lambda dtype: built(name, system=make(dtype, **ours), **options)


def linear(name: str, *, full: bool = False, continuous: bool = False, **options: Any) -> Builder:
    def build(dtype: torch.dtype) -> fwnkf.Filter:
        # two sensors, so that each can be measured alone
        channels = ("first", "second")
        if continuous:
            matrices = systems.continuous_matrices(dtype, full)
            return built(name, **matrices, continuous=True, dt=0.1, channels=channels, **options)
        return built(name, **systems.linear_matrices(dtype, full), channels=channels, **options)

    return build


def lagged(dtype: torch.dtype) -> fwnkf.Filter:
    matrices = systems.linear_matrices(dtype, full=True)
    return built("arkf", **{**matrices, "F": torch.stack((matrices["F"], -0.2 * matrices["F"]))}, learn=("F", "Q"))


def adaptive(dtype: torch.dtype) -> fwnkf.Filter:
    """Moves its process noise at the ninth step, where gradients are checked."""
    matrices = systems.linear_matrices(dtype, full=True)
    arrays = {name: matrices[name] for name in ("F", "B", "H", "R")}
    arrays |= {"G": torch.eye(3, 2, dtype=dtype), "S": 0.5 * matrices["R"], "c": 0.1 * torch.ones(3, dtype=dtype)}
    return built("adaptive_kf", **arrays, half_life=4.0, update_every=3, shrink=0.1, nugget=1e-3)


def latent(dtype: torch.dtype) -> fwnkf.Filter:
    return built("rkn", state_dim=3, observation_dim=2, latent_dim=4, basis=3, bandwidth=1, hidden=(8,)).to(dtype)


NARROW: dict[str, Any] = {"in_mult": 2, "out_mult": 2, "calmed": 0.2}


def walk(dtype: torch.dtype, full: bool = False, control_dim: int = 1, **options: Any) -> fwnkf.System:
    """A random walk, for filters that learn the motion; its observation is given or learned."""
    arrays: dict[str, Any] = {k: v for k, v in systems.linear_matrices(dtype, full).items() if k in "HQR"}
    if options.get("observation") == "learned_network":
        arrays.pop("H")
        options |= {"state_dim": 3, "observation_dim": 2, "observation_width": 8}
    return LearnedSystem.of(**arrays, control_dim=control_dim, **options).to(dtype)


def weighted(shaken: float = 0.1, system: dict[str, Any] | None = None, **parts: Any) -> Builder:
    """An FW-NKF without equations, with noise added to every parameter."""

    def build(dtype: torch.dtype) -> fwnkf.Filter:
        with torch.random.fork_rng():
            torch.manual_seed(11)
            moving = walk(dtype, **(system or {}))
        return built("fwnkf", system=moving, shaken=shaken, **parts)

    return build


def weighted_rotation(dtype: torch.dtype) -> fwnkf.Filter:
    """An FW-NKF without equations on a state with a rotation."""
    layout = (("p", "euclidean", 2), ("q", "quaternion", 4))
    system = LearnedSystem.of(layout=layout, state_dim=6, observation_dim=3, observation="learned_matrix")
    return built("fwnkf", system=system.to(dtype), shaken=0.1, encoder=GRU(8), transition=LocallyLinear(1), phi=Phi(2))


def weighted_on(
    make: Callable[..., fwnkf.System], correlation: float = 0.0, shaken: float = 0.1, **parts: Any
) -> Builder:
    """An FW-NKF that extends a toy system."""
    return lambda dtype: built("fwnkf", system=make(dtype, correlation=correlation), shaken=shaken, **parts)


def continuous(dtype: torch.dtype, **parts: Any) -> fwnkf.Filter:
    """An FW-NKF on a linear system in continuous time, which states its matrices."""
    matrices = systems.continuous_matrices(dtype, False)
    system = fwnkf.LinearSystem.of(**matrices, continuous=True, dt=0.05, channels=("first", "second"))
    return built("fwnkf", system=system, shaken=0.1, **parts)


def calibrated(dtype: torch.dtype) -> fwnkf.Filter:
    """A filter with preprocessing and with calibration of its covariance."""
    model = on(systems.pendulum, "ekf")(dtype)
    mixing = torch.tensor([[1.1, 0.0], [0.0, 0.9]], dtype=dtype)
    model.preprocess = Calibration(
        CalibrationConfig(channels=2), model.system, bias=torch.tensor([0.1, -0.2], dtype=dtype), matrix=mixing
    )
    model.calibrate_covariance(torch.tensor([2.0, 0.5], dtype=dtype))
    return model


def tracking(dtype: torch.dtype, linear: bool = False, level: Any = None, **options: Any) -> fwnkf.Filter:
    """Speeds of a few tenths of a hertz, as the inputs of the cases have them; half of them are negative: missing."""
    orders = Orders(
        orders=(1.0, 4.0), speed_std=0.5, hz=0.3, hz_std=0.3, walk=0.1, std=0.3, bandwidth_hz=0.5, **options
    )
    plain = fwnkf.LinearSystem.of(**systems.linear_matrices(dtype), dt=0.05) if linear else None
    return built("fwnkf", system=plain or systems.wave(dtype), shaken=0.1, noise=orders, level=level)


LEARNED: dict[str, Any] = {"encoder": GRU(8), "transition": LocallyLinear(1)}
"""The learned transition of Algorithm 3."""


CASES: dict[str, Case] = {
    # -- classical -------------------------------------------------------------------------------------------------
    "kf": Case("kf", linear("kf", learn=("F", "B", "H", "Q", "R")), 2, 1),
    "kf-full-noise": Case("kf", linear("kf", full=True), 2, 1),
    "kf-continuous": Case("kf", linear("kf", continuous=True, learn=("F", "Q")), 2, 1, uses_dt=True),
    "kf-sequential": Case("kf", linear("kf", solve="sequential"), 2, 1),
    "kf-square-root": Case("kf", linear("kf", full=True, solve="square_root"), 2, 1),
    "kf-cholesky": Case("kf", linear("kf", full=True, solve="cholesky"), 2, 1),
    "ekf-pendulum": Case("ekf", on(systems.pendulum, "ekf"), 2, 1, uses_dt=True),
    "ekf-analytic": Case("ekf", on(systems.analytic_pendulum, "ekf", correlation=0.4), 2, 1, uses_dt=True),
    "ekf-attitude": Case("ekf", on(systems.attitude, "ekf"), 3, 3, uses_dt=True, traced_first=True),
    "ekf-calibrated": Case("ekf", calibrated, 2, 1, uses_dt=True),
    "ekf-curved": Case("ekf", on(systems.wave, "ekf", moments="second_order"), 2, 1, uses_dt=True),
    "ukf-wave": Case("ukf", on(systems.wave, "ukf", correlation=0.3), 2, 1, uses_dt=True),
    "ukf-pendulum": Case("ukf", on(systems.pendulum, "ukf"), 2, 1, uses_dt=True),
    "ukf-attitude": Case("ukf", on(systems.attitude, "ukf"), 3, 3, uses_dt=True),
    "arkf": Case("arkf", lagged, 2, 1),
    "adaptive": Case("adaptive_kf", adaptive, 2, 1),
    # -- learned baselines -----------------------------------------------------------------------------------------
    "kalmannet": Case("kalmannet", on(systems.wave, "kalmannet", gain_factor=1.0, **NARROW), 2, 1, uses_dt=True),
    "kalmannet-attitude": Case(
        "kalmannet",
        on(systems.attitude, "kalmannet", gain_factor=1.0, **{**NARROW, "calmed": 0.1}),
        3,
        3,
        uses_dt=True,
        traced_first=True,
    ),
    "bayesian-kalmannet": Case(
        "bayesian_kalmannet",
        on(systems.wave, "bayesian_kalmannet", members=4, hidden_mult=1, gain_factor=1.0, **NARROW),
        2,
        1,
        uses_dt=True,
        same_in_both_dtypes=False,
    ),
    "recursive-kalmannet": Case(
        "recursive_kalmannet",
        on(systems.wave, "recursive_kalmannet", fc1_mult=2, hidden_mult=2, fc2_mult=2, weight_factor=1.0, calmed=0.5),
        2,
        1,
        uses_dt=True,
    ),
    "rkn": Case("rkn", latent, 2, innovation_dim=4, prior_matters=False),
    "public-code": Case(
        "fwnkf_public_code",
        on(systems.wave, "fwnkf_public_code", units=8, shaken=0.1),
        2,
        1,
        uses_dt=True,
        detaches="gain_covariance",
    ),
    "public-code-attitude": Case(
        "fwnkf_public_code",
        on(systems.attitude, "fwnkf_public_code", units=8, layers=1, rank=2, q_rank=0, r_rank=0, order=2, shaken=0.1),
        3,
        3,
        uses_dt=True,
        detaches="gain_covariance",
        traced_first=True,
    ),
    # -- FW-NKF: each part alone, and parts together -----------------------------------------------------------------
    "fwnkf": Case("fwnkf", weighted_on(systems.wave, 0.3), 2, 1, uses_dt=True),
    "fwnkf-paper": Case(
        "fwnkf",
        weighted(encoder=GRU(8, reads="current"), transition=LocallyLinear(3), phi=Phi(2)),
        2,
        1,
        uses_dt=True,
    ),
    "encoder": Case("fwnkf", weighted(encoder=GRU(8, layers=2), solve="sequential"), 2, 1, uses_dt=True),
    "locally-linear": Case("fwnkf", weighted(system={"control_dim": 0}, transition=LocallyLinear(1)), 2, uses_dt=True),
    "rotation": Case("fwnkf", weighted_rotation, 3, uses_dt=True),
    "residual": Case("fwnkf", weighted_on(systems.wave, 0.3, encoder=GRU(8), residual=MLP(8)), 2, 1, uses_dt=True),
    # less noise than in the other cases: a random quadratic transition diverges
    "residual-products": Case("fwnkf", weighted_on(systems.wave, shaken=0.01, residual=MLP(8, 2)), 2, 1, uses_dt=True),
    "learned-matrix": Case(
        "fwnkf", weighted(**LEARNED, phi=Phi(2), system={"observation": "learned_matrix"}), 2, 1, uses_dt=True
    ),
    "learned-network": Case(
        "fwnkf",
        weighted(encoder=GRU(8), residual=MLP(8), system={"observation": "learned_network"}),
        2,
        1,
        uses_dt=True,
    ),
    "lines": Case("fwnkf", weighted(**LEARNED, noise=Lines(2, shared=True)), 2, 1, uses_dt=True),
    "lines-own": Case("fwnkf", weighted(**LEARNED, noise=Lines(2), system={"full": True}), 2, 1, uses_dt=True),
    "lines-linear": Case("fwnkf", partial(continuous, noise=Lines(2)), 2, 1, uses_dt=True),
    "lines-square-root": Case("fwnkf", weighted(**LEARNED, noise=Lines(2), solve="square_root"), 2, 1, uses_dt=True),
    "lines-curved": Case(
        "fwnkf",
        weighted_on(systems.wave, encoder=GRU(8), residual=MLP(8), noise=Lines(2), moments="second_order"),
        2,
        1,
        uses_dt=True,
    ),
    "lines-attitude": Case(
        "fwnkf",
        weighted_on(systems.attitude, encoder=GRU(8), residual=MLP(8), noise=Lines(2)),
        3,
        3,
        uses_dt=True,
        traced_first=True,
    ),
    "modes": Case("fwnkf", weighted(**LEARNED, noise=[Lines(1), Modes(2)], system={"full": True}), 2, 1, uses_dt=True),
    "drift": Case("fwnkf", weighted_on(systems.wave, noise=Drift(seconds=0.5, std=0.3)), 2, 1, uses_dt=True),
    "orders": Case("fwnkf", partial(tracking, rotors=2, common=0.5), 2, 3, uses_dt=True),
    "orders-linear": Case("fwnkf", partial(tracking, linear=True), 2, 2),
    "level-noise": Case("fwnkf", weighted(**LEARNED, noise=Lines(1), level=Level(seconds=0.5)), 2, 1, uses_dt=True),
    "level-each": Case(
        "fwnkf",
        weighted(**LEARNED, noise=[Lines(1), Modes(1)], level=Level(seconds=0.5, of="each")),
        2,
        1,
        uses_dt=True,
    ),
    "level-all": Case(
        "fwnkf", weighted(**LEARNED, noise=Lines(2), level=Level(seconds=15.0, of="all")), 2, 1, uses_dt=True
    ),
    "level-white": Case("fwnkf", weighted_on(systems.wave, level=Level(seconds=0.5)), 2, 1, uses_dt=True),
    "phi": Case("fwnkf", weighted_on(systems.wave, 0.3, phi=Phi(2, shared=False)), 2, 1, uses_dt=True),
    "phi-augmented": Case("fwnkf", weighted(**LEARNED, phi=Phi(2, covariance="augmented")), 2, 1, uses_dt=True),
    "phi-augmented-shaped": Case(
        "fwnkf",
        weighted(**LEARNED, phi=Phi(2, shared=False, covariance="augmented", gain="shaped"), system={"full": True}),
        2,
        1,
        uses_dt=True,
    ),
    "phi-pendulum": Case(
        "fwnkf",
        weighted_on(systems.pendulum, encoder=GRU(8), residual=MLP(8), phi=Phi(2, covariance="augmented")),
        2,
        1,
        uses_dt=True,
    ),
    "hypotheses": Case(
        "fwnkf", weighted(**LEARNED, noise=Lines(2, shared=True), hypotheses=Hypotheses(3)), 2, 1, uses_dt=True
    ),
    "hypotheses-fallback": Case(
        "fwnkf",
        weighted(**LEARNED, noise=Lines(2, shared=True), hypotheses=Hypotheses(1, fallback=True)),
        2,
        1,
        uses_dt=True,
    ),
    "hypotheses-levels": Case(
        "fwnkf",
        weighted(
            **LEARNED,
            noise=Lines(2, shared=True),
            hypotheses=Hypotheses(2, fallback=True, levels=(0.5, 2.0), dwell=0.5),
        ),
        2,
        1,
        uses_dt=True,
    ),
    "hypotheses-onsets": Case(
        "fwnkf",
        weighted(**LEARNED, noise=Lines(2, shared=True), hypotheses=Hypotheses(1, fallback=True, dwell=0.5, onsets=2)),
        2,
        1,
        uses_dt=True,
    ),
    "correction": Case("fwnkf", weighted_on(systems.wave, correction=Correction(3)), 2, 1, uses_dt=True),
    "correction-level": Case(
        "fwnkf",
        weighted(**LEARNED, noise=Modes(1), level=Level(seconds=15.0, of="all"), correction=Correction(2, 0.5)),
        2,
        1,
        uses_dt=True,
    ),
    "correction-attitude": Case(
        "fwnkf",
        weighted_on(systems.attitude, noise=Lines(2), correction=Correction(2)),
        3,
        3,
        uses_dt=True,
        traced_first=True,
    ),
    "jump": Case("fwnkf", weighted(encoder=GRU(8), jump=2.0), 2, 1, uses_dt=True),
    # lines of rotors, a drift, a tracked level, an encoder and a residual in one filter
    "everything": Case(
        "fwnkf",
        weighted_on(
            systems.wave,
            noise=[Orders(2, 2, hz=0.3, hz_std=0.3, speed_std=0.5, std=0.3, bandwidth_hz=0.5), Drift(0.5, std=0.2)],
            level=Level(seconds=0.5, of="each"),
            encoder=GRU(8),
            residual=MLP(8),
        ),
        2,
        3,
        uses_dt=True,
    ),
}
STATED = {case.filter for case in CASES.values()}
CASES |= {
    name: Case(name, on(systems.wave, name), 2, 1, uses_dt=True) for name in filters._MODULES if name not in STATED
}
