"""The metric against closed forms, the trivial references against their definition, and figures on real recordings."""

from __future__ import annotations

import importlib
import math
import os
from pathlib import Path

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.data import broad, catalogue
from fwnkf.data.recording import Recording
from fwnkf.errors import ConfigError, DataError
from tasks.broad import orientation
from tests.tolerances import assert_close

RATE = 100.0


def turn(*rotvec: float) -> torch.Tensor:
    return rotation.exp(torch.tensor(rotvec, dtype=torch.float64))


def random_orientations(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return rotation.normalize(torch.randn(count, 4, generator=generator, dtype=torch.float64))


def made_trial(q: torch.Tensor, gyro: torch.Tensor | None = None, movement: torch.Tensor | None = None) -> Recording:
    """A BROAD trial without motion acceleration and without noise, in a field that points north and down."""
    count = len(q)
    to_body = rotation.to_matrix(q).mT
    accel = to_body @ torch.tensor([0.0, 0.0, 9.81], dtype=torch.float64)
    mag = to_body @ torch.tensor([0.0, 18.0, -45.0], dtype=torch.float64)
    gyro = torch.zeros(count, 3, dtype=torch.float64) if gyro is None else gyro
    observations = torch.cat((gyro, accel, mag), -1)
    movement = torch.ones(count, dtype=torch.bool) if movement is None else movement
    return Recording(
        "made", torch.arange(count).double() / RATE, observations, broad.CHANNELS, observations.isfinite(),
        q, broad.LAYOUT, extras={"movement": movement},
    )  # fmt: skip


def spinning(count: int = 1500) -> Recording:
    """A steady turn about an oblique axis, from an orientation that is neither level nor north."""
    rate = torch.tensor([0.3, -0.2, 0.25], dtype=torch.float64)
    steps = torch.arange(count).double().unsqueeze(-1) / RATE
    q = rotation.multiply(turn(0.4, 0.7, -1.1).expand(count, 4), rotation.exp(rate * steps))
    return made_trial(q, rate.expand(count, 3).clone())


# ---- the metric -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 2.0, 3.1])
def test_a_yaw_error_is_all_heading(angle):
    truth = random_orientations(50)
    error = orientation.error_quaternion(rotation.multiply(turn(0, 0, angle).expand(50, 4), truth), truth)
    wanted = torch.full((50,), angle, dtype=torch.float64)
    assert_close(orientation.inclination_error(error), torch.zeros_like(wanted))
    assert_close(orientation.heading_error(error), wanted)
    assert_close(orientation.total_error(error), wanted)


@pytest.mark.parametrize("angle", [1e-9, 0.3, 2.0, 3.1])
@pytest.mark.parametrize("direction", [0.0, 1.0, 4.0])
def test_a_tilt_error_is_all_inclination(angle, direction):
    truth = random_orientations(50)
    tilted = turn(angle * math.cos(direction), angle * math.sin(direction), 0)
    error = orientation.error_quaternion(rotation.multiply(tilted.expand(50, 4), truth), truth)
    wanted = torch.full((50,), angle, dtype=torch.float64)
    assert_close(orientation.inclination_error(error), wanted)
    assert_close(orientation.heading_error(error), torch.zeros_like(wanted))
    assert_close(orientation.total_error(error), wanted)


def test_inclination_is_the_angle_between_the_verticals_and_the_parts_make_the_whole():
    estimate, truth = random_orientations(200, 1), random_orientations(200, 2)
    error = orientation.error_quaternion(estimate, truth)
    down = rotation.to_matrix(estimate)[:, 2], rotation.to_matrix(truth)[:, 2]
    assert_close(orientation.inclination_error(error), (down[0] * down[1]).sum(-1).acos())
    assert_close(orientation.total_error(error), rotation.distance(estimate, truth))
    whole = (orientation.inclination_error(error) / 2).cos() * (orientation.heading_error(error) / 2).cos()
    assert_close((orientation.total_error(error) / 2).cos(), whole)


def test_signs_and_lengths_of_quaternions_do_not_matter():
    estimate, truth = random_orientations(100, 1), random_orientations(100, 2)
    error, other = orientation.error_quaternion(estimate, truth), orientation.error_quaternion(-3 * estimate, truth)
    for part in (orientation.inclination_error, orientation.heading_error, orientation.total_error):
        assert_close(part(error), part(other))


def test_only_moving_samples_with_known_truth_count():
    q = turn(0, 0, 0).repeat(4, 1)
    trial = made_trial(q, movement=torch.tensor([False, True, True, True]))
    lost = trial.truth.clone()
    lost[3] = torch.nan
    known = torch.tensor([True, True, True, False])
    trial = Recording(
        "made", trial.time, trial.observations, trial.channels, trial.mask, lost, trial.layout, known,
        extras=trial.extras,
    )  # fmt: skip
    estimate = torch.stack((turn(2, 0, 0), turn(0.3, 0, 0), turn(0.4, 0, 0), turn(2, 0, 0)))
    figures = orientation.score(trial, estimate)
    assert figures["samples"] == 2
    assert figures["inclination_deg"] == pytest.approx(math.degrees(math.sqrt((0.09 + 0.16) / 2)))
    assert figures["heading_deg"] == pytest.approx(0.0, abs=1e-9)
    estimate[1, 2] = torch.nan
    assert math.isnan(orientation.score(trial, estimate)["inclination_deg"])
    with pytest.raises(DataError, match="wanted"):
        orientation.score(trial, estimate[:3])
    with pytest.raises(DataError, match="nothing can be scored"):
        orientation.score(made_trial(q, movement=torch.zeros(4, dtype=torch.bool)), q)


# ---- references -----------------------------------------------------------------------------------------------------


def test_tilt_levels_any_force_even_upside_down():
    generator = torch.Generator().manual_seed(0)
    force = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    force[0], force[1] = torch.tensor([0.0, 0.0, 9.81]), torch.tensor([0.0, 0.0, -9.81])
    q = orientation.tilt(force)
    up = (rotation.to_matrix(q) @ force.unsqueeze(-1)).squeeze(-1)
    assert_close(up[:, 2], force.norm(dim=-1))
    assert_close(q.norm(dim=-1), torch.ones(200, dtype=torch.float64))


def test_compass_is_right_at_rest_and_the_integral_exact_for_a_steady_turn():
    trial = spinning()
    for method in ("tilt_9d", "gyro_9d"):
        assert orientation.score(trial, orientation.METHODS[method](trial))["orientation_deg"] < 1e-9
    for method in ("tilt_6d", "gyro_6d"):
        assert orientation.score(trial, orientation.METHODS[method](trial))["inclination_deg"] < 1e-9


def test_integration_equals_the_plain_loop():
    generator = torch.Generator().manual_seed(0)
    gyro = torch.randn(37, 3, generator=generator, dtype=torch.float64)
    q = turn(0.1, 0.2, 0.3)
    path = [q]
    for omega in gyro[1:]:
        q = rotation.multiply(q, rotation.exp(omega * 0.01))
        path.append(q)
    assert_close(orientation.integrate(path[0], gyro, 0.01), torch.stack(path))


@pytest.mark.parametrize("name", ["vqf_6d", "vqf_9d", "madgwick_6d", "madgwick_9d", "mahony_6d", "mahony_9d"])
def test_published_filters_speak_our_frames(name):
    """Without noise and motion, from the right start, every filter stays on the truth: a wrong frame is far off."""
    pytest.importorskip("vqf" if name.startswith("vqf") else "ahrs")
    trial = spinning()
    figures = orientation.score(trial, orientation.METHODS[name](trial))
    assert figures["inclination_deg"] < 0.5
    if name.endswith("_9d"):
        assert figures["orientation_deg"] < 0.5


def test_a_missing_package_names_the_extra(monkeypatch):
    def gone(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", gone)
    with pytest.raises(ConfigError, match=r"fwnkf\[rivals\]"):
        orientation.vqf_6d(spinning(10))


def test_missing_samples_and_other_recordings_are_refused():
    trial = spinning(10)
    mask = trial.mask.clone()
    mask[3, 0] = False
    holed = Recording("holed", trial.time, trial.observations, trial.channels, mask, trial.truth, trial.layout)
    with pytest.raises(DataError, match="missing at 1 samples"):
        orientation.gyro_6d(holed)
    other = Recording("other", trial.time, trial.observations[:, :6], trial.channels[:6], trial.mask[:, :6])
    with pytest.raises(DataError, match="not a BROAD trial"):
        orientation.gyro_6d(other)


def test_an_empty_folder_says_where_to_get_the_set(tmp_path: Path):
    with pytest.raises(DataError, match="dlaidig/broad"):
        next(orientation.broad_references(tmp_path))


# ---- real recordings ------------------------------------------------------------------------------------------------

VQF = {"24": (0.61, 1.55), "25": (0.38, 1.62), "26": (0.56, 1.75), "27": (0.37, 6.73)}
"""Inclination without and total error with magnetometer in degrees, measured here before by other code."""


def have_trials() -> list[str]:
    if not os.environ.get("FWNKF_DATA"):
        pytest.skip("FWNKF_DATA names no folder with recordings")
    numbers = {name[:2] for name in broad.find(catalogue.folder_of("broad"))}
    if not set(VQF) <= numbers:
        pytest.skip("trials 24 to 27 of BROAD are not all there")
    return sorted(VQF)


def test_vqf_on_the_disturbed_trials_as_measured_before():
    trials = have_trials()
    pytest.importorskip("vqf")
    rows = list(orientation.broad_references(trials=trials, methods=["vqf_6d", "vqf_9d"]))
    found = {(row["method"], row["trial"][:2]): row for row in rows if row["trial"] != "all"}
    for trial, (inclination, total) in VQF.items():
        assert found["vqf_6d", trial]["inclination_deg"] == pytest.approx(inclination, abs=0.02)
        assert found["vqf_6d", trial]["orientation_deg"] is None
        assert found["vqf_9d", trial]["orientation_deg"] == pytest.approx(total, abs=0.02)
    overall = {row["method"]: row for row in rows if row["trial"] == "all"}
    assert overall["vqf_6d"]["inclination_deg"] == pytest.approx(0.48, abs=0.02)
    assert overall["vqf_6d"]["trials"] == 4
    assert overall["vqf_6d"]["samples"] == sum(found["vqf_6d", trial]["samples"] for trial in VQF)


def predicted(q: list[float], d: tuple[float, float]) -> tuple[list[float], list[list[float]]]:
    """Madgwick's model: a vector with components x and z in the earth, seen in the body, and its derivative by q."""
    (w, x, y, z), (dx, dz) = q, d
    seen = [
        dx * (1 - 2 * y * y - 2 * z * z) + 2 * dz * (x * z - w * y),
        2 * dx * (x * y - w * z) + 2 * dz * (w * x + y * z),
        2 * dx * (w * y + x * z) + dz * (1 - 2 * x * x - 2 * y * y),
    ]
    slope = [
        [-2 * dz * y, 2 * dz * z, -4 * dx * y - 2 * dz * w, -4 * dx * z + 2 * dz * x],
        [-2 * dx * z + 2 * dz * x, 2 * dx * y + 2 * dz * w, 2 * dx * x + 2 * dz * z, -2 * dx * w + 2 * dz * y],
        [2 * dx * y, 2 * dx * z - 4 * dz * x, 2 * dx * w - 4 * dz * y, 2 * dx * x],
    ]
    return seen, slope


def madgwick_of_the_authors(trial: Recording, share: float) -> torch.Tensor:
    """Madgwick's filter in plain numbers; ``share`` scales the magnetic reference: a half in the authors' program."""
    units = [part / part.norm(dim=-1, keepdim=True) for part in trial.observations[:, 3:].split(3, -1)]
    quarter = turn(0, 0, math.pi / 2)
    q = rotation.multiply(rotation.conjugate(quarter), orientation.tilt_9d(trial)[0]).tolist()
    dt, path = 1 / trial.rate, []
    for omega, a, m in zip(trial.observations[:, :3].tolist(), units[0].tolist(), units[1].tolist(), strict=True):
        (w, x, y, z), (p, r, s) = q, omega
        hx = m[0] * (1 - 2 * y * y - 2 * z * z) + 2 * m[1] * (x * y - w * z) + 2 * m[2] * (x * z + w * y)
        hy = 2 * m[0] * (x * y + w * z) + m[1] * (1 - 2 * x * x - 2 * z * z) + 2 * m[2] * (y * z - w * x)
        hz = 2 * m[0] * (x * z - w * y) + 2 * m[1] * (y * z + w * x) + m[2] * (1 - 2 * x * x - 2 * y * y)
        gradient = [0.0] * 4
        for measured, reference in ((a, (0.0, 1.0)), (m, (share * math.hypot(hx, hy), share * hz))):
            seen, slope = predicted(q, reference)
            for i in range(3):
                for j in range(4):
                    gradient[j] += slope[i][j] * (seen[i] - measured[i])
        length = math.hypot(*gradient) or 1.0
        rate = (-x * p - y * r - z * s, w * p + y * s - z * r, w * r - x * s + z * p, w * s + x * r - y * p)
        moved = [q[j] + (0.5 * rate[j] - 0.12 * gradient[j] / length) * dt for j in range(4)]
        size = math.hypot(*moved)
        q = [part / size for part in moved]
        path.append(q)
    return rotation.multiply(quarter, torch.tensor(path, dtype=torch.float64))


def test_the_metric_gives_the_figures_the_authors_publish():
    """Trial 24, Madgwick, β 0.12: results_madgwick_average_rmse.json of the set's repository, to its float32."""
    have_trials()
    trial = next(broad.read(path) for name, path in broad.find(catalogue.folder_of("broad")).items() if "24_" in name)
    figures = orientation.score(trial, madgwick_of_the_authors(trial, 0.5))
    assert figures["orientation_deg"] == pytest.approx(1.76843, abs=5e-4)
    assert figures["heading_deg"] == pytest.approx(1.24252, abs=5e-4)
    assert figures["inclination_deg"] == pytest.approx(1.25839, abs=5e-4)
    pytest.importorskip("ahrs")
    whole = madgwick_of_the_authors(trial.slice(0, 3000), 1.0)  # one sample earlier than ahrs, which skips the first
    ahrs = orientation.madgwick_9d(trial.slice(0, 3000))
    assert float(rotation.distance(whole, ahrs).max()) < math.radians(0.2)


def test_words_that_name_nothing_are_refused():
    have_trials()
    with pytest.raises(DataError, match="no trial '99'"):
        next(orientation.broad_references(trials=["99"]))
    with pytest.raises(ConfigError, match="vqf_9d"):
        next(orientation.broad_references(trials=["24"], methods=["kalman"]))
    with pytest.raises(ConfigError, match="leave trials out"):
        next(orientation.broad_references(trials=[]))
