"""A loaded filter and raw samples alone give the figure of the card."""

import json
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.metrics.orientation import error_quaternion, inclination_error, rms_degrees, total_error

MODELS = Path(__file__).parents[3] / "models"


@pytest.mark.parametrize(
    ("name", "metric", "channels", "angle"),
    [("broad", "inclination_deg", 6, inclination_error), ("broad-magnetometer", "orientation_deg", 9, total_error)],
)
def test_raw_samples_to_figure(name, metric, channels, angle, quick_trials):
    model = fwnkf.load(MODELS / name)
    samples = quick_trials.samples[..., :channels]
    with torch.no_grad():
        orientation = model.preprocess.orientation(samples, model.run(samples))
    each = [
        rms_degrees(angle(error_quaternion(q[counted], truth[counted])))
        for q, truth, counted in zip(orientation, quick_trials.truth, quick_trials.counted, strict=True)
    ]
    quick = json.loads((MODELS / name / "results.json").read_text())["quick"]
    assert sum(each) / len(each) == pytest.approx(quick[metric], rel=1e-6)
