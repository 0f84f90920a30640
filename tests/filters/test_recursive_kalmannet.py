"""Recursive KalmanNet against its equations in numpy, one trajectory at a time."""

import numpy as np
import pytest
import torch

from fwnkf.core import gaussian
from fwnkf.filters.baselines.recursive_kalmannet import RecursiveKalmanNetConfig

from ..tolerances import assert_close, assert_same_bits
from .vane import (
    MASKS,
    STEP,
    STEPS,
    array,
    build,
    gru,
    linear,
    read,
    reference_inputs,
    relu,
    run,
    vane_seen,
    vane_step,
    wrapped,
)


def recursive_reference(net, mean, P, ys, us, dts, masks):
    """Means and covariances, step by step."""
    config, Q = net.config, array(net.system.Q)
    x, seen, correction, K = mean, vane_seen(mean)[0], np.zeros(2), np.zeros((2, 2))
    memories = [np.zeros(net.gain_network.gru.hidden_size), np.zeros(net.noise_network.gru.hidden_size)]
    results = []
    for y, u, dt, mask in zip(ys, us, dts, masks, strict=True):
        prior, F = vane_step(x, u, dt)
        H = vane_seen(prior)[1]
        innovation, change, seen = read(y, mask, seen, prior)
        features = np.concatenate([innovation, change, H.ravel(), correction])
        features = features**2 if config.squared_features else features
        inputs = [np.concatenate([features, K.ravel()]) if config.previous_gain else features, features]
        outputs = []
        for i, w in enumerate((net.gain_network, net.noise_network)):
            memories[i] = gru(w.gru, relu(linear(w.read[0], inputs[i])), memories[i])
            outputs.append(linear(w.out[2], relu(linear(w.out[0], memories[i]))))
        K = outputs[0].reshape(2, 2) * mask
        C = np.array([[outputs[1][0], 0], [outputs[1][1], outputs[1][2]]])
        I_KH = np.eye(2) - K @ H
        P = I_KH @ F @ P @ F.T @ I_KH.T + C @ C.T if mask.any() else F @ P @ F.T + Q * dt / STEP
        x = wrapped(prior + K @ innovation)
        correction = wrapped(x - prior)
        results.append((x, P))
    return [np.array(series) for series in zip(*results, strict=True)]


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("previous_gain", [True, False])
def test_recursive_kalmannet_equals_its_equations(records, squared, previous_gain):
    net = build(
        "recursive_kalmannet", fc1_mult=2, hidden_mult=2, fc2_mult=2,
        squared_features=squared, previous_gain=previous_gain,
    )  # fmt: skip
    out = run(net, records)
    for item in range(3):
        means, covs = recursive_reference(net, *reference_inputs(records, item))
        assert_close(out.mean[item], means)
        assert_close(out.cov[item], covs)


def test_recursive_kalmannet_starts_with_scaled_layers():
    """The authors' ``weight_factor``: every linear layer, its bias too, and not the GRUs."""
    full, scaled = (dict(build("recursive_kalmannet", weight_factor=f).named_parameters()) for f in (1.0, 0.1))
    for name, parameter in full.items():
        assert_close(scaled[name].float(), parameter.float() * (1.0 if "gru" in name else 0.1), "rounding")
    assert build("recursive_kalmannet", weight_factor=0.1).config == RecursiveKalmanNetConfig()


def gradient_sizes(net, loss):
    net.zero_grad()
    loss.backward()
    parts = net.gain_network, net.noise_network
    return [[0.0 if p.grad is None else p.grad.abs().max().item() for p in part.parameters()] for part in parts]


def test_recursive_kalmannet_learns_its_covariance_from_the_likelihood_only(records, generator):
    net = build("recursive_kalmannet")
    truth = torch.randn(3, STEPS, 2, generator=generator, dtype=torch.float64)
    out = run(net, records)
    residual = net.layout.boxminus(truth, out.mean)
    log_density, ok = gaussian.log_prob(residual, out.cov)
    assert ok.all()
    for sizes in gradient_sizes(net, -log_density.mean()):
        assert min(sizes) > 0  # every layer of both networks
    square_error = net.layout.boxminus(truth, run(net, records).mean).square().mean()
    gain_sizes, noise_sizes = gradient_sizes(net, square_error)
    assert min(gain_sizes) > 0
    assert max(noise_sizes) == 0


def test_recursive_kalmannet_posterior_needs_no_noise_model(records):
    net = build("recursive_kalmannet")
    full = (*records[:-1], np.ones_like(MASKS))
    before = run(net, full)
    net.system.Q *= 3
    net.system.R *= 5
    after = run(net, full)
    assert_same_bits(after.mean, before.mean)
    assert_same_bits(after.cov, before.cov)
    assert (after.prior_cov - before.prior_cov).abs().max() > 1e-3  # reported with the nominal Q, and only reported
