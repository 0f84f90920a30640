"""Lines, bands and dots of the plots against independently computed values."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.signal
import scipy.stats
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.iir import Sections
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Records, load
from fwnkf.errors import ConfigError, ShapeError
from fwnkf.extras import need
from fwnkf.report import series

from .. import systems
from ..conformance.cases import built

pytest.importorskip("matplotlib", reason="plots come with the extra 'plot'")
from fwnkf.report import plots


@pytest.fixture(scope="module")
def lorenz():
    return load("lorenz", "strict", scenario="tone", train=2, val=2, test=7).split.test


@pytest.fixture(scope="module")
def pendulum():
    return load("pendulum", "strict", scenario="tone", train=2, val=2, test=7).split.test


def ekf(records):
    track = fwnkf.build("ekf", system=records.system).run(**records.inputs())
    return track.mean.detach(), track.cov.detach()


def tracks(records):
    mean, cov = ekf(records)
    return {"ekf": (mean, cov), "biased": (mean + 0.5, None), "overconfident": (mean, cov / 4)}


def with_gaps(records):
    """No true state from step 30 to 39, and none at all in the second record."""
    truth = records.truth.clone()
    truth[:, 30:40] = torch.nan
    truth[1] = torch.nan
    return replace(records, truth=truth)


def line(axis, label):
    (match,) = (item for item in axis.lines if item.get_label() == label)
    return np.asarray(match.get_xdata(), float), np.asarray(match.get_ydata(), float)


def labels(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def wrapped(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


# ---- trajectory -----------------------------------------------------------------------------------------------------


def test_trajectory_shows_truth_estimates_band_and_dots(lorenz):
    estimates = tracks(lorenz)
    figure = plots.trajectory(lorenz, estimates, record=3)
    # three panels only, because both channels measure a component directly
    assert [axis.get_ylabel() for axis in figure.axes] == ["x1", "x2", "x3"]
    assert labels(figure) == ["truth", "measured", "ekf", "biased", "overconfident", "ekf, 95 %"]
    time = np.arange(100) / 99
    for i, axis in enumerate(figure.axes):
        x, y = line(axis, "truth")
        np.testing.assert_allclose(x, time, atol=1e-12)
        np.testing.assert_array_equal(y, lorenz.truth[3, :, i])
        for name, (mean, _) in estimates.items():
            np.testing.assert_array_equal(line(axis, name)[1], mean[3, :, i])
        (band,) = axis.collections
        std = estimates["ekf"][1][3, :, i, i].sqrt().numpy()
        corners = band.get_paths()[0].vertices
        half = scipy.stats.norm.ppf(0.975) * std
        mean = estimates["ekf"][0][3, :, i].numpy()
        for edge in (mean - half, mean + half):
            gap = np.abs(corners[None] - np.stack((time, edge), -1)[:, None]).max(-1).min(1)
            assert gap.max() < 1e-9  # every point of the edge is a vertex of the band
    for i in range(2):
        np.testing.assert_array_equal(line(figure.axes[i], "measured")[1], lorenz.y[3, :, i])
    assert "measured" not in [item.get_label() for item in figure.axes[2].lines]


def test_masked_measurements_are_not_drawn(lorenz):
    mask = lorenz.mask.clone()
    mask[:, 10:20, 1] = False
    figure = plots.trajectory(replace(lorenz, mask=mask), {}, record=0)
    assert np.isnan(line(figure.axes[1], "measured")[1]).nonzero()[0].tolist() == list(range(10, 20))
    assert np.isfinite(line(figure.axes[0], "measured")[1]).all()


def test_indirect_channels_have_their_own_panel(pendulum):
    figure = plots.trajectory(pendulum, tracks(pendulum), record=2)
    assert [axis.get_ylabel() for axis in figure.axes] == ["theta (rad)", "omega", "tip"]
    theta = pendulum.truth[2, :, 0].numpy()
    for name, expected in {"tip1": np.sin(theta), "tip2": -np.cos(theta)}.items():
        np.testing.assert_allclose(line(figure.axes[2], f"{name} of the truth")[1], expected, atol=1e-12)
    np.testing.assert_array_equal(line(figure.axes[2], "tip2 measured")[1], pendulum.y[2, :, 1])
    without_system = plots.trajectory(replace(pendulum, system=None), {}, record=2)
    np.testing.assert_array_equal(line(without_system.axes[2], "y2 measured")[1], pendulum.y[2, :, 1])


def test_angles_do_not_jump(pendulum):
    """For a rotating pendulum, estimates are drawn next to the truth, and both are unchanged modulo 2π."""
    turning = torch.stack((rotation.wrap(torch.linspace(0, 20, 100)), torch.full((100,), 2.0)), -1).double()
    records = replace(pendulum, truth=turning.expand(7, -1, -1))
    mean = pendulum.system.layout.boxplus(records.truth, torch.tensor([0.3, 0.0]).double().expand(7, 100, 2))
    axis = plots.trajectory(records, {"near": (mean, None)}).axes[0]
    truth, near = line(axis, "truth")[1], line(axis, "near")[1]
    np.testing.assert_allclose(truth, np.linspace(0, 20, 100), atol=1e-5)
    np.testing.assert_allclose(near, truth + 0.3, atol=1e-6)


def test_gaps_in_the_truth_are_drawn_as_gaps(pendulum):
    records = with_gaps(pendulum)
    for record, missing in ((0, list(range(30, 40))), (1, list(range(100)))):
        figure = plots.trajectory(records, tracks(records), record)
        truth, estimate = (line(figure.axes[0], name)[1] for name in ("truth", "ekf"))
        assert np.isnan(truth).nonzero()[0].tolist() == missing
        assert np.isfinite(estimate).all()
        mean = tracks(records)["ekf"][0][record, :, 0].numpy()
        np.testing.assert_allclose(wrapped(estimate - mean), 0, atol=1e-9)
        figure.canvas.draw()


def test_quaternions_are_drawn_without_sign_changes_and_with_a_band():
    """The band against a simulated spread; an estimate with the opposite sign gives the same line."""
    layout = systems.Attitude.layout
    turn = torch.linspace(0, 7, 50).double()
    q = rotation.exp(torch.stack((turn, 0.2 * turn, 0 * turn), -1))
    truth = torch.cat((q, torch.zeros(50, 3).double()), -1)[None]
    turned = truth.clone()
    turned[..., :4] *= -1
    records = Records(
        "turning",
        torch.zeros(1, 50, 3).double(),
        truth,
        torch.ones(1, 50, 3, dtype=torch.bool),
        torch.full((1, 50), 0.1).double(),
        None,
        fwnkf.Gaussian(truth[:, 0], torch.eye(6).double()),
        layout,
        (),
        systems.attitude(),
    )
    cov = (1e-4 * torch.eye(6).double()).expand(1, 50, 6, 6)
    figure = plots.trajectory(records, {"turned": (turned, cov)})
    assert [axis.get_ylabel() for axis in figure.axes[:5]] == ["q_w", "q_x", "q_y", "q_z", "bias1"]
    assert len(figure.axes) == 8
    for axis in figure.axes[:4]:
        truth_line, estimate = line(axis, "truth")[1], line(axis, "turned")[1]
        np.testing.assert_allclose(estimate, truth_line, atol=1e-12)
        assert np.abs(np.diff(truth_line)).max() < 0.2
    generator = torch.Generator().manual_seed(0)
    drawn = 0.01 * torch.randn(20_000, 6, generator=generator).double()
    spread = layout.boxplus(truth[0, 20].expand(20_000, 7), drawn).std(0)
    # 0.01 rad is in the linear range; 20,000 draws give the standard deviation to half a percent
    np.testing.assert_allclose(series.stored_std(layout, truth, cov)[0, 20], spread, rtol=0.03, atol=2e-5)


# ---- error and consistency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lorenz", "pendulum"])
def test_error_over_time_is_the_rmse(name, request):
    records = with_gaps(request.getfixturevalue(name))
    figure = plots.error_over_time(records, tracks(records))
    (axis,) = figure.axes
    assert axis.get_yscale() == "log"
    for label, (mean, _) in tracks(records).items():
        error = (mean - records.truth).numpy()
        if name == "pendulum":
            error[..., 0] = wrapped(error[..., 0])
        rows = np.delete(error, 1, axis=0)  # the record without a true state
        expected = np.sqrt((rows**2).mean((0, 2)))
        x, y = line(axis, label)
        np.testing.assert_allclose(x, np.arange(100) * (1 / 99 if name == "lorenz" else 0.02), atol=1e-12)
        np.testing.assert_allclose(y, expected, rtol=1e-9)
        assert np.isnan(y[30:40]).all()
    figure.canvas.draw()


def test_failed_estimates_are_shown_in_the_legend(lorenz):
    mean, cov = ekf(lorenz)
    mean[2, 90:] = torch.nan
    for plot, start in ((plots.error_over_time, "broken (no"), (plots.nees_over_time, "broken: NEES/n inf")):
        figure = plot(lorenz, {"broken": (mean, cov)})
        (text,) = (label for label in labels(figure) if label.startswith("broken"))
        assert text.startswith(start)
        assert text.endswith("(no estimate in 10 steps)")
        y = line(figure.axes[0], text)[1]
        assert np.isfinite(y[:90]).all()
        assert np.isnan(y[90:]).all()
        figure.canvas.draw()


def test_nees_over_time_and_its_band(pendulum):
    records, estimates = with_gaps(pendulum), tracks(pendulum)
    figure = plots.nees_over_time(records, estimates)
    (axis,) = figure.axes
    names = labels(figure)
    assert len(names) == 3  # the band and two methods: "biased" has no covariance
    rows = [0, 2, 3, 4, 5, 6]
    steps = [t for t in range(100) if not 30 <= t < 40]
    for name in ("ekf", "overconfident"):
        mean, cov = (x.numpy() for x in estimates[name])
        error = mean - pendulum.truth.numpy()
        error[..., 0] = wrapped(error[..., 0])
        each = np.einsum("bti,btij,btj->bt", error, np.linalg.inv(cov), error) / 2
        std = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))
        inside = (np.abs(error) <= scipy.stats.norm.ppf(0.975) * std)[rows][:, steps]
        (text,) = (label for label in names if label.startswith(name))
        overall = each[rows][:, steps].mean()
        assert text == f"{name}: NEES/n {overall:.2f}, coverage {100 * inside.mean():.1f} %"
        y = line(axis, text)[1]
        np.testing.assert_allclose(y[steps], each[rows].mean(0)[steps], rtol=1e-9)
        assert np.isnan(y[30:40]).all()
    (band,) = axis.collections
    heights = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
    low, high = scipy.stats.chi2.ppf([0.025, 0.975], 6 * 2) / (6 * 2)
    np.testing.assert_allclose([heights.min(), heights.max()], [low, high], rtol=1e-9)


def test_the_chi_square_band_equals_scipy():
    degrees = np.array([1, 2, 3, 10, 150, 3000, 100_000])
    for level in (0.5, 0.95, 0.999):
        for bound, p in zip(series.chi_square_band(torch.from_numpy(degrees), level), (-1, 1), strict=True):
            np.testing.assert_allclose(bound, scipy.stats.chi2.ppf((1 + p * level) / 2, degrees) / degrees, rtol=1e-8)
    assert series.chi_square_band(torch.tensor([0]))[0].isnan().all()


def test_tracks_of_another_shape_are_refused(lorenz):
    mean, cov = ekf(lorenz)
    for wrong in ((mean[:3], None), (mean, cov[..., :2, :2])):
        with pytest.raises(ShapeError, match="track 'wrong'"):
            plots.error_over_time(lorenz, {"wrong": wrong})


def test_channels_that_measure_a_component_directly():
    x = torch.randn(5, 3, dtype=torch.float64)
    H = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.1], [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]]).double()
    matrices = {**systems.linear_matrices(), "H": H, "R": torch.eye(4).double()}
    assert series.direct_channels(fwnkf.LinearSystem.of(**matrices), x) == {0: 1, 3: 0}
    assert series.direct_channels(systems.pendulum(), x[:, :2]) == {}
    assert series.direct_channels(None, x) == {}


# ---- learned response and noise -------------------------------------------------------------------------------------


def test_shaper_draws_phi_with_its_poles_and_zeros(lorenz):
    model = built("fwnkf", system=lorenz.system, shaken=0.5, phi=fwnkf.Phi(2, shared=False))
    figure = plots.shaper(model)
    magnitude, delay, plane = figure.axes
    for channel, (b, a) in enumerate(zip(*(x.detach().numpy() for x in model.shaper.sections()), strict=True)):
        sos = np.concatenate((b, np.ones((2, 1)), a), -1)
        hz, drawn = line(magnitude, f"y{channel + 1}")
        w = 2 * np.pi * hz / 99
        expected = 20 * np.log10(np.abs(scipy.signal.sosfreqz(sos, w)[1]))
        np.testing.assert_allclose(drawn, expected, atol=1e-9)
        delays = sum(scipy.signal.group_delay((s[:3], s[3:]), w)[1] for s in sos)
        np.testing.assert_allclose(line(delay, f"y{channel + 1}")[1], delays, rtol=1e-7, atol=1e-7)
        zeros, poles, _ = scipy.signal.sos2zpk(sos)
        for points, expected in zip(plane.lines[1 + 2 * channel : 3 + 2 * channel], (poles, zeros), strict=True):
            places = np.asarray(points.get_xdata()) + 1j * np.asarray(points.get_ydata())
            assert max(abs(expected - place).min() for place in places) < 1e-8
            assert len(places) == 4
    figure.canvas.draw()


def test_a_notch_does_not_dominate_the_scale(lorenz):
    model = fwnkf.FWNKF(lorenz.system, phi=fwnkf.Phi())
    b, a = (torch.from_numpy(x) for x in scipy.signal.iirnotch(0.3, 10))
    model.shaper.set_sections(Sections(b[None], a[None, 1:]))
    low, high = plots.shaper(model).axes[0].get_ylim()
    assert high - low == pytest.approx(100)


def test_shaper_draws_the_noise_density_or_returns_none(lorenz):
    model = fwnkf.FWNKF(lorenz.system, noise=fwnkf.Lines())
    model.noise_states.set_oscillators(*(torch.tensor([[x]], dtype=torch.float64) for x in (1.0, 0.99, 3.0)))
    figure = plots.shaper(model)
    density, plane = figure.axes
    hz, drawn = line(density, "y1")
    w = 2 * np.pi * hz / 99
    variance = 0.26
    lags = np.arange(1, 4000)  # 0.99^4000 is below 1e-17
    correlation = 9 * variance * 0.99**lags * np.cos(lags)
    expected = 9 * variance + 2 * (correlation * np.cos(w[:, None] * lags)).sum(-1) + variance
    np.testing.assert_allclose(drawn, 2 / 99 * expected, rtol=1e-6)
    assert abs(hz[drawn.argmax()] - 99 / (2 * np.pi)) < 0.01
    np.testing.assert_allclose(plane.lines[1].get_xdata(), 0.99 * np.cos([1.0, 1.0]), rtol=1e-9)
    assert plots.shaper(fwnkf.build("ekf", system=lorenz.system)) is None
    assert plots.shaper(fwnkf.FWNKF(lorenz.system)) is None


def test_noise_over_time_draws_standard_deviations(lorenz):
    Q, R = torch.rand(7, 100, 3).double(), torch.rand(7, 100, 2).double()
    Q[:, 0] = 0  # a step of length zero
    process, measurement = plots.noise_over_time(Q, R, lorenz, record=4).axes
    y = line(process, "x2")[1]
    assert np.isnan(y[0])
    np.testing.assert_allclose(y[1:], Q[4, 1:, 1].sqrt(), rtol=1e-12)
    np.testing.assert_allclose(line(measurement, "y1")[1], R[4, :, 0].sqrt(), rtol=1e-12)


def test_history_draws_the_available_curves():
    rows = [{"step": 10 * i, "loss": 1.0 - i, "learning_rate": 1e-3} for i in range(5)]
    rows[0] |= {"val_mse": 3.0, "val_nees": 2.0}
    rows[2] |= {"val_mse": 1.5}
    rows[4] |= {"val_mse": 2.0, "val_nees": math.nan}
    figure = plots.history(rows)
    loss, mse, nees, rate = figure.axes
    assert [axis.get_yscale() for axis in figure.axes] == ["linear", "log", "log", "log"]
    assert loss.lines[0].get_ydata() == pytest.approx([1, 0, -1, -2, -3])
    assert list(mse.lines[0].get_xdata()) == [0, 20, 40]
    assert mse.get_legend().get_texts()[0].get_text() == "best: 1.5 at step 20"
    assert list(nees.lines[0].get_xdata()) == [0, 40]
    assert rate.get_xlabel() == "step"
    figure.canvas.draw()
    assert len(plots.history([{"step": 0, "val_mse": 1.0, "learning_rate": 0.1}]).axes) == 2
    with pytest.raises(ConfigError, match="nothing to plot"):
        plots.history([{"step": 0}])


# ---- files and extras -----------------------------------------------------------------------------------------------


def test_save_all_skips_missing_figures(tmp_path, lorenz):
    figures = {"error": plots.error_over_time(lorenz, tracks(lorenz)), "nothing": None}
    (path,) = plots.save_all(tmp_path / "new" / "folder", figures)
    assert path.name == "error.png"
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20], "big") == 8 * 120


def test_a_missing_extra_is_named(monkeypatch, lorenz):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'fwnkf\[plot\]'"):
        plots.error_over_time(lorenz, {})
    with pytest.raises(ConfigError, match=r"no_such_module.*pip install 'fwnkf\[some\]'"):
        need("no_such_module", extra="some")
    assert need("math", extra="some") is math


def test_euclidean_layouts_are_returned_unchanged():
    values = torch.randn(4, 2)
    assert series.without_jumps(Layout.euclidean(2), values, values) is values
