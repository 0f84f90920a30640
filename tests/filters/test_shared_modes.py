"""Modes that all channels share: against a plain Kalman filter on the augmented linear system, gaps and dt included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import expm

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.report.inspect import frequencies

from .. import systems
from ..oracles.joint import autoregressive_causes, joint_posterior
from ..tolerances import assert_close

OMEGA, RADIUS = torch.tensor([0.5, 1.4], dtype=torch.float64), torch.tensor([0.99, 0.9], dtype=torch.float64)
STEP = 0.1


def filters(sections: int) -> tuple[fwnkf.Filter, fwnkf.Filter]:
    """The filter with shared modes, and a plain Kalman filter whose state holds the same modes, in continuous time."""
    given = {name: value for name, value in systems.continuous_matrices(torch.float64, True).items() if name != "B"}
    n, m = given["F"].shape[-1], given["H"].shape[0]
    generator = torch.Generator().manual_seed(1)
    mixing = torch.randn(m, 4, generator=generator, dtype=torch.float64)
    own = [torch.full((m, sections), value, dtype=torch.float64) for value in (2.0, 0.8, 0.7)]
    parts = [*([fwnkf.Lines(sections)] if sections else []), fwnkf.Modes(2)]
    model = fwnkf.FWNKF(fwnkf.LinearSystem.of(**given, continuous=True, dt=STEP), noise=parts)
    *lines, modes = model.noise_parts()
    modes.set_modes(OMEGA, RADIUS, mixing)
    for item in lines:
        item.set_oscillators(*own)
    omega, radius = (torch.cat((one.flatten(), two)) for one, two in zip(own[:2], (OMEGA, RADIUS), strict=True))
    drift, density = [given["F"]], [given["Q"]]
    for w, r in zip(omega, radius, strict=True):
        decay = r.log() / STEP  # the continuous oscillator: exp(drift dt) = r^(dt/step) Rot(w dt/step)
        turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64) * w / STEP
        drift.append(decay * torch.eye(2).double() + turn)
        density.append(-2 * decay * torch.eye(2).double())
    std = given["R"].diagonal().sqrt().unsqueeze(-1)
    C = torch.zeros(m, 2 * m * sections + 4, dtype=torch.float64)
    for channel in range(m):
        for k in range(sections):
            C[channel, 2 * (channel * sections + k)] = own[2][channel, k]
    C[:, 2 * m * sections :] = mixing
    plain = fwnkf.build(
        "kf", F=torch.block_diag(*drift), Q=torch.block_diag(*density), H=torch.cat((given["H"], std * C), -1),
        R=given["R"], continuous=True, dt=STEP,
    )  # fmt: skip
    assert plain.layout.size == n + 2 * m * sections + 4
    return model, plain


@pytest.mark.parametrize("sections", [0, 2])
@pytest.mark.parametrize("irregular", [False, True])
def test_shared_modes_equal_the_kalman_filter_on_the_augmented_system(generator, sections, irregular):
    model, plain = filters(sections)
    y = torch.randn(3, 50, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(y.shape, generator=generator) > 0.2
    dt = 2 * STEP * torch.rand(3, 50, generator=generator, dtype=torch.float64) if irregular else None
    ours, theirs = model.run(y, mask=mask, dt=dt), plain.run(y, mask=mask, dt=dt)
    n = model.layout.size
    assert_close(ours.mean, theirs.mean[..., :n])
    assert_close(ours.cov, theirs.cov[..., :n, :n])
    assert_close(ours.innovation, theirs.innovation)
    assert_close(ours.innovation_cov, theirs.innovation_cov)


def test_shared_modes_are_the_posterior_of_all_steps_together(rng):
    """Against one dense solve in numpy that shares nothing with the package."""
    model, plain = filters(1)
    steps, n = 12, model.layout.size
    system = plain.get_submodule("system")
    drift, H, R = system.F.numpy(), system.H.numpy(), system.R().numpy()
    F = expm(drift * STEP)
    Q = system.process_noise(None).numpy()
    size = len(F)
    prior = torch.eye(size).double().numpy()
    causes = autoregressive_causes([prior[0] * 0], [prior], [[F]] * steps, [prior[0] * 0] * steps, [Q] * steps)
    y, mask = rng.standard_normal((steps, 2)), rng.random((steps, 2)) > 0.2
    posterior = joint_posterior(causes, H, R, y, mask)
    track = model.run(torch.from_numpy(y)[None], mask=torch.from_numpy(mask)[None])
    assert_close(track.mean[0], posterior.mean[:, :n], "joint")
    assert_close(track.cov[0], posterior.cov[:, :n, :n], "joint")


def test_untrained_it_is_the_classical_filter_and_every_part_can_be_learned(generator):
    given = systems.linear_matrices(torch.float64, full=True)
    given.pop("B")
    y = torch.randn(2, 40, 2, generator=generator, dtype=torch.float64)
    system = fwnkf.LinearSystem.of(**given)
    model = fwnkf.FWNKF(system, noise=fwnkf.Modes(3))
    track = model.run(y)
    classical = fwnkf.build("kf", **given).run(y)
    torch.testing.assert_close(track.mean, classical.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(track.cov, classical.cov, atol=1e-6, rtol=0)
    track.innovation.square().sum().backward()
    states = model.noise_states
    for parameter in (states.mixing, states.raw_frequency, states.raw_radius):
        assert float(parameter.grad.abs().min()) > 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"noise": fwnkf.Modes(), "phi": fwnkf.Phi()}, "phi and noise both model coloured noise"),
        ({"noise": {"part": "modes", "count": 0}}, "count = 0 is below 1"),
        ({"noise": fwnkf.Modes(), "hypotheses": fwnkf.Hypotheses(2)}, "hypotheses are about"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(parts, message):
    system = fwnkf.systems.LearnedSystem.of(H=torch.eye(1, 2))
    with pytest.raises(ConfigError, match=message):
        fwnkf.build("fwnkf", system=system, **parts)


def test_a_mode_above_the_limit_is_refused():
    model, _ = filters(0)
    with pytest.raises(ConfigError, match="pole_radius"):
        model.noise_states.set_modes(OMEGA, torch.ones(2).double(), torch.zeros(2, 4).double())


@torch.no_grad()
def test_the_reported_spectrum_holds_the_power_of_the_modes():
    """The density of a channel, integrated over frequency, is the variance of its noise."""
    model, _ = filters(1)
    C = model.prepare().noise.C
    power = C.square().sum(-1) + model.system.measurement_covariance().diagonal()
    facts = frequencies(model)
    for channel, expected in zip(facts["channels"], power.tolist(), strict=True):
        assert np.trapezoid(channel["density"], facts["hz"]) == pytest.approx(expected, rel=0.01)  # trapezoids
        assert len(channel["oscillators"]) == 3
