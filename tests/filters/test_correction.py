"""The correction of estimates by innovations: against joint Gaussians, sums of impulses, and the filter without it."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf import Correction, Hypotheses, Level, Lines, Phi
from fwnkf.core.linear import LinearSystem
from fwnkf.errors import ConfigError
from fwnkf.filters.parts import correction as correcting
from fwnkf.native.compilers import c_compiler

from ..systems import continuous_matrices, linear_matrices
from ..tolerances import assert_close

STEP = 0.1
needs_compiler = pytest.mark.skipif(c_compiler() is None, reason="no C compiler")


def build(generator=None, **parts) -> fwnkf.FWNKF:
    matrices = {name: value for name, value in continuous_matrices().items() if name != "B"}
    system = LinearSystem.of(**matrices, continuous=True, dt=STEP)
    options = {"correction": Correction(3, seconds=0.4)} | parts
    model = fwnkf.FWNKF(system, noise=Lines(hz=2.0, bandwidth_hz=0.5, std=0.7), **options).requires_grad_(False)
    if generator is not None:
        root = torch.randn(2, 2, generator=generator, dtype=torch.float64)
        model.correction.set(root, torch.randn(2, 12, generator=generator, dtype=torch.float64))
    return model


def record(generator, steps: int = 60) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y = torch.randn(2, steps, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, steps, 2, generator=generator) < 0.7
    mask[:, 20:25] = False
    return y, mask, 2 * STEP * torch.rand(2, steps, generator=generator).double()


def test_it_starts_as_the_filter_without_it_to_the_bit(generator):
    y, mask, dt = record(generator)
    plain, ours = (model.run(y, mask=mask, dt=dt, engine="loop") for model in (build(correction=None), build()))
    for name in ("mean", "cov", "prior_mean", "innovation", "innovation_cov"):
        assert torch.equal(getattr(plain, name), getattr(ours, name)), name


def test_estimates_move_by_decayed_and_turned_innovations_of_the_past(generator):
    """A sum over impulses, each turned by the time since; gains, innovations and covariances stay."""
    y, mask, dt = record(generator)
    model = build(generator)
    plain, ours = build(correction=None).run(y, mask=mask, dt=dt), model.run(y, mask=mask, dt=dt, engine="loop")
    for name in ("cov", "innovation", "innovation_cov"):
        assert_close(getattr(plain, name), getattr(ours, name))
    bank = model.correction
    decay, turn = math.exp(-STEP / 0.4), math.pi * torch.tensor([0.0, 0.5, 1.0]).double()
    for row in range(2):
        time, inputs = 0.0, []
        for t in range(y.shape[1]):
            time += float(dt[row, t]) / STEP
            seen = mask[row, t]
            S, e = plain.innovation_cov[row, t][seen][:, seen], plain.innovation[row, t][seen]
            push = torch.zeros(2).double()
            push[seen] = torch.linalg.solve(S, e)

            def added(past, time=time):
                z = torch.zeros(3, 2, 2).double()
                for when, u in past:
                    age = time - when
                    size = math.sqrt(1 - decay**2) * decay**age
                    z += size * torch.stack(((turn * age).cos(), (turn * age).sin()), -1)[..., None] * u
                return torch.cat((bank.weights[:2] @ z.flatten(), torch.zeros(1).double()))

            assert_close(ours.prior_mean[row, t], plain.prior_mean[row, t] + added(inputs))
            inputs.append((time, push @ bank.root))
            assert_close(ours.mean[row, t], plain.mean[row, t] + added(inputs))


def test_after_a_gap_the_input_is_the_expectation_of_the_innovation_without_a_gap(generator):
    """By brute force: all measurements as one Gaussian vector, conditioned on those that are there."""
    matrices = {name: value for name, value in linear_matrices(full=True).items() if name != "B"}
    F, H, Q, R = (matrices[name] for name in "FHQR")
    model = fwnkf.FWNKF(LinearSystem.of(**matrices), correction=Correction(1)).requires_grad_(False)
    steps, n, m = 6, 3, 2
    prior = fwnkf.Gaussian(torch.zeros(n).double(), torch.eye(n).double())
    y = torch.randn(1, steps, m, generator=generator, dtype=torch.float64)
    mask = torch.ones(1, steps, m, dtype=torch.bool)
    mask[0, 2:4] = False
    mask[0, 4, 0] = False

    def innovations(given, present):
        return model.run(given, mask=present, prior=prior)

    # covariance of all measurements, and what the innovations without gaps are of them
    states = [prior.cov]
    for _ in range(steps - 1):
        states.append(F @ states[-1] @ F.mT + Q)
    cov = torch.zeros(steps * m, steps * m).double()
    for i in range(steps):
        for j in range(i, steps):
            block = H @ torch.linalg.matrix_power(F, j - i) @ states[i] @ H.mT + (R if i == j else 0)
            cov[j * m : (j + 1) * m, i * m : (i + 1) * m] = block
            cov[i * m : (i + 1) * m, j * m : (j + 1) * m] = block.mT
    units = torch.eye(steps * m).double().reshape(steps * m, steps, m)
    whole = innovations(units, torch.ones_like(units, dtype=torch.bool))
    out = innovations(y, mask)
    for t in (2, 4, 5):
        here = mask[0].clone()
        here[t + 1 :] = False
        here = here.flatten()
        to_innovation = whole.innovation[:, t].mT  # [m, all measurements]
        solved = torch.linalg.solve(cov[here][:, here], y[0].flatten()[here])
        expected = to_innovation @ cov[:, here] @ solved
        nominal = whole.innovation_cov[0, t]
        prepared = model.correction.prepare()._replace(root=torch.linalg.cholesky(nominal))
        weight = mask[:, t].double()
        drive = correcting.scaled(prepared, out.innovation[:, t], out.innovation_cov[:, t], weight)
        assert_close((drive @ prepared.root.mT)[0], expected)


@needs_compiler
@pytest.mark.parametrize("level", [None, Level(seconds=1.0, of="all")])
@pytest.mark.parametrize("prior", [False, True])
def test_compiled_runs_equal_the_loop(generator, level, prior):
    y, mask, dt = record(generator, 300)
    model = build(generator, level=level)
    belief = fwnkf.Gaussian(torch.ones(3).double(), torch.eye(3).double()) if prior else None
    loop = model.run(y, mask=mask, dt=dt, prior=belief, engine="loop")
    ours = model.run(y, mask=mask, dt=dt, prior=belief)
    assert ours.engine == "native"
    for name in ("mean", "cov", "prior_mean", "prior_cov", "innovation", "innovation_cov"):
        assert_close(getattr(ours, name), getattr(loop, name))
    assert_close(ours.state.correction, loop.state.correction)
    assert_close(ours.log_likelihood, loop.log_likelihood)
    assert torch.equal(ours.status, loop.status)
    halves = model.run(y[:, :250], mask=mask[:, :250], dt=dt[:, :250], prior=belief)
    rest = model.run(y[:, 250:], mask=mask[:, 250:], dt=dt[:, 250:], state=halves.state)
    assert_close(rest.mean, ours.mean[:, 250:])


@needs_compiler
def test_a_step_that_is_rejected_moves_no_oscillator(generator):
    matrices = linear_matrices()
    model = fwnkf.FWNKF(LinearSystem.of(**matrices), correction=Correction(2)).requires_grad_(False)
    model.correction.set(torch.eye(2).double(), torch.randn(3, 8, generator=generator, dtype=torch.float64))
    y = torch.randn(1, 220, 2, generator=generator, dtype=torch.float64)
    u = torch.randn(1, 220, matrices["B"].shape[-1], generator=generator, dtype=torch.float64)
    u[0, 100] = math.nan
    loop, ours = (model.run(y, u, engine=engine) for engine in ("loop", "native"))
    assert int(ours.status[0, 100]) & int(fwnkf.Status.REJECTED)
    assert_close(ours.mean[:, 101:], loop.mean[:, 101:])
    assert_close(ours.state.correction, loop.state.correction)


def test_a_saved_filter_goes_on_where_it_stopped(generator, tmp_path):
    y, mask, dt = record(generator)
    model = build(generator)
    whole = model.run(y, mask=mask, dt=dt, engine="loop")
    fwnkf.save(model, tmp_path / "filter")
    loaded = fwnkf.load(tmp_path / "filter").requires_grad_(False)
    half = loaded.run(y[:, :31], mask=mask[:, :31], dt=dt[:, :31], engine="loop")
    rest = loaded.run(y[:, 31:], mask=mask[:, 31:], dt=dt[:, 31:], state=half.state, engine="loop")
    assert torch.equal(torch.cat((half.mean, rest.mean), 1), whole.mean)


def test_oscillators_are_stable_for_every_number_that_a_training_may_find():
    model = build().float()
    for raw in (-1e30, 1e30):
        torch.nn.init.constant_(model.correction.raw_radius, raw)
        assert float(model.correction.prepare().radius.max()) < 1
        assert bool((model.correction.prepare().drive > 0).all())


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"phi": Phi(), "noise": None}, "leave phi and hypotheses out"),
        ({"hypotheses": Hypotheses(2)}, "leave phi and hypotheses out"),
        ({"correction": Correction(seconds=1e9)}, "pole_radius"),
    ],
)
def test_what_cannot_be_is_said(parts, words):
    with pytest.raises(ConfigError, match=words):
        build().with_parts(**parts)


def test_smoothing_and_the_scan_are_refused_with_a_way_out(generator):
    y, *_ = record(generator)
    with pytest.raises(ConfigError, match="correction=None"):
        build().run(y, smoothing=True)
    with pytest.raises(ConfigError, match="leave engine out"):
        build().run(y, engine="scan")
