"""Calibration against numpy's least squares, and through the preprocessing of a filter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fwnkf.core.preprocess import Calibration, CalibrationConfig, Inputs
from fwnkf.errors import ConfigError, DataError
from fwnkf.identify import calibration

MATRIX = torch.tensor([[1.1, 0.02, 0.0], [-0.03, 0.9, 0.05], [0.0, 0.01, 1.3]], dtype=torch.float64)
BIAS = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64)


def recordings(generator, noise: float) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    reference = [torch.randn(n, 3, generator=generator, dtype=torch.float64) + 0.3 for n in (400, 1000)]
    measured = [r @ MATRIX.mT + BIAS + noise * torch.randn(r.shape, generator=generator).double() for r in reference]
    return measured, reference


def test_a_full_matrix_is_numpys_least_squares(generator) -> None:
    measured, reference = recordings(generator, 0.1)
    values = calibration.fit(measured, reference, matrix="full")
    # every recording counts the same: rows weighted by the root of one over its length
    rows = [torch.cat((r, torch.ones(len(r), 1).double()), -1) / len(r) ** 0.5 for r in reference]
    wanted = [y / len(y) ** 0.5 for y in measured]
    solution = np.linalg.lstsq(torch.cat(rows).numpy(), torch.cat(wanted).numpy(), rcond=None)[0]
    np.testing.assert_allclose(values.matrix.numpy(), np.linalg.inv(solution[:3].T), rtol=1e-9)
    np.testing.assert_allclose(values.bias.numpy(), solution[3], rtol=1e-9)


@pytest.mark.parametrize("kind", ["identity", "scale", "full"])
def test_the_preprocessing_gives_the_reference_back(generator, kind) -> None:
    _, reference = recordings(generator, 0.0)
    forward = {"identity": torch.eye(3).double(), "scale": MATRIX.diagonal().diag(), "full": MATRIX}[kind]
    measured = [r @ forward.mT + BIAS for r in reference]
    values = calibration.fit(measured, reference, matrix=kind)
    unit = Calibration(CalibrationConfig(channels=3), **values._asdict())
    _, inputs = unit((), Inputs(measured[0], torch.ones_like(measured[0]), None, None))
    torch.testing.assert_close(inputs.y, reference[0], rtol=1e-9, atol=1e-9)


@pytest.mark.unchecked("the shape checker raises first")
def test_what_cannot_be_estimated_is_refused() -> None:
    still, moving = torch.zeros(10, 2), torch.randn(10, 2)
    with pytest.raises(ConfigError, match="never changes"):
        calibration.fit([moving], [still], matrix="scale")
    with pytest.raises(ConfigError, match="every direction"):
        calibration.fit([moving], [still], matrix="full")
    with pytest.raises(DataError, match="as many of both"):
        calibration.fit([], [])
    with pytest.raises(DataError, match="the same shape"):
        calibration.fit([moving], [moving[:5]])
