"""KalmanNet, Bayesian and Recursive KalmanNet and the RKN against independent implementations in numpy.

The references share only the weights with the package: plain loops, one trajectory at a time.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import nn

import fwnkf
from fwnkf.core import gaussian
from fwnkf.core.tree import named_leaves
from fwnkf.data.simulated import generate
from fwnkf.errors import ConfigError, NoObservationModelError, ShapeError
from fwnkf.filters import rkn
from fwnkf.filters.factory import options_of
from fwnkf.filters.gain_features import unit
from fwnkf.filters.kalmannet import GainFeatures, GainMemory
from fwnkf.filters.recursive_kalmannet import RecursiveKalmanNetConfig
from fwnkf.registry import FILTERS, parse_config

from ..systems import linear_matrices
from ..tolerances import assert_close, assert_same_bits

STEP, STIFFNESS = 0.1, 4.0


@dataclasses.dataclass(frozen=True)
class VaneConfig:
    pass


class Vane(fwnkf.System):
    """A driven pendulum observed by its angle (which wraps) and its sine; the numpy version is below."""

    Config = VaneConfig
    layout = fwnkf.Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)])
    observation_layout = fwnkf.Layout.parse([("bearing", "angle", 1), ("sine", "euclidean", 1)])
    control_dim = 1
    dt = STEP

    def __init__(self):
        super().__init__(VaneConfig())
        self.register_buffer("Q", torch.tensor([[0.02, 0.01], [0.01, 0.05]], dtype=torch.float64))
        self.register_buffer("R", torch.tensor([[0.3, 0.1], [0.1, 0.2]], dtype=torch.float64))

    def transition(self, x, u, dt):
        step = STEP if dt is None else dt
        theta, omega = x.unbind(-1)
        push = 0.0 if u is None else u[..., 0]
        moved = torch.stack((step * omega, step * (push - STIFFNESS * theta.sin())), -1)
        return self.layout.boxplus(x, moved)

    def observe(self, x):
        return torch.stack((x[..., 0], x[..., 0].sin()), -1)

    def process_noise(self, dt):
        return self.Q if dt is None else self.Q * (dt / STEP)[:, None, None]

    def measurement_covariance(self):
        return self.R


# ---- numpy references ----------------------------------------------------------------------------------------------


def wrapped(v):
    """First number an angle, second plain: a difference on the state or the observation of a vane."""
    return np.array([(v[0] + np.pi) % (2 * np.pi) - np.pi, v[1]])


def vane_step(x, u, dt):
    moved = wrapped(x + dt * np.array([x[1], u - STIFFNESS * np.sin(x[0])]))
    return moved, np.array([[1, dt], [-dt * STIFFNESS * np.cos(x[0]), 1]])


def vane_seen(x):
    return np.array([x[0], np.sin(x[0])]), np.array([[1, 0], [np.cos(x[0]), 0]])


def array(tensor):
    return tensor.detach().double().numpy()


def linear(layer, x):
    return array(layer.weight) @ x + array(layer.bias)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(cell, x, h):
    from_x = array(cell.weight_ih) @ x + array(cell.bias_ih)
    from_h = array(cell.weight_hh) @ h + array(cell.bias_hh)
    (xr, xz, xn), (hr, hz, hn) = np.split(from_x, 3), np.split(from_h, 3)
    reset, keep = sigmoid(xr + hr), sigmoid(xz + hz)
    return (1 - keep) * np.tanh(xn + reset * hn) + keep * h


def normed(v):
    length = np.linalg.norm(v)
    return v / length if length > 1e-12 else 0 * v


def read(y, mask, seen, prior):
    """Innovation and change of the measurement, zero where masked, and the last measurement."""
    innovation = wrapped(y - vane_seen(prior)[0]) * mask
    return innovation, wrapped(y - seen) * mask, np.where(mask > 0, y, seen)


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


def perceptron(layers, x):
    *inner, last = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for layer in inner:
        x = relu(linear(layer, x))
    return linear(last, x)


def elu_plus_one(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) + 1e-6


def rkn_reference(net, ys, masks):
    """Decoded means and variances, latent innovations and their variances, with *dense* latent algebra.

    In the order of the authors' cell: the initial belief is that of the first measurement, then each step updates and
    predicts.
    """
    config = net.config
    l = config.latent_dim
    i, j = np.indices((l, l))
    band = np.abs(i - j) <= config.bandwidth
    basis = []
    for flat in array(net.blocks):
        blocks = np.zeros((4, l, l))
        blocks[:, band] = flat
        basis.append(np.block([[blocks[0], blocks[1]], [blocks[2], blocks[3]]]))
    q = np.diag(np.log1p(np.exp(array(net.raw_process_variance))) + 1e-6)
    H = np.eye(l, 2 * l)
    z, cov = np.zeros(2 * l), np.diag(elu_plus_one(array(net.raw_initial_variance)))
    results = []
    for y, mask in zip(ys, masks, strict=True):
        features = hidden_layers(net.encoder, np.concatenate([y * mask, mask]), relu)
        if config.normalization == "hidden":
            features = features / np.linalg.norm(features)
        w = linear(net.encoded_mean, features)
        if config.normalization == "output":
            w = w / np.linalg.norm(w)
        S = H @ cov @ H.T + np.diag(elu_plus_one(linear(net.encoded_variance, features)))
        innovation = (w - z[:l]) * mask.any()
        if mask.any():
            K = cov @ H.T @ np.linalg.inv(S)
            z, cov = z + K @ innovation, cov - K @ S @ K.T
        vectors = np.concatenate([np.diag(cov)[:l], np.diag(cov)[l:], np.diag(cov[l:, :l])])
        *inner, last = net.variance_decoder
        variance = elu_plus_one(linear(last, hidden_layers(inner, vectors, np.tanh)))
        *inner, last = net.decoder
        results.append((linear(last, hidden_layers(inner, z, np.tanh)), np.diag(variance), innovation, S))
        *inner, last = net.coefficients
        score = np.exp(linear(last, hidden_layers(inner, z, np.tanh)))
        A = np.eye(2 * l) + sum(a * matrix for a, matrix in zip(score / score.sum(), basis, strict=True))
        z, cov = A @ z, factorised(A @ cov @ A.T + q)
    return [np.array(series) for series in zip(*results, strict=True)]


def hidden_layers(layers, x, activation):
    """Hidden layers: every linear one is followed by the activation."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            x = activation(linear(layer, x))
    return x


def factorised(cov):
    """Only the diagonals of the four blocks: the approximation the RKN makes after each prediction."""
    l = len(cov) // 2
    return cov * np.tile(np.eye(l), (2, 2))


# ---- inputs --------------------------------------------------------------------------------------------------------

STEPS = 4
MASKS = np.array(
    [[[1, 1], [1, 1], [0, 1], [1, 1]], [[1, 0], [0, 0], [1, 1], [0, 1]], [[1, 1], [1, 1], [1, 1], [1, 1]]],
    float,
)
"""Full, partial and empty measurements."""


@pytest.fixture
def records(rng):
    """Three trajectories across the seam of the angle: prior, measurements, controls, time steps, masks."""
    mean = np.array([[3.0, 1.5], [-3.1, -1.0], [0.3, 0.2]])
    P = np.array([[[0.5, 0.1], [0.1, 0.3]]] * 3)
    y = np.stack([rng.uniform(-np.pi, np.pi, (3, STEPS)), rng.standard_normal((3, STEPS))], -1)
    return mean, P, y, rng.standard_normal((3, STEPS)), rng.uniform(0.05, 0.2, (3, STEPS)), MASKS


def run(net, records, steps=STEPS, **options):
    mean, P, y, u, dt, masks = (torch.as_tensor(part) for part in records)
    cut = y[:, :steps], u[:, :steps, None], masks[:, :steps].bool(), dt[:, :steps]
    return net.run(*cut, fwnkf.Gaussian(mean, P), prior_at="before_first_step", **options)


def reference_inputs(records, item, steps=STEPS):
    mean, P, *series = records
    return mean[item], P[item], *(part[item, :steps] for part in series)


def build(name, seed=3, **options):
    """A filter of a vane in float64 with weights drawn from ``seed``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "rkn":
            sizes = {
                "state_dim": 2,
                "observation_dim": 2,
                "latent_dim": 3,
                "basis": 2,
                "hidden": (5,),
                "decoder_hidden": (4,),
                "coefficient_hidden": (6,),
                "bandwidth": 1,
            }
            net = fwnkf.build(name, **{**sizes, **options}).double()
            with torch.no_grad():  # not multiples of the identity as initially
                net.blocks += 0.1 * torch.randn_like(net.blocks)
                net.raw_initial_variance += torch.randn_like(net.raw_initial_variance)
            return net
        small = {
            "kalmannet": {"gain_factor": 1.0},  # of order one, where an error shows
            "recursive_kalmannet": {"weight_factor": 1.0},
            "bayesian_kalmannet": {
                "members": 4, "in_mult": 3, "hidden_mult": 1, "out_mult": 2, "gain_factor": 1.0, "probability": (0.3,),
            },
        }  # fmt: skip
        return fwnkf.build(name, system=Vane(), **{**small.get(name, {}), **options})


ALL = ["kalmannet", "bayesian_kalmannet", "recursive_kalmannet", "rkn"]


# ---- common to all four --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_config_survives_json(name):
    config = build(name).config
    again = parse_config(FILTERS[name].Config, json.loads(json.dumps(options_of(config))), name)
    assert again == config


@pytest.mark.parametrize("name", ALL)
def test_masked_values_have_no_effect(name, generator):
    net = build(name)
    y = torch.randn(2, 6, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, 6, 2, generator=generator) < 0.6
    mask[:, 2] = False
    plain = net.run(y, mask=mask)
    with_nan = net.run(torch.where(mask, y, torch.full_like(y, torch.nan)), mask=mask)
    plain, with_nan = (track._replace(linear=()) for track in (plain, with_nan))  # nothing was recorded for smoothing
    for (leaf, a), (_, b) in zip(named_leaves(plain), named_leaves(with_nan), strict=True):
        assert_same_bits(b, a, leaf)
        assert a.isfinite().all(), leaf
    seen = net.run(y)
    assert (seen.mean - plain.mean).abs().max() > 1e-3  # the mask has an effect


@pytest.mark.parametrize("name", ALL)
def test_all_masked_is_the_prior(name, generator):
    net = build(name)
    y = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64)
    mask = torch.ones(3, 5, 2, dtype=torch.bool)
    mask[1, 3] = False
    out = net.run(y, mask=mask)
    masked = ~mask.any(-1)
    assert_close(out.mean[masked], out.prior_mean[masked], "rounding")
    assert_same_bits(out.cov[masked], out.prior_cov[masked])
    assert not out.innovation[masked].any()
    assert (out.mean[~masked] - out.prior_mean[~masked]).abs().amax(-1).min() > 1e-6
    if name != "rkn":  # the prior is the system's prediction of the previous estimate
        moved = net.system.transition(out.mean[1, 2][None], None, None)
        if name != "bayesian_kalmannet":  # whose mean of predictions is not the prediction of the mean
            assert_close(out.prior_mean[1, 3], moved[0], "rounding")
            F = vane_step(array(out.mean[1, 2]), 0.0, STEP)[1]
            assert_close(out.cov[1, 3], F @ array(out.cov[1, 2]) @ F.T + array(net.system.Q), "rounding")


@pytest.mark.parametrize("name", ["kalmannet", "bayesian_kalmannet", "recursive_kalmannet"])
def test_a_missing_system_raises(name):
    with pytest.raises(ConfigError, match="needs system"):
        fwnkf.build(name)


# ---- KalmanNet -----------------------------------------------------------------------------------------------------


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


# ---- Recursive KalmanNet -------------------------------------------------------------------------------------------


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


# ---- Bayesian KalmanNet --------------------------------------------------------------------------------------------


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


def test_masks_of_successive_steps_are_independent():
    """Correlation over time, over units and over members of what a step draws from the samples of the one before."""
    net = build("bayesian_kalmannet", members=2)
    state, draws = net.init(1), []
    for _ in range(1000):
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


# ---- RKN -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["hidden", "output", "none"])
def test_rkn_equals_its_equations_with_dense_algebra(records, normalization):
    net = build("rkn", normalization=normalization)
    y, masks = records[2], records[-1]
    out = net.run(torch.as_tensor(y), mask=torch.as_tensor(masks).bool())
    for item in range(3):
        means, covs, innovations, S = rkn_reference(net, y[item], masks[item])
        assert_close(out.mean[item], means)
        assert_close(out.cov[item], covs)
        assert_close(out.innovation[item], innovations)
        assert_close(out.innovation_cov[item], S)


def latent(rng, batch=4, l=5):
    """A latent belief whose 2x2 blocks are definite, and its dense covariance."""
    upper, lower = rng.uniform(0.2, 2, (2, batch, l))
    side = rng.uniform(-0.9, 0.9, (batch, l)) * np.sqrt(upper * lower)
    mean = rng.standard_normal((batch, 2 * l))
    dense = np.array(
        [
            np.block([[np.diag(u), np.diag(s)], [np.diag(s), np.diag(o)]])
            for u, s, o in zip(upper, side, lower, strict=True)
        ]
    )
    return rkn.Latent(*(torch.as_tensor(part) for part in (mean, upper, lower, side))), mean, dense


def assert_blocks(belief, dense):
    l = dense.shape[-1] // 2
    diagonals = [
        np.diagonal(block, axis1=1, axis2=2) for block in (dense[:, :l, :l], dense[:, l:, l:], dense[:, l:, :l])
    ]
    for vector, diagonal in zip(belief[1:], diagonals, strict=True):
        assert_close(vector, diagonal.copy())


def test_rkn_prediction_is_the_diagonals_of_the_dense_blocks(rng):
    belief, mean, dense = latent(rng)
    blocks = rng.standard_normal((4, 4, 5, 5))
    q = rng.uniform(0.1, 1, 10)
    A = np.array([np.block([[b[0], b[1]], [b[2], b[3]]]) for b in blocks])
    whole = rkn.Band.of(5, 4, torch.as_tensor(q))  # every entry of a 5x5 matrix
    predicted = rkn.predict(belief, torch.as_tensor(blocks).flatten(2), torch.as_tensor(q), whole)
    assert_close(predicted.mean, np.einsum("bij,bj->bi", A, mean))
    assert_blocks(predicted, A @ dense @ A.swapaxes(1, 2) + np.diag(q))


def test_rkn_update_is_the_dense_kalman_update(rng):
    belief, mean, dense = latent(rng)
    innovation, variance = rng.standard_normal((4, 5)), rng.uniform(0.1, 1, (4, 5))
    H = np.eye(5, 10)
    updated = rkn.update(belief, torch.as_tensor(innovation), torch.as_tensor(variance))
    S = H @ dense @ H.T + np.array([np.diag(v) for v in variance])
    K = dense @ H.T @ np.linalg.inv(S)
    posterior = dense - K @ H @ dense
    assert_close(updated.mean, mean + np.einsum("bij,bj->bi", K, innovation))
    assert_blocks(updated, posterior)
    np.testing.assert_allclose(posterior, [factorised(P) for P in posterior], atol=1e-14)  # nothing is lost


def test_rkn_is_initialised_as_in_the_paper():
    net = fwnkf.build("rkn", state_dim=2, observation_dim=3, latent_dim=4, basis=2, bandwidth=1)
    assert net.blocks.shape == (2, 4, 4 + 2 * 3)  # diagonal and one neighbour on each side
    basis, process_variance, band = net.prepare()
    for k in range(2):
        for block, factor in zip(basis[k], (1.0, 0.2, -0.2, 1.0), strict=True):
            assert_same_bits(torch.einsum("e,ei,je->ij", block, *band), factor * torch.eye(4))
    assert_close(process_variance, torch.full((8,), 0.1), "rounding")
    start = net.init(2)
    assert not start.mean.any()
    assert not start.side.any()
    assert_close(start.upper, torch.full((2, 4), 10.0), "rounding")
    assert_close(start.lower, torch.full((2, 4), 10.0), "rounding")


def test_rkn_learns_its_initial_variance_unless_told_otherwise(generator):
    y = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    learned, fixed = build("rkn"), build("rkn", learn_initial_variance=False)
    for net in (learned, fixed):
        net.run(y).mean.sum().backward()
    assert learned.raw_initial_variance.grad.abs().min() > 0
    assert "raw_initial_variance" not in dict(fixed.named_parameters())
    assert "raw_initial_variance" in fixed.state_dict()


def test_rkn_observes_through_a_given_matrix_without_using_it(generator):
    y = torch.randn(2, 5, 2, generator=generator, dtype=torch.float64)
    layout = (("angle", "angle", 1), ("rate", "euclidean", 1))
    H = torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5]], dtype=torch.float64)  # on cos, sin and the rate, as measured
    with_matrix, without = build("rkn", layout=layout, H=H), build("rkn", layout=layout)
    track = with_matrix.run(y)
    assert_same_bits(track.mean, without.run(y).mean)
    angle, rate = array(track.mean[..., 0]), array(track.mean[..., 1])
    features = array(with_matrix.layout.features(track.mean))
    assert set(np.round(features[0, 0], 9)) == set(np.round([np.cos(angle[0, 0]), np.sin(angle[0, 0]), rate[0, 0]], 9))
    assert_close(with_matrix.observe(track.mean), features @ array(H).T)
    assert with_matrix.observes
    assert not without.observes
    with pytest.raises(ShapeError, match=r"H has shape \(2, 2\), wanted \(2, 3\)"):
        build("rkn", layout=layout, H=H[:, :2])


def test_rkn_variances_stay_positive_in_float32_at_saturated_parameters(generator):
    net = build("rkn", latent_dim=6).float()
    with torch.no_grad():
        net.raw_process_variance.fill_(-1e3)  # elu + 1 is exactly zero there
        net.encoded_variance.bias.fill_(-1e3)
        net.raw_initial_variance.fill_(-1e3)
        net.variance_decoder[-1].bias.fill_(-1e6)
    state = net.init(8)
    for _ in range(200):
        y = torch.randn(8, 2, generator=generator)
        state, out = net.step(state, y, mask=torch.rand(8, 2, generator=generator) < 0.7)
        assert out.mean.isfinite().all()
        assert min(state.upper.min(), state.lower.min(), out.cov.diagonal(dim1=1, dim2=2).min()) > 0
        assert (state.side.square() <= state.upper * state.lower * (1 + 1e-3) + 1e-12).all()


def test_rkn_variances_are_not_negative_after_rounding():
    """Upper and lower part are nearly equal: their difference is the rounding of large numbers."""

    def vector(value):
        return torch.full((1, 1), value)

    belief = rkn.Latent(torch.zeros(1, 2), vector(1e6), vector(1e6), vector(1e6))
    updated = rkn.update(belief, vector(1.0), vector(1e-6))
    assert updated.lower.item() > 0
    assert updated.upper.item() > 0
    blocks = torch.tensor([1.0, -1.0, 1.0, -1.0]).reshape(1, 4, 1)
    belief = belief._replace(side=vector(1e6 + 0.0625))  # one unit in the last place too large
    predicted = rkn.predict(belief, blocks, torch.full((2,), 1e-6), rkn.Band(torch.ones(1, 1), torch.ones(1, 1)))
    assert predicted.upper.item() > 0
    assert predicted.lower.item() > 0


def test_rkn_decodes_rotations_from_the_tangent_space(generator):
    layout = (("q", "quaternion", 4), ("bias", "euclidean", 1))
    net = build("rkn", state_dim=5, layout=layout)
    y = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    out = net.run(y)
    before = net.run(y[:, :-1]).state  # a state is the prediction for the next measurement
    innovation, (_, variance) = out.innovation[:, -1], net.encode(y[:, -1], torch.ones_like(y[:, -1]))
    tangent = array(net.decoder(rkn.update(before, innovation, variance).mean))
    for got, delta in zip(array(out.mean[:, -1]), tangent, strict=True):
        turned = Rotation.from_quat(got[[1, 2, 3, 0]]) * Rotation.from_rotvec(delta[:3]).inv()
        assert turned.magnitude() < 1e-12
        np.testing.assert_allclose(got[4], delta[3])
    assert out.cov.shape == (2, 3, 4, 4)


def test_rkn_errors_for_unsupported_inputs():
    net = build("rkn")
    y = torch.zeros(1, 3, 2, dtype=torch.float64)
    with pytest.raises(NoObservationModelError, match="no observation model"):
        net.observe(y[0])
    with pytest.raises(ConfigError, match="is discrete"):
        net.run(y, dt=torch.ones(1, 3, dtype=torch.float64))
    with pytest.raises(ShapeError, match="no control"):
        net.run(y, u=torch.zeros(1, 3, 1, dtype=torch.float64))
    with pytest.raises(ConfigError, match="not a system"):
        fwnkf.build("rkn", state_dim=2, observation_dim=2, system=Vane())


def test_rkn_scales_measurements_and_the_euclidean_parts_of_states(generator):
    """A filter of scaled data is the filter of the data, its estimates scaled back; angles stay in radians."""
    layout = (("angle", "angle", 1), ("rate", "euclidean", 1))
    plain, scaled = build("rkn", layout=layout), build("rkn", layout=layout)
    vectors = [torch.tensor(v).double() for v in ([0.1, 0.2, 5.0], [0.3, 0.4, 7.0], [1.0, -2.0], [3.0, 0.5], [], [])]
    scaled.normalize(fwnkf.types.Statistics(*vectors, torch.ones(2).double()))
    y = torch.randn(2, 4, 2, generator=generator, dtype=torch.float64)
    expected, got = plain.run(y), scaled.run(y * vectors[3] + vectors[2])
    assert_close(got.mean[..., 0], expected.mean[..., 0])
    assert_close(got.mean[..., 1], 5 + 7 * expected.mean[..., 1])
    assert_close(got.cov[..., 1, 1], 49 * expected.cov[..., 1, 1])


def test_a_hundred_untrained_rkns_are_finite_over_a_thousand_steps():
    """On Lorenz in float32, scaled as in training, with a gap of a hundred steps in the measurements."""
    data = generate("lorenz", 2, steps=1000, seed=1)
    y, mask = data.y.float(), torch.ones_like(data.y, dtype=torch.bool)
    mask[:, 400:500] = False
    members = []
    for seed in range(100):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            members.append(fwnkf.build("rkn", state_dim=3, observation_dim=2).requires_grad_(False))
        members[-1].scale.copy_(y.std((0, 1)))
        members[-1].spread.fill_(8.0)
    tensors = torch.func.stack_module_state(members)

    def run(own, fixed):
        track = torch.func.functional_call(members[0], {**own, **fixed}, (y,), {"mask": mask})
        return track.mean, track.cov

    mean, cov = torch.func.vmap(run)(*tensors)
    assert mean.shape == (100, 2, 1000, 3)
    assert mean.isfinite().all()
    assert cov.isfinite().all()
    assert (torch.diagonal(cov, dim1=-2, dim2=-1) > 0).all()
    assert mean.abs().max() < 1e3
