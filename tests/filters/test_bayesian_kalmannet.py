"""Bayesian KalmanNet against its equations in numpy, one trajectory and one member at a time."""

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError

from ..tolerances import assert_close, assert_same_bits
from .vane import (
    STEPS,
    Vane,
    array,
    build,
    gru,
    linear,
    normed,
    read,
    reference_inputs,
    relu,
    run,
    sigmoid,
    vane_seen,
    vane_step,
    wrapped,
)


def member_reference(net, scales, mean, ys, us, dts, masks):
    """Priors and estimates of one member; dropout multiplies features and GRU output by ``scales``, one row a step."""
    w = net.network
    x, before, prior_before, seen = mean, mean, mean, vane_seen(mean)[0]
    h = [np.zeros(w.hidden_size) for _ in w.gru]
    results = []
    for y, u, dt, mask, scale in zip(ys, us, dts, masks, scales, strict=True):
        prior, _ = vane_step(x, u, dt)
        innovation, change, seen = read(y, mask, seen, prior)
        parts = change, innovation, wrapped(x - before), wrapped(x - prior_before)
        features = np.concatenate([normed(part) if net.config.unit_features else part for part in parts])
        signal = relu(linear(w.fc_in, features * scale[:8]))
        for i, cell in enumerate(w.gru):
            signal = h[i] = gru(cell, signal, h[i])
        gain = linear(w.fc_out, relu(linear(w.fc_hidden, signal * scale[8:])))
        before, prior_before, x = x, prior, wrapped(prior + gain.reshape(2, 2) * mask @ innovation)
        results.append((prior, x))
    return [np.array(series) for series in zip(*results, strict=True)]


def uniforms_of(samples, steps, redraw):
    """The uniform numbers behind the masks of every step, from the samples of the state before the first."""
    series = []
    for _ in range(steps):
        if redraw == "step":
            samples = (samples * 1664525 + 1013904223) % 2**32
        series.append((samples + 0.5) / 2**32)
    return np.array(series)


@pytest.mark.parametrize(
    ("dropout", "probability", "redraw", "unit_features"),
    [
        ("concrete", 0.3, "step", False),
        ("concrete", 0.3, "trajectory", True),
        ("concrete", 1e-6, "step", True),
        ("fixed", 0.3, "step", True),
        ("fixed", 0.3, "trajectory", False),
    ],
)
def test_bayesian_kalmannet_equals_its_members(records, dropout, probability, redraw, unit_features):
    net = build(
        "bayesian_kalmannet", dropout=dropout, probability=(probability,), redraw=redraw, unit_features=unit_features
    )
    out = run(net, records, generator=torch.Generator().manual_seed(5))
    samples = net.init(3, generator=torch.Generator().manual_seed(5)).samples.numpy()
    for item in range(3):
        mean, _, *series = reference_inputs(records, item)
        priors, estimates = [], []
        for u in samples[item]:
            u = uniforms_of(u, STEPS, redraw)
            if dropout == "fixed":
                keep = u < 1 - probability
            else:
                p, u = probability, np.clip(u, 1e-7, 1 - 1e-7)
                keep = 1 - sigmoid((np.log(p / (1 - p)) + np.log(u / (1 - u))) / 0.1)
            prior, estimate = member_reference(net, keep / (1 - probability), mean, *series)
            priors.append(prior)
            estimates.append(estimate)
        seen = np.array([[vane_seen(x)[0] for x in prior] for prior in priors])
        kind = "algebra" if dropout == "fixed" else "float32 logit"  # the logit is stored before .double()
        for (m, c), (m_ref, c_ref) in zip(
            ((out.mean, out.cov), (out.prior_mean, out.prior_cov)),
            (circular_moments(np.array(estimates)), circular_moments(np.array(priors))),
            strict=True,
        ):
            close(m[item], m_ref, kind)
            close(c[item], c_ref, kind)
        predicted, spread = circular_moments(seen)
        close(out.innovation_cov[item], spread + array(net.system.R), kind)
        y, mask = series[0], series[-1]
        innovation = np.array([wrapped(a - b) for a, b in zip(y, predicted, strict=True)]) * mask
        close(out.innovation[item], innovation, kind)
        if probability > 0.1:
            assert c_ref[-1].diagonal().min() > 1e-8  # the members differ


def close(actual, expected, kind):
    if kind == "float32 logit":
        np.testing.assert_allclose(array(actual), expected, rtol=1e-4, atol=1e-6)
    else:
        assert_close(actual, expected, kind)


def circular_moments(points):
    """Mean and covariance over axis 0, the first number an angle, as deviations from the first point."""
    means, covs = [], []
    for step in points.swapaxes(0, 1):
        centre = step[0]
        for _ in range(2):
            centre = wrapped(centre + np.mean([wrapped(p - centre) for p in step], 0))
        deviations = np.array([wrapped(p - centre) for p in step])
        means.append(centre)
        covs.append(deviations.T @ deviations / len(step))
    return np.array(means), np.array(covs)


@pytest.mark.parametrize("options", [{"dropout": "fixed", "probability": (0.0,)}, {"probability": (1e-7,)}])
def test_without_dropout_all_members_agree(records, options):
    net = build("bayesian_kalmannet", **options)
    out = run(net, records)
    for item in range(3):
        mean, _, *series = reference_inputs(records, item)
        scales = np.ones((STEPS, net.init(1).samples.shape[-1]))
        np.testing.assert_allclose(array(out.mean[item]), member_reference(net, scales, mean, *series)[1], 1e-6)
    assert out.cov.abs().max() < 1e-15
    with torch.no_grad():  # with dropout the members of the same network differ
        assert run(build("bayesian_kalmannet"), records).cov.abs().max() > 1e-6


@pytest.mark.parametrize("dropout", ["concrete", "fixed"])
@pytest.mark.parametrize("p", [0.1, 0.4, 0.8])
def test_a_unit_is_dropped_with_its_probability(dropout, p, generator):
    net = build("bayesian_kalmannet", dropout=dropout, probability=(p,))
    assert_close(net.probabilities().float(), torch.full((2,), p), "rounding")
    samples = torch.randint(2**32, (75_000, 2), generator=generator)
    scale = net.dropout_scale(samples, net.layer_logits())
    dropped = (scale < 0.5 / (1 - p)).double().mean().item()
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / 150_000)
    if dropout == "fixed":
        assert set(np.round(array(scale).ravel(), 9)) == {0.0, round(1 / (1 - p), 9)}


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_masks_of_successive_steps_are_independent():
    """Correlation over time, over units and over members of what a step draws from the samples of the one before."""
    net = build("bayesian_kalmannet", members=2)
    state, draws = net.init(1), []
    for _ in range(400):
        state, _ = net.step(state, torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
        draws.append(state.samples[0].flatten())
    uniforms = torch.stack(draws).double().numpy() / 2**32
    count, units = uniforms.shape
    assert abs(uniforms.mean() - 0.5) < 5 / math.sqrt(12 * uniforms.size)
    centred = (uniforms - 0.5) * math.sqrt(12)
    for lag in (1, 2, 3):
        assert np.abs((centred[lag:] * centred[:-lag]).mean(0)).max() < 5 / math.sqrt(count - lag)
    across = centred.T @ centred / count - np.eye(units)
    np.fill_diagonal(across, 0.0)
    assert np.abs(across).max() < 6 / math.sqrt(count)


def test_initial_probabilities_are_drawn_between_those_of_the_authors():
    drawn = torch.stack([fwnkf.build("bayesian_kalmannet", system=Vane()).probabilities() for _ in range(40)])
    assert drawn.min() >= 0.5 - 1e-6
    assert drawn.max() <= 0.8 + 1e-6
    assert drawn.std() > 0.05


def test_learned_probabilities_receive_the_gradient_of_the_relaxed_masks(records):
    net = build("bayesian_kalmannet")

    def loss():
        return run(net, records).mean.square().sum()

    loss().backward()
    h = 1e-6
    for layer in range(2):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                net.raw_logits[layer] += sign * h
                values.append(loss().item())
                net.raw_logits[layer] -= sign * h
        slope = (values[0] - values[1]) / (2 * h)
        assert abs(slope) > 1e-4
        np.testing.assert_allclose(net.raw_logits.grad[layer].item(), slope, rtol=1e-5)


def test_kl_term_is_the_closed_form():
    def term(p, weight_part, dropout_part, dropout="concrete"):
        net = build(
            "bayesian_kalmannet", probability=(p,), dropout=dropout,
            weight_regularizer=weight_part, dropout_regularizer=dropout_part,
        )  # fmt: skip
        masks = (net.network.fc_in,), (net.network.fc_hidden, net.network.fc_out)
        expected = 0.0
        for layers in masks:
            for layer in layers:
                expected += weight_part * ((array(layer.weight) ** 2).sum() + (array(layer.bias) ** 2).sum()) / (1 - p)
            if dropout == "concrete":
                entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
                expected -= dropout_part * layers[0].weight.shape[1] * entropy
        value = net.regularization()
        np.testing.assert_allclose(value.item(), expected, rtol=1e-6)  # the logit is stored in float32 first
        value.backward()
        assert all((layer.weight.grad != 0).any() == (weight_part > 0) for layers in masks for layer in layers)
        return value.item()

    assert term(0.1, 0.3, 0.0) < term(0.4, 0.3, 0.0) < term(0.8, 0.3, 0.0)  # the weight term favours little dropout
    assert term(0.1, 0.0, 0.2) > term(0.5, 0.0, 0.2) < term(0.9, 0.0, 0.2)  # the entropy term favours one half
    term(0.25, 0.3, 0.2)
    term(0.25, 0.3, 0.2, "fixed")


def test_samples_depend_on_the_generator_only(records):
    net = build("bayesian_kalmannet", probability=(0.4,))

    def mean(seed):
        return run(net, records, generator=torch.Generator().manual_seed(seed)).mean

    first = mean(1)
    torch.rand(7)  # the global generator advances
    assert_same_bits(mean(1), first)
    assert (mean(2) - first).abs().max() > 1e-3
    assert_same_bits(run(net.train(), records).mean, run(net.eval(), records).mean)


def test_without_a_generator_a_stream_does_not_depend_on_the_others(records):
    net = build("bayesian_kalmannet", probability=(0.4,))
    together = run(net, records)
    alone = run(net, tuple(part[1:2] for part in records))
    assert_close(alone.cov[0], together.cov[1], "batch")
    twins = tuple(np.repeat(part[:1], 2, 0) for part in records)
    drawn = run(net, twins, generator=torch.Generator().manual_seed(0))
    assert (drawn.mean[0] - drawn.mean[1]).abs().max() > 1e-3  # with a generator every trajectory has its own samples


def test_config_seed_sets_the_default_samples():
    states = [fwnkf.build("bayesian_kalmannet", system=Vane(), seed=seed).init(2) for seed in (0, 0, 1)]
    assert_same_bits(states[0].samples, states[1].samples)
    assert (states[0].samples != states[2].samples).any()
    net = fwnkf.build("bayesian_kalmannet", system=Vane()).float()
    assert_same_bits(net.init(2).samples, states[0].samples)  # the same members in either precision


@pytest.mark.parametrize(
    ("dropout", "probability"),
    [
        ("concrete", (0.0,)), ("concrete", (0.5, 1.0)), ("concrete", (0.8, 0.5)), ("concrete", ()),
        ("fixed", (1.0,)), ("fixed", (0.5, 0.8)),
    ],
)  # fmt: skip
def test_invalid_probabilities_raise(dropout, probability):
    with pytest.raises(ConfigError, match="probability"):
        build("bayesian_kalmannet", dropout=dropout, probability=probability)
