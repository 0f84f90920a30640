"""Conditioned noise of an FW-NKF against explicit steps, and its steady-state loop against the Riccati equation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are

import fwnkf
from fwnkf import GRU, MLP, Lines, Phi
from fwnkf.core.iir import Sections
from fwnkf.errors import ConfigError, NumericalFailureError
from fwnkf.filters.diagnostics import noise_over_time, nominal_noise, steady_state_loop
from fwnkf.systems import LearnedSystem

from .. import systems
from ..conformance.cases import built
from ..tolerances import assert_close


def inputs(generator, channels, controls):
    """Irregular steps and dropouts, with NaN for missing measurements."""
    y = torch.randn(3, 12, channels, generator=generator, dtype=torch.float64)
    mask = torch.rand(y.shape, generator=generator) > 0.3
    return {
        "y": torch.where(mask, y, torch.nan),
        "u": torch.randn(3, 12, controls, generator=generator, dtype=torch.float64),
        "mask": mask,
        "dt": 0.05 + 0.1 * torch.rand(3, 12, generator=generator, dtype=torch.float64),
    }


def test_without_an_encoder_the_noise_is_the_base_noise(generator):
    matrices = systems.linear_matrices()
    arrays = {"H": matrices["H"], "Q": matrices["Q"].diagonal().diag(), "R": matrices["R"]}
    model = fwnkf.FWNKF(LearnedSystem.of(**arrays))
    Q, R = noise_over_time(model, torch.randn(4, 9, 2, generator=generator, dtype=torch.float64))
    assert torch.equal(Q, arrays["Q"].diagonal().expand(4, 9, 3))
    assert torch.equal(R, arrays["R"].diagonal().expand(4, 9, 2))
    for variance, expected in zip(nominal_noise(model), (arrays["Q"], arrays["R"]), strict=True):
        assert torch.equal(variance, expected.diagonal())


@pytest.mark.parametrize("correlation", [0.0, 0.3])
@pytest.mark.parametrize("reads", ["previous", "current"])
def test_conditioned_noise_equals_explicit_steps(generator, correlation, reads):
    """The encoder is torch's GRU, the bounded head is computed here, the states come from ``model.step``."""
    system = systems.wave(correlation=correlation)
    model = built("fwnkf", system=system, shaken=0.4, encoder=GRU(6, reads=reads), residual=MLP(6), noise=Lines())
    recording = inputs(generator, 2, 1)
    Q, R = noise_over_time(model, **recording)

    cell = torch.nn.GRUCell(3 + 2 + 1, 6, dtype=torch.float64)
    cell.load_state_dict(model.encoder.cells[0].state_dict())
    state = model.init(3)
    with torch.no_grad():
        for t in range(12):
            now = {name: value[:, t] for name, value in recording.items()}
            measured = state.encoder.seen
            if reads == "current":
                measured = torch.where(now["mask"], now["y"], system.observe(state.mean))
            hidden = cell(torch.cat((state.mean, measured, now["u"]), -1), state.encoder.hidden[0])
            head = hidden @ model.head_weight.mT + model.head_bias
            factor = (6.0 * head.tanh()).exp().numpy()
            process = system.process_noise(now["dt"]).diagonal(dim1=-2, dim2=-1).numpy()
            measurement = system.measurement_covariance().diagonal().numpy()
            assert_close(Q[:, t], process * factor[:, :3])
            assert_close(R[:, t], measurement * factor[:, 3:])
            state, _ = model.step(state, **now)
    assert Q.std(1).min() > 0  # the noise varies over time


def test_noise_over_time_is_a_pure_function(generator):
    model = built("fwnkf", system=systems.wave(), shaken=0.2, encoder=GRU(6), residual=MLP(6))
    recording = inputs(generator, 2, 1)
    before = {name: value.clone() for name, value in recording.items()}
    first, again = (noise_over_time(model, **recording) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not first[0].requires_grad
    for name, value in recording.items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


def test_other_filters_are_refused_with_advice():
    ekf = fwnkf.build("ekf", system=systems.wave())
    for call in (lambda: noise_over_time(ekf, torch.zeros(1, 3, 2)), lambda: nominal_noise(ekf)):
        with pytest.raises(ConfigError, match=r"'ekf' has no noise covariances that change.*build\('fwnkf'"):
            call()


# ---- the loop -------------------------------------------------------------------------------------------------------

LINEAR = {name: value for name, value in systems.linear_matrices().items() if name != "B"}
LOW_PASS = Sections(
    torch.tensor([[0.1, 0.1, 0.0]], dtype=torch.float64), torch.tensor([[-0.9, 0.1]], dtype=torch.float64)
)


@pytest.mark.parametrize("covariance", ["joseph", "augmented"])
def test_the_loop_of_a_linear_system_has_the_riccati_gain(covariance):
    """The Joseph form has the gain of scipy's Riccati solution; both forms match a perturbed run."""
    model = fwnkf.FWNKF(fwnkf.LinearSystem.of(**LINEAR), phi=Phi(covariance=covariance))
    model.shaper.set_sections(LOW_PASS)
    loop = steady_state_loop(model)
    F, H, Q, R = (LINEAR[name].numpy() for name in "FHQR")
    if covariance == "joseph":
        P = solve_discrete_are(F.T, H.T, Q, R)
        # the gain comes from a finite run
        np.testing.assert_allclose(loop.gain, P @ H.T @ np.linalg.inv(H @ P @ H.T + R), rtol=1e-7, atol=1e-9)
    state = model.init(1)
    silent = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(400):  # until the covariance is in steady state
        state, _ = model.step(state, silent)
    error = torch.cat((torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([0.3, 0.1, -0.4, 0.2]).double()))
    # the true state is zero, so e = x - x̂ = -x̂; the memory lists both channels
    state = state._replace(mean=-error[None, :3], memory=error[None, 3:].unflatten(1, (2, 2)))
    for _ in range(5):
        error = loop.matrix @ error
        state, _ = model.step(state, silent)
        simulated = torch.cat((-state.mean[0], state.memory.flatten()))
        np.testing.assert_allclose(simulated.detach(), error, rtol=1e-6, atol=1e-8)


def test_a_gain_without_steady_state_raises():
    """For a constant state the gain decreases like 1/t and never reaches a steady state."""
    still = {**LINEAR, "F": torch.eye(3).double(), "Q": torch.zeros(3, 3).double()}
    model = fwnkf.FWNKF(fwnkf.LinearSystem.of(**still), phi=Phi())
    with pytest.raises(NumericalFailureError, match="does not reach a steady state"):
        steady_state_loop(model)


def test_forms_without_a_loop_are_refused():
    for parts in ({}, {"noise": Lines()}, {"phi": Phi(covariance="augmented", gain="shaped")}):
        model = fwnkf.FWNKF(fwnkf.LinearSystem.of(**LINEAR), **parts)
        with pytest.raises(ConfigError, match=r"is that of a filter with phi=Phi\(gain='kalman'\)"):
            steady_state_loop(model)
