"""Baselines: the frames of the published filters, figures of the authors of the set, and the gravity EKF at rest."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad
from tasks.broad.baselines import DEVIATIONS, VQF, delayed, gravity_ekf, methods, tuned_deviation
from tasks.broad.trials import TEST, score

VQF_FIGURES = {"24": (0.61, 1.55), "25": (0.38, 1.62), "26": (0.56, 1.75), "27": (0.37, 6.73)}
"""Inclination without and total error with magnetometer in degrees, measured before by other code."""


def spinning(trial: Recording, count: int = 1500) -> Recording:
    """A steady rotation about an oblique axis without acceleration, from an orientation neither level nor north."""
    rate = torch.tensor([0.3, -0.2, 0.25], dtype=torch.float64)
    start = rotation.exp(torch.tensor([0.4, 0.7, -1.1], dtype=torch.float64))
    time = trial.time[:count]
    q = rotation.multiply(start.expand(count, 4), rotation.exp(rate * time.unsqueeze(-1)))
    to_body = rotation.to_matrix(q).mT
    force, field = (to_body @ q.new_tensor(v) for v in ([0.0, 0.0, 9.81], [0.0, 18.0, -45.0]))
    observations = torch.cat((rate.expand(count, 3), force, field), -1)
    moving = torch.ones(count, dtype=torch.bool)
    return dataclasses.replace(trial.slice(0, count), observations=observations, truth=q, extras={"movement": moving})


@pytest.mark.parametrize("magnetometer", [False, True])
def test_without_noise_and_motion_every_method_stays_on_the_truth(magnetometer, simulated_trial):
    """A wrong frame is far away."""
    pytest.importorskip("vqf")
    pytest.importorskip("ahrs")
    trial = spinning(simulated_trial())
    for name, method in methods(magnetometer=magnetometer).items():
        figures = score(trial, method(trial).double())
        limit = 1e-6 if "alone" in name else 0.5
        assert figures["orientation_deg" if magnetometer else "inclination_deg"] < limit, name


def test_the_gravity_ekf_is_right_where_force_is_gravity_and_wrong_where_a_hand_sways(simulated_trial):
    trial = simulated_trial(seconds=8.0)
    still = spinning(trial)
    (paths,) = gravity_ekf([still], [0.1])
    later = still.slice(480, 1500)  # the first block is taken for rest, which it is not here
    assert score(later, paths[0, 480:1500])["inclination_deg"] < 0.1
    estimates = gravity_ekf([trial], DEVIATIONS)
    errors = [score(trial, paths[0, : len(trial)])["inclination_deg"] for paths in estimates]
    assert tuned_deviation([trial]) == DEVIATIONS[errors.index(min(errors))]
    assert max(errors) > 1.0


def test_a_delay_is_taken_off(simulated_trial):
    trial = simulated_trial()
    late = rotation.extrapolate(trial.truth, trial.observations[:, :3], -0.01)
    assert score(trial, delayed(late, trial, 0.01))["orientation_deg"] < 1e-9
    assert score(trial, late)["orientation_deg"] > 0.3


def test_vqf_on_the_disturbed_trials_as_measured_before(trial_paths):
    pytest.importorskip("vqf")
    for number in TEST:
        trial = broad.read(trial_paths[number])
        inclination, total = VQF_FIGURES[number]
        six, nine = (methods(magnetometer=magnetometer)[VQF](trial) for magnetometer in (False, True))
        assert score(trial, six)["inclination_deg"] == pytest.approx(inclination, abs=0.02)
        assert score(trial, nine)["orientation_deg"] == pytest.approx(total, abs=0.02)


# ---- the authors' Madgwick ------------------------------------------------------------------------------------------


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
    quarter = rotation.exp(torch.tensor([0.0, 0.0, math.pi / 2], dtype=torch.float64))
    level = rotation.compass(trial.observations[0, 3:6], trial.observations[0, 6:])
    q = rotation.multiply(rotation.conjugate(quarter), level).tolist()
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


def test_the_metric_gives_the_figures_the_authors_publish(trial_paths):
    """Trial 24, Madgwick, β 0.12: results_madgwick_average_rmse.json of the set's repository, to its float32."""
    trial = broad.read(trial_paths["24"])
    figures = score(trial, madgwick_of_the_authors(trial, 0.5))
    assert figures["orientation_deg"] == pytest.approx(1.76843, abs=5e-4)
    assert figures["heading_deg"] == pytest.approx(1.24252, abs=5e-4)
    assert figures["inclination_deg"] == pytest.approx(1.25839, abs=5e-4)
    pytest.importorskip("ahrs")
    part = trial.slice(0, 3000)
    whole = madgwick_of_the_authors(part, 1.0)  # one sample earlier than ahrs, which skips the first
    assert float(rotation.distance(whole, methods(magnetometer=True)["Madgwick"](part)).max()) < math.radians(0.2)
