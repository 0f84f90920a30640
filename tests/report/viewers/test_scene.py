"""What viewers are given: names, groups, intervals and geometry."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from fwnkf.diagnosis.result import Waterfall
from fwnkf.logs.results import rotation_matrices
from fwnkf.report.viewers.heat import picture, png
from fwnkf.report.viewers.scene import (
    Outline,
    Signals,
    Thinned,
    around,
    distinct,
    east_north_up,
    ellipsoids,
    quaternions,
    split,
)

rng = np.random.default_rng(0)


def random_turns(count: int) -> np.ndarray:
    """Unit quaternions (x, y, z, w), among them half turns, which are hard."""
    turns = rng.normal(size=(count, 4))
    turns[:3] = np.eye(4)[:3]
    return turns / np.linalg.norm(turns, axis=1, keepdims=True)


def test_quaternions_give_the_matrices_they_are_made_of():
    matrices = rotation_matrices(random_turns(200))
    assert np.allclose(rotation_matrices(quaternions(matrices)), matrices, atol=1e-12)


def test_ellipsoids_hold_95_percent_of_the_positions():
    root = rng.normal(size=(3, 3))
    cov = root @ root.T
    half, turn = ellipsoids(cov[None])
    samples = rng.multivariate_normal(np.zeros(3), cov, size=40_000)
    # in the frame of the ellipsoid a point is inside if it is in the unit ball of its half axes
    inside = np.linalg.norm(samples @ rotation_matrices(turn)[0] / half[0], axis=1) <= 1
    assert inside.mean() == pytest.approx(0.95, abs=0.006)


def test_poses_of_aircraft_are_turned_for_viewers():
    # level, heading east, at 10 m north, 20 m east, 30 m height
    heading = np.array([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    position, turn = east_north_up(np.array([[10.0, 20.0, -30.0]]), heading)
    assert position.tolist() == [[20.0, 10.0, 30.0]]
    assert turn is not None
    # forward is east, left is north, up is up: the axes of the frame itself
    assert np.allclose(rotation_matrices(turn)[0], np.eye(3), atol=1e-12)


def test_columns_are_grouped_by_what_they_have_in_common():
    parts = split("state", ["gyro_x", "gyro_y", "bias", "a.b[0]", "a.b[1]"], np.zeros(2), np.arange(10.0).reshape(2, 5))
    assert {part.name: part.channels for part in parts} == {
        "state/gyro": ("gyro_x", "gyro_y"), "state/bias": ("bias",), "state/a_b": ("a_b_0", "a_b_1")
    }  # fmt: skip
    assert parts[1].values.tolist() == [[2.0], [7.0]]


def test_a_plot_shows_the_values_of_a_filter_that_has_settled():
    """Not the first innovation, which is as large as the prior is wide; but an outlier later on."""
    std = np.array([50.0, 2.0, *[1.0] * 7, np.nan])[:, None]
    values = np.array([40.0, 1.0, *[0.0] * 6, -9.0, 3.0])[:, None]
    (part,) = split("innovation", ["y"], np.arange(10.0), values, around(0.0, std))
    assert part.settled() == pytest.approx((-9.0, 2 * 1.96))
    assert split("signal", ["y"], np.arange(10.0), values)[0].settled() == (-9.0, 40.0)
    assert part.outline().settled() is None


def test_names_need_no_quotes_and_differ():
    names = distinct(["a/b", "a b", 'x"y', "", "3rd", "päth"])
    assert len(set(names)) == len(names)
    assert all(name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit() for name in names)


def test_a_long_track_is_thinned_evenly():
    kept = Thinned(100)
    for first in range(0, 12_345, 57):
        kept.add(np.arange(first, min(first + 57, 12_345), dtype=float))
    (rows,) = kept.columns()
    assert 50 <= len(rows) <= 100
    assert rows[0] == 0
    assert len(set(np.diff(rows))) == 1


def test_an_outline_changes_with_new_names_only():
    outline = Outline("log")
    part = Signals("state/x", ("x",), np.zeros(3), np.zeros((3, 1)))
    assert outline.add(part)
    assert not outline.add(part)
    assert outline.signals["state/x"].values.size == 0


def test_the_line_of_a_spectrogram_is_where_its_frequency_is():
    time, frequency = np.arange(20.0), np.arange(64) * 2.0
    density = np.full((20, 64), 1e-6)
    density[:, 30] = 1.0
    found = picture(
        Waterfall("gyro_x", "rad/s", time, frequency, density, {"rotor": (time, np.full(20, 60.0))}), "gyro"
    )
    brightest = found.image.astype(int).sum(-1).argmax(0)
    row = found.pixels(*found.lines["rotor"])[:, 1]
    height = found.image.shape[0] / 64
    assert np.abs(brightest.mean() - row.mean()) <= height
    assert {text for text, _ in found.ticks()} >= {"0 Hz", "100 Hz", "5 s"}


def test_png_is_read_by_another_program(tmp_path):
    image = rng.integers(0, 256, size=(7, 5, 3), dtype=np.uint8)
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "a.png").write_bytes(png(image))
    assert np.array_equal(np.asarray(pillow.open(tmp_path / "a.png")), image)
    data = png(image)
    size = struct.unpack(">I", data[33:37])[0]
    assert len(zlib.decompress(data[41 : 41 + size])) == 7 * (1 + 15)
