"""Steps that cannot be made: outliers that overflow, controls that are not finite, negative lengths of a step."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf import Status
from fwnkf.core.tree import named_leaves
from fwnkf.errors import DataError, NumericalFailureError

from ..conformance.cases import CASES, Case

ALL = [pytest.param(case, id=name) for name, case in CASES.items()]


def inputs(case: Case, steps: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    model = case.build(dtype)
    sizes = model.input_sizes
    lead = (1, steps * sizes.block)
    given = {"y": torch.full((*lead, sizes.channels), 0.1, dtype=dtype)}
    if sizes.controls:
        given["u"] = torch.full((*lead, sizes.controls), 0.2, dtype=dtype)
    return given


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("value", [1e17, 1e19, 1e23, 3e38])
def test_an_outlier_leaves_the_filter_finite(case: Case, value: float) -> None:
    """One value that is finite itself, then its negative: squares of either may overflow."""
    model, given = case.build(torch.float32), inputs(case, 12, torch.float32)
    block = model.input_sizes.block
    given["y"][:, 4 * block, 0], given["y"][:, 5 * block, 0] = value, -value
    with torch.no_grad():
        run = model.run(**given)
    used = (run.status & int(Status.REJECTED)) == 0
    assert bool((run.mean.isfinite().all(-1) | ~used).all()), "a mean is not finite and no status says so"
    assert bool((run.cov.isfinite().all(-1).all(-1) | ~used).all()), "a covariance is not finite and no status says so"
    for name, leaf in named_leaves(run.state):
        assert not leaf.is_floating_point() or bool(leaf.isfinite().all()), name
    if value > 2e18:  # it was not used, and the filter is where it would be without it
        mask = torch.ones_like(given["y"], dtype=torch.bool)
        mask[:, 4 * block, 0] = mask[:, 5 * block, 0] = False
        with torch.no_grad():
            without = model.run(**given, mask=mask)
        assert torch.equal(run.mean, without.mean)
        assert bool((run.status[:, 4:6] & int(Status.NON_FINITE_OBSERVATION)).all())


@pytest.mark.parametrize(
    # speeds of rotors may be missing
    "case",
    [item for item in ALL if item.values[0].control_dim and item.id not in ("orders", "orders-linear")],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_control_that_is_not_finite_rejects_the_step(case: Case, value: float) -> None:
    model, given = case.build(torch.float64), inputs(case, 8, torch.float64)
    block = model.input_sizes.block
    given["u"][:, 4 * block, 0] = value
    with torch.no_grad():
        run = model.run(**given)
        before = model.run(**{name: item[:, : 4 * block] for name, item in given.items()})
        after = model.run(**{name: item[:, 5 * block :] for name, item in given.items()}, state=before.state)
    assert torch.equal(run.mean[:, 5:], after.mean), "the state was not that of before the step"
    with pytest.raises(NumericalFailureError, match=r"step 4: .*REJECTED"):
        run.raise_for_status()


def walk(dtype: torch.dtype = torch.float32) -> fwnkf.LinearSystem:
    one = torch.eye(1, dtype=dtype)
    return fwnkf.LinearSystem.of(F=0 * one, B=one, H=one, Q=one, R=one, continuous=True, dt=0.1)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_step_has_a_length(value: float) -> None:
    model = fwnkf.EKF(walk())
    y, dt = torch.zeros(2, 5, 1), torch.full((2, 5), 0.1)
    dt[1, 3] = value
    with pytest.raises(DataError, match="stream 1, step 3"):
        model.run(y, dt=dt)
    with pytest.raises(DataError, match="stream 1"):
        model.step(model.init(2), y[:, 3], dt=dt[:, 3])


def test_the_first_step_from_a_prior_reads_no_length() -> None:
    model = fwnkf.EKF(walk())
    dt = torch.full((1, 3), 0.1)
    dt[0, 0] = math.nan
    prior = fwnkf.Gaussian(torch.zeros(1), torch.eye(1))
    assert not model.run(torch.zeros(1, 3, 1), dt=dt, prior=prior).status.any()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_stream_keeps_its_last_estimate(compiled: bool) -> None:
    stream = fwnkf.Stream(fwnkf.EKF(walk()), compiled=compiled)
    for k in range(5):
        good = stream.step(1.0, t=0.1 * k, u=0.0)
    bad = stream.step(1.0, t=0.5, u=math.nan)
    assert bad.mean == good.mean
    assert bad.health == "degraded"
    assert "not finite" in bad.reason
    assert stream.step(1.0, t=0.6, u=0.0).health == "ok"
