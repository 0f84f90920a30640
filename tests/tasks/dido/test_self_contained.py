"""The shipped filter alone gives the figures of its card."""

import json
from pathlib import Path

import pytest
import torch

import fwnkf

FOLDER = Path(__file__).parents[3] / "models" / "dido"
ATTITUDE = FOLDER.parent / "dido-attitude"


def test_dido_denoises_by_itself(vibrating_imu):
    y, truth = vibrating_imu
    track = fwnkf.load(FOLDER).run(y)
    rmse = (track.mean[..., :6] - truth).square().mean((0, 1)).sqrt()
    quick = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))["quick"]
    assert rmse.tolist() == pytest.approx([v for k, v in quick.items() if k.startswith("rmse_")], rel=1e-6)
    std = track.cov[..., :6, :6].diagonal(dim1=-2, dim2=-1).sqrt()
    within = ((track.mean[..., :6] - truth).abs() < 1.959964 * std).double().mean()
    assert float(within) == pytest.approx(quick["coverage"], abs=1e-4)
    assert track.mean.dtype == torch.float64


def test_dido_attitude_finds_the_vertical_by_itself(drone_imu):
    imu, orientation = drone_imu
    track = fwnkf.load(ATTITUDE).run(imu[None])
    w, x, y, z = track.mean[0, :, 3:7].unbind(-1)
    estimated = torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), -1)
    w, x, y, z = orientation[15::16].unbind(-1)
    true = torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), -1)
    angle = torch.linalg.cross(estimated, true).norm(dim=-1).asin()[25:].rad2deg()
    quick = json.loads((ATTITUDE / "results.json").read_text(encoding="utf-8"))["quick"]
    assert float(angle.square().mean().sqrt()) == pytest.approx(quick["inclination_deg"], rel=1e-6)
