"""KalmanNet against its equations in numpy, one trajectory at a time; only the weights are shared with the package."""

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.filters.baselines.gain_features import unit
from fwnkf.filters.baselines.kalmannet import GainFeatures, GainMemory

from ..systems import linear_matrices
from ..tolerances import assert_close, assert_same_bits
from .vane import (
    STEP,
    array,
    build,
    gru,
    linear,
    normed,
    read,
    reference_inputs,
    relu,
    run,
    vane_seen,
    vane_step,
    wrapped,
)


def kalmannet_reference(net, mean, P, ys, us, dts, masks):
    """Means, covariances and innovation covariances, step by step."""
    w, Q, R = net.network, array(net.system.Q), array(net.system.R)
    x, before, prior_before, seen = mean, mean, mean, vane_seen(mean)[0]
    h_q, h_sigma, h_s = np.eye(2).ravel(), np.zeros(4), np.eye(2).ravel()
    results = []
    for y, u, dt, mask in zip(ys, us, dts, masks, strict=True):
        prior, F = vane_step(x, u, dt)
        P = F @ P @ F.T + Q * dt / STEP
        H = vane_seen(prior)[1]
        innovation, change, seen = read(y, mask, seen, prior)
        f3, f4 = normed(wrapped(x - before)), normed(wrapped(x - prior_before))
        to_q, to_sigma = (f4, f3) if net.config.wiring == "paper" else (f3, f4)
        h_q = gru(w.gru_q, relu(linear(w.fc5[0], to_q)), h_q)
        out_sigma = gru(w.gru_sigma, np.concatenate([h_q, relu(linear(w.fc6[0], to_sigma))]), h_sigma)
        observed = relu(linear(w.fc7[0], np.concatenate([normed(change), normed(innovation)])))
        h_s = gru(w.gru_s, np.concatenate([relu(linear(w.fc1[0], out_sigma)), observed]), h_s)
        gain = linear(w.fc2[2], relu(linear(w.fc2[0], np.concatenate([out_sigma, h_s]))))
        back = relu(linear(w.fc3[0], np.concatenate([h_s, gain])))
        h_sigma = relu(linear(w.fc4[0], np.concatenate([out_sigma, back])))
        K = gain.reshape(2, 2) * mask
        S = H @ P @ H.T + R
        P = (np.eye(2) - K @ H) @ P @ (np.eye(2) - K @ H).T + K @ R @ K.T
        before, prior_before, x = x, prior, wrapped(prior + K @ innovation)
        results.append((x, P, S))
    return [np.array(series) for series in zip(*results, strict=True)]


@pytest.mark.parametrize("wiring", ["paper", "first_release"])
@pytest.mark.parametrize("steps", [1, 3, 4])
def test_kalmannet_equals_its_equations(records, steps, wiring):
    net = build("kalmannet", in_mult=3, out_mult=4, wiring=wiring)
    out = run(net, records, steps)
    for item in range(3):
        means, covs, S = kalmannet_reference(net, *reference_inputs(records, item, steps))
        assert_close(out.mean[item], means)
        assert_close(out.cov[item], covs)
        assert_close(out.innovation_cov[item], S)


@pytest.mark.parametrize(
    ("wiring", "process", "error"),
    [("paper", {"correction"}, {"motion", "correction"}), ("first_release", {"motion"}, {"motion", "correction"})],
)
def test_each_memory_of_kalmannet_reads_the_features_of_the_paper(wiring, process, error):
    """The memory of ``Q`` reads F4 alone, that of ``Σ`` F3 and ``Q``, that of ``S`` all."""
    network = build("kalmannet", wiring=wiring).network
    memory = GainMemory(*(torch.full((1, 4), 0.3, dtype=torch.float64) for _ in range(3)))
    features = GainFeatures(*(torch.full((1, 2), 0.5, dtype=torch.float64) for _ in range(4)))
    # the error covariance before the update with the gain, which depends on everything
    errors = []
    network.gru_sigma.register_forward_hook(lambda module, inputs, output: errors.append(output))
    before = network(memory, features)[1]
    read = {"process": set(), "error": set(), "innovation": set()}
    for name in features._fields:
        moved = network(memory, features._replace(**{name: getattr(features, name) + 0.7}))[1]
        for part, old, new in (
            ("process", before.process, moved.process),
            ("error", errors[0], errors[-1]),
            ("innovation", before.innovation, moved.innovation),
        ):
            if not torch.equal(old, new):
                read[part].add(name)
    assert read == {"process": process, "error": error, "innovation": set(features._fields)}


def test_memory_of_kalmannet_does_not_start_from_the_prior_covariance():
    """As in the authors' code; a variance of 25 would be the first hidden state of a network of units near one."""
    wide = fwnkf.Gaussian(torch.zeros(2, dtype=torch.float64), 25 * torch.eye(2, dtype=torch.float64))
    memory = build("kalmannet").init(3, wide).memory
    eye = torch.eye(2, dtype=torch.float64).flatten().expand(3, -1)
    for part, expected in zip(memory, (eye, torch.zeros_like(eye), eye), strict=True):
        assert_same_bits(part, expected)


@pytest.mark.parametrize("factor", [1.0, 0.1, 0.0])
def test_gain_factor_multiplies_the_first_gain(records, factor):
    full, scaled = (run(build("kalmannet", gain_factor=f), records, 1) for f in (1.0, factor))
    corrections = [track.mean[:, 0, 1] - track.prior_mean[:, 0, 1] for track in (full, scaled)]
    assert corrections[0].abs().min() > 1e-3
    assert_close(corrections[1].float(), factor * corrections[0].float(), "rounding")  # weights are scaled in float32


def test_kalmannet_has_the_size_of_the_paper():
    """Counted by hand from the layer table for two states, two channels, ``in_mult`` 5, ``out_mult`` 40."""
    dense = [(2, 10), (2, 10), (4, 4), (4, 20), (8, 320), (320, 4), (8, 4), (8, 4)]
    recurrent = [(10, 4), (14, 4), (24, 4)]
    count = sum(i * o + o for i, o in dense) + sum(3 * h * (i + h + 2) for i, h in recurrent)
    assert sum(p.numel() for p in build("kalmannet").parameters()) == count


def kalman_gains(m, steps):
    P, gains, covs = np.eye(3), [], []
    F, H, Q, R = (array(m[name]) for name in "FHQR")
    for _ in range(steps):
        P = F @ P @ F.T + Q
        K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
        P = P - K @ H @ P
        gains.append(K)
        covs.append(P)
    return gains, np.array(covs)


def test_kalmannet_covariance_with_the_kalman_gain_is_that_of_the_kalman_filter(monkeypatch, generator):
    m = linear_matrices(full=True)
    net = fwnkf.build("kalmannet", system=fwnkf.LinearSystem.of(**m))
    gains, covs = kalman_gains(m, 8)
    supply = iter(gains)
    monkeypatch.setattr(net, "gain", lambda memory, features: (torch.as_tensor(next(supply))[None], memory))
    y = torch.randn(1, 8, 2, generator=generator, dtype=torch.float64)
    out = net.run(y)
    assert_close(out.cov[0], covs)
    assert_close(out.mean, fwnkf.build("kf", **m).run(y).mean)


def test_kalmannet_covariance_is_the_error_covariance_of_any_fixed_gain(monkeypatch, rng):
    m = linear_matrices(full=True)
    net = fwnkf.build("kalmannet", system=fwnkf.LinearSystem.of(**m))
    K = torch.tensor([[0.5, -0.2], [0.1, 0.3], [0.3, 0.4]], dtype=torch.float64)  # far from optimal
    monkeypatch.setattr(net, "gain", lambda memory, features: (K, memory))
    count, steps = 40_000, 6
    F, H, Q, R = (array(m[name]) for name in "FHQR")
    x = rng.standard_normal((count, 3))
    xs, ys = [], []
    for _ in range(steps):
        x = x @ F.T + rng.multivariate_normal(np.zeros(3), Q, count)
        xs.append(x)
        ys.append(x @ H.T + rng.multivariate_normal(np.zeros(2), R, count))
    out = net.run(torch.as_tensor(np.stack(ys, 1)))
    error = array(out.mean) - np.stack(xs, 1)
    sampled = np.einsum("bti,btj->tij", error, error) / count
    scale = np.sqrt(np.einsum("tii,tjj->tij", sampled, sampled))
    # an entry of a sample covariance deviates by about sqrt(2 / count) = 0.7 %; five of these
    assert np.abs(array(out.cov[0]) - sampled).max() < 5 * math.sqrt(2 / count) * scale.max()
    optimal = kalman_gains(m, steps)[1]
    assert np.trace(sampled[-1]) > 1.2 * np.trace(optimal[-1])  # the optimal covariance would fail this test


def test_unit_has_length_one_and_no_gradient_at_zero():
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0], [1e-9, 0.0]], dtype=torch.float64, requires_grad=True)
    scaled = unit(x)
    assert_close(scaled, torch.tensor([[0.6, -0.8], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64), "rounding")
    scaled[:2, 0].sum().backward()
    assert_close(x.grad[0], torch.tensor([16 / 125, 12 / 125], dtype=torch.float64), "rounding")
    assert not x.grad[1].any()


def test_gradients_stay_moderate_when_nothing_is_measured(generator):
    """Features of length zero appear after empty measurements; their gradient must not dominate the others."""
    net = build("kalmannet")
    y = torch.randn(1, 8, 2, generator=generator, dtype=torch.float64)
    mask = torch.ones(1, 8, 2, dtype=torch.bool)
    mask[:, 2:5] = False
    net.run(y, mask=mask).mean.square().sum().backward()
    sizes = [p.grad.abs().max().item() for p in net.parameters()]
    assert max(sizes) < 1e4
    assert min(sizes[-4:]) > 0  # the backward flow, layers 3 and 4, is reached
