"""The RKN against its equations with dense matrices in numpy."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import nn

import fwnkf
from fwnkf.data.simulated import generate
from fwnkf.errors import ConfigError, NoObservationModelError, ShapeError
from fwnkf.filters.baselines import rkn

from ..tolerances import assert_close, assert_same_bits
from .vane import Vane, array, build, linear, relu


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
    start = net.init(2).latent
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
        _, upper, lower, side = state.latent
        assert min(upper.min(), lower.min(), out.cov.diagonal(dim1=1, dim2=2).min()) > 0
        assert (side.square() <= upper * lower * (1 + 1e-3) + 1e-12).all()


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
    before = net.predict(net.run(y[:, :-1]).state).latent
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


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_hundred_untrained_rkns_are_finite(steps):
    """On Lorenz in float32, scaled as in training, with a gap of a tenth of the steps in the measurements."""
    data = generate("lorenz", 2, steps=steps, seed=1)
    y, mask = data.y.float(), torch.ones_like(data.y, dtype=torch.bool)
    mask[:, 4 * steps // 10 : 5 * steps // 10] = False
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
    assert mean.shape == (100, 2, steps, 3)
    assert mean.isfinite().all()
    assert cov.isfinite().all()
    assert (torch.diagonal(cov, dim1=-2, dim2=-1) > 0).all()
    assert mean.abs().max() < 1e3
