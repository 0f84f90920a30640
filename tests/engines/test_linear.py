"""Engines for filters with a linear model agree with the loop, step by step and in everything that a run returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf import FWNKF, KF, Drift, Lines, Modes
from fwnkf.core.trajectory import Trajectory
from fwnkf.core.tree import tree_leaves
from fwnkf.filters.base import Filter
from fwnkf.filters.engines import OUTPUTS, EngineError
from fwnkf.native.kalman import tabulated

STEPS = 80
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-3}
"""Relative to the largest number of an output."""


def spread(size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    root = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (root @ root.mT / size + 0.1 * torch.eye(size)).to(dtype)


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def discrete(dtype: torch.dtype, full: bool = False) -> Filter:
    F = 0.95 * torch.linalg.qr(drawn(4, 4, seed=1))[0]
    R = spread(2, 4) if full else torch.tensor([0.3, 0.1]).double().diag()
    return KF(F=F, H=drawn(2, 4, seed=2), B=drawn(4, 2, seed=3), Q=0.1 * spread(4, 5), R=R, dt=0.01).to(dtype)


def continuous(dtype: torch.dtype, noise: Any = None) -> Filter:
    """Two axes of position and velocity, one of which is damped and swings fast."""
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[0, 1] = A[2, 3] = 1.0
    A[3, 2], A[3, 3] = -900.0, -2.0
    B = torch.tensor([[0.0], [1.0], [0.0], [3.0]], dtype=torch.float64)
    H = torch.eye(4, dtype=torch.float64)[[0, 2]]
    Q, R = torch.tensor([0.0, 2.0, 0.0, 1.0]).double().diag(), torch.tensor([0.04, 0.01]).double().diag()
    system = fwnkf.LinearSystem.of(F=A, H=H, Q=Q, R=R, B=B, continuous=True, dt=0.01)
    return FWNKF(system, noise=noise).to(dtype)


CASES = {
    "discrete": discrete,
    "full noise": lambda dtype: discrete(dtype, full=True),
    "continuous": continuous,
    "lines": lambda dtype: continuous(dtype, Lines(hz=[[7.0, 31.0], [12.0, 44.0]], bandwidth_hz=0.5, std=0.3)),
    "lines and drift": lambda dtype: continuous(dtype, [Lines(hz=9.0, std=0.2), Drift(seconds=2.0, std=0.5)]),
    "modes": lambda dtype: continuous(dtype, Modes(hz=11.0, std=[[0.3], [0.1]])),
}
RECORDINGS = ("regular", "gaps", "irregular", "controls", "held", "batch")


def recording(model: Filter, kind: str, steps: int = STEPS) -> dict[str, Any]:
    dtype, records = model.dtype, 3 if kind == "batch" else 1
    y = drawn(records, steps, model.observation_dim, seed=6, dtype=dtype)
    given: dict[str, Any] = {"y": y}
    generator = torch.Generator().manual_seed(7)
    if kind in ("gaps", "held", "batch"):
        mask = torch.rand(y.shape, generator=generator) > 0.3
        mask[:, 20:30] = False
        y[:, 40, 0] = torch.nan  # said to be measured
        mask[:, 40, 0] = True
        y[~mask] = torch.nan
        given["mask"] = mask
    if kind in ("irregular", "held") and model.takes_dt:
        given["dt"] = 0.01 * (0.2 + 2 * torch.rand(records, steps, generator=generator)).to(dtype)
        given["dt"][:, 50] = 0.4
        given["dt"][:, 51] = 0.0
    if kind in ("controls", "held"):
        u = drawn(records, steps, model.control_dim, seed=8, dtype=dtype)
        u[:, 33] = torch.nan
        given["u"] = u
    if kind == "held":
        n = model.layout.size
        given["prior"] = fwnkf.Gaussian(drawn(n, seed=9, dtype=dtype), spread(n, 10, dtype))
    return given


def assert_agree(found: Trajectory, loop: Trajectory, tolerance: float) -> None:
    assert torch.equal(found.status, loop.status)
    kept = loop.status < int(fwnkf.Status.REJECTED)  # the outputs of a rejected step mean nothing
    for name in OUTPUTS:
        one, other = getattr(found, name)[kept], getattr(loop, name)[kept]
        assert one.shape == other.shape
        assert float((one - other).abs().max()) <= tolerance * float(other.abs().max()), name
    close = (found.step_log_likelihood - loop.step_log_likelihood)[kept].abs().max()
    assert float(close) <= tolerance * float(loop.step_log_likelihood[kept].abs().max())
    for cov in (found.cov, found.prior_cov, found.innovation_cov):
        assert torch.equal(cov[kept], cov[kept].mT)
    for one, other in zip(tree_leaves(found.state), tree_leaves(loop.state), strict=True):
        assert one.shape == other.shape
        assert one.numel() == 0 or float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))
    assert torch.equal(found.weight, loop.weight)


@pytest.mark.parametrize("engine", ["native", "scan"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("kind", RECORDINGS)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_an_engine_agrees_with_the_loop(case: str, kind: str, dtype: torch.dtype, engine: Any):
    model = CASES[case](dtype)
    given = recording(model, kind)
    found = model.run(**given, engine=engine)
    assert found.engine == engine
    assert_agree(found, model.run(**given, engine="loop"), TOLERANCE[dtype])


@pytest.mark.parametrize("kind", RECORDINGS)
@torch.no_grad()
def test_a_run_that_is_cut_has_the_same_bits(kind: str):
    model = CASES["lines and drift"](torch.float64)
    given = recording(model, kind)
    whole = model.run(**given, engine="native")
    tensors = {name: item for name, item in given.items() if isinstance(item, Tensor)}
    first = model.run(**{**given, **{name: item[:, :37] for name, item in tensors.items()}}, engine="native")
    rest = {name: item[:, 37:] for name, item in tensors.items()}
    last = model.run(**rest, state=first.state, engine="native")
    for name in OUTPUTS:
        parts = torch.cat((getattr(first, name), getattr(last, name)), 1)
        assert torch.allclose(parts, getattr(whole, name), rtol=0, atol=0, equal_nan=True), name


@torch.no_grad()
def test_outputs_that_nobody_wants_are_not_made():
    model = discrete(torch.float64)
    for engine in ("loop", "native"):
        track = model.run(**recording(model, "gaps"), engine=engine, outputs=("mean",))
        assert track.mean is not None
        assert track.status is not None
        assert track.cov is None
        assert track.innovation_cov is None


def test_an_engine_that_cannot_serve_says_why():
    learned = KF(F=torch.eye(2), H=torch.eye(1, 2), Q=torch.eye(2), R=torch.eye(1), learn=("Q",))
    y = torch.zeros(1, 5, 1)
    with pytest.raises(EngineError, match="no gradients"):
        learned.run(y, engine="native")
    pendulum = fwnkf.EKF(fwnkf.systems.Pendulum(fwnkf.systems.PendulumConfig()))
    with pytest.raises(EngineError, match="linear model"):
        pendulum.run(torch.zeros(1, 5, pendulum.observation_dim), engine="scan")
    with pytest.raises(fwnkf.errors.ConfigError, match="there are: auto, loop, scan, native"):
        learned.run(y, engine="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["native", "scan"])
@pytest.mark.parametrize("kind", RECORDINGS)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_smoother_agrees_with_that_of_the_loop(case: str, kind: str, engine: Any):
    model = CASES[case](torch.float64)
    given = recording(model, kind)
    if kind in ("controls", "held"):
        given["u"] = given["u"].nan_to_num()  # a rejected step leaves NaN in what the loop records
    found = fwnkf.smooth(model, model.run(**given, engine=engine, smoothing=True))
    loop = fwnkf.smooth(model, model.run(**given, engine="loop", smoothing=True))
    for name in ("mean", "cov", "cross_cov"):
        one, other = getattr(found, name), getattr(loop, name)
        assert one.shape == other.shape
        assert float((one - other).abs().max()) <= 1e-8 * float(other.abs().max()), name
    for one, other in zip(found.noise or (), loop.noise or (), strict=True):
        assert float((one - other).abs().max()) <= 1e-8


def learned(continuous_time: bool) -> KF:
    A = torch.tensor([[0.0, 1.0, 0.0], [-30.0, -0.4, 0.5], [0.1, 0.0, -2.0]]).double()
    F = A if continuous_time else torch.linalg.matrix_exp(0.05 * A)
    return KF(
        F=F, H=drawn(2, 3, seed=11), B=drawn(3, 1, seed=12), Q=spread(3, 13), R=spread(2, 14), dt=0.05,
        learn=("F", "H", "B", "Q", "R"), continuous=continuous_time, diagonal_noise=False,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["native", "scan"])
@pytest.mark.parametrize("kind", ["regular", "gaps", "irregular", "controls", "held", "batch"])
@pytest.mark.parametrize("continuous_time", [False, True], ids=["discrete", "continuous"])
def test_gradients_of_the_likelihood_are_those_of_the_loop(continuous_time: bool, kind: str, engine: Any):
    model = learned(continuous_time)
    given = recording(model, kind)
    if kind in ("controls", "held"):
        given["u"] = given["u"].nan_to_num()
    scale = torch.arange(1.0, 1.0 + len(given["y"])).double()

    def gradients(engine: Any) -> list[Tensor]:
        value = model.log_likelihood(**given, engine=engine)
        return [
            value.detach(),
            *torch.autograd.grad((scale * value).sum(), list(model.parameters()), allow_unused=True),
        ]

    for one, other in zip(gradients(engine), gradients("loop"), strict=True):
        if other is not None:
            assert float((one - other).abs().max()) <= 1e-8 * float(other.abs().max())


@pytest.mark.parametrize("longest", [0.5, 400.0], ids=["series", "doubled"])
@pytest.mark.parametrize("case", ["continuous", "lines and drift"])
@torch.no_grad()
def test_matrices_of_many_lengths_are_those_of_single_steps(case: str, longest: float):
    model = CASES[case](torch.float64)
    lengths = longest * torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    stated = model.linear_model()
    found = tabulated(stated.continuous, lengths)
    expected = model.linear_model(dt=lengths * model.system.dt)
    for one, other in zip(found, (expected.F, expected.B, expected.Q), strict=True):
        assert float((one - other).abs().max()) <= 1e-12 * float(other.abs().max())


@pytest.mark.parametrize("case", ["discrete", "lines"])
@torch.no_grad()
def test_records_that_share_steps_and_gaps_are_filtered_as_alone(case: str):
    model = CASES[case](torch.float64)
    y, mask = drawn(3, STEPS, 2, seed=9), (drawn(1, STEPS, 2, seed=10) > -0.5).expand(3, -1, -1)
    dt = None if case == "discrete" else torch.where(drawn(1, STEPS, seed=11) > 0, 0.01, 0.02).expand(3, -1).double()
    together = model.run(y, mask=mask, dt=dt, engine="native")
    for record in range(3):
        one = slice(record, record + 1)
        alone = model.run(y[one], mask=mask[one], dt=None if dt is None else dt[one], engine="native")
        for name in OUTPUTS:
            assert torch.equal(getattr(together, name)[one], getattr(alone, name)), name
