"""Coordinates relative to an origin: UTM and ECEF in single precision, beside double precision without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf import Part, Status
from fwnkf.core.layout import Layout
from fwnkf.errors import ConfigError
from fwnkf.runtime.recordings import run_long

NORTH = 5_400_000.0
F, H = [[1.0, 0.1], [0.0, 1.0]], [[1.0, 0.0]]
LAYOUT = (("north", "euclidean", 1, (NORTH,)), ("speed", "euclidean", 1))


def tracker(dtype: torch.dtype, **options: object) -> fwnkf.KF:
    """Positions with a standard deviation of 1 cm, and a slow walk."""
    Q, R = np.diag([1e-6, 1e-4]), [[1e-4]]
    return fwnkf.KF(
        **{k: torch.tensor(v, dtype=dtype) for k, v in (("F", F), ("H", H), ("Q", Q), ("R", R))}, dt=0.1, **options
    )


def walk() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = NORTH + 1.3 * 0.1 * np.arange(200)
    return truth, truth + 0.01 * rng.standard_normal(200)


def estimates(model: fwnkf.KF, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, set[str]]:
    stream = fwnkf.Stream(model, prior=([NORTH, 1.3], np.eye(2)), step=0.1)
    steps = [stream.step(value) for value in y]
    return np.array([e.mean for e in steps]), np.array([e.std for e in steps]), {e.health for e in steps}


def test_centimetres_at_utm_coordinates_in_single_precision() -> None:
    truth, y = walk()
    mean, std, health = estimates(tracker(torch.float32, layout=LAYOUT), y)
    wanted, _, _ = estimates(tracker(torch.float64), y)
    assert health == {"ok"}
    np.testing.assert_allclose(mean, wanted, rtol=0, atol=1e-4)
    assert np.sqrt(np.mean(((mean[:, 0] - truth) / std[:, 0]) ** 2)) < 1.2
    plain, stated, health = estimates(tracker(torch.float32), y)  # the same without an origin
    assert np.sqrt(np.mean(((plain[:, 0] - truth) / stated[:, 0]) ** 2)) > 10
    assert health == {"degraded"}


@pytest.mark.parametrize("solve", ["auto", "cholesky", "sequential", "square_root"])
def test_every_form_says_where_digits_are_missing(solve: str) -> None:
    _, y = walk()
    model = tracker(torch.float32, solve=solve)
    prior = fwnkf.Gaussian(torch.tensor([NORTH, 1.3]), torch.eye(2))
    run = model.run(torch.tensor(y, dtype=torch.float32)[None, :, None], prior=prior)
    assert bool((run.status == Status.PRECISION_LOST).all())


def test_a_saved_filter_keeps_its_origin(tmp_path: Path) -> None:
    _, y = walk()
    model = tracker(torch.float32, layout=LAYOUT)
    fwnkf.save(model, tmp_path)
    again = fwnkf.load(tmp_path)
    assert again.observation_layout.origins == (NORTH,)
    np.testing.assert_array_equal(estimates(again, y)[0], estimates(model, y)[0])


def test_a_snapshot_goes_on_with_the_same_bits() -> None:
    _, y = walk()
    stream = fwnkf.Stream(tracker(torch.float32, layout=LAYOUT), prior=([NORTH + 0.123, 1.3], np.eye(2)), step=0.1)
    again = fwnkf.Stream.restore(stream.filter, stream.snapshot())
    for value in y[:5]:
        np.testing.assert_array_equal(stream.step(value).mean, again.step(value).mean)


def test_runs_over_recordings_have_absolute_numbers() -> None:
    truth, y = walk()
    written: list[np.ndarray] = []
    time = 0.1 * np.arange(len(y))
    run_long(tracker(torch.float32, layout=LAYOUT), [(time, y[:, None])], lambda t, mean, cov: written.append(mean))
    mean = np.concatenate(written)[:, 0]
    assert np.abs(mean - truth)[50:].max() < 0.05


def test_functions_see_relative_numbers() -> None:
    system = fwnkf.System.of(
        lambda position, velocity, dt: (position + dt * velocity, velocity),
        lambda position: position,
        state=[Part("position", "euclidean", 1, (NORTH,)), "velocity"],
        measurement=[Part("gps", "euclidean", 1, (NORTH,))],
        Q=[1e-6, 1e-4],
        R=[1e-4],
        dt=0.1,
    )
    _, y = walk()
    stream = fwnkf.Stream(fwnkf.EKF(system), prior=([NORTH, 1.3], np.eye(2)))
    for k, value in enumerate(y):
        estimate = stream.step(value, t=0.1 * k)
    assert abs(estimate["position"][0] - (NORTH + 0.13 * 199)) < 0.05
    assert estimate.health == "ok"


def test_an_origin_must_be_a_point_of_rest() -> None:
    with pytest.raises(ConfigError, match="rests"):
        tracker(torch.float32, layout=(("north", "euclidean", 1, (NORTH,)), ("speed", "euclidean", 1, (3.0,))))
    with pytest.raises(ConfigError, match="2 finite numbers"):
        Part("p", "euclidean", 2, (1.0,))
    with pytest.raises(ConfigError, match="euclidean"):
        Part("heading", "angle", 1, (1.0,))


def test_layouts_describe_their_origin() -> None:
    layout = Layout.parse(LAYOUT)
    assert Layout.parse(layout.describe()) == layout
    x = torch.tensor([1.5, 2.0])
    back = layout.relative(layout.absolute(x), x)
    assert torch.equal(back, x)
