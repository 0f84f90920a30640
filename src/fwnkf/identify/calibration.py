"""Constant calibration of a sensor against a reference: bias, scale factors, or a whole matrix of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import solve_psd
from ..errors import ConfigError, DataError
from ..shapes import Float


class CalibrationValues(NamedTuple):
    """``y' = matrix (y - bias)``: what :class:`fwnkf.core.preprocess.Calibration` takes."""

    bias: Float[Tensor, " m"]
    matrix: Float[Tensor, "m m"]


def fit(
    measured: Sequence[Float[Tensor, "_ m"]],
    reference: Sequence[Float[Tensor, "_ m"]],
    *,
    matrix: Literal["identity", "scale", "full"] = "identity",
) -> CalibrationValues:
    """The calibration that takes measured samples to the reference, by least squares over several recordings.

    The noise is taken to be the sensor's: ``measured = M reference + bias + noise``, and ``matrix`` is ``M⁻¹``. Every
    recording counts the same whatever its length. ``"identity"`` finds the bias alone (the mean difference),
    ``"scale"`` one factor for each channel too, ``"full"`` scale, misalignment and cross-axis sensitivity.

    >>> from fwnkf.core.preprocess import Calibration, CalibrationConfig
    >>> truth = torch.tensor([[0.0], [1.0], [2.0]])
    >>> values = fit([2 * truth + 0.5], [truth], matrix="scale")
    >>> [round(float(value), 3) for value in (values.bias, values.matrix)]
    [0.5, 0.5]
    >>> preprocess = Calibration(CalibrationConfig(channels=1), **values._asdict())
    """
    if not measured or len(measured) != len(reference):
        raise DataError(
            f"{len(measured)} recordings against {len(reference)} references: as many of both, at least one"
        )
    for y, truth in zip(measured, reference, strict=True):
        if y.shape != truth.shape or not len(y):
            raise DataError(f"samples {tuple(y.shape)}, reference {tuple(truth.shape)}: the same shape, not empty")
    eye = torch.eye(measured[0].shape[-1]).to(measured[0])
    differences = [(y - truth).mean(0) for y, truth in zip(measured, reference, strict=True)]
    if matrix == "identity":
        return CalibrationValues(torch.stack(differences).mean(0), eye)
    weights = torch.cat([truth.new_full((len(truth), 1), 1 / len(truth)) for truth in reference]) / len(reference)
    y, truth = torch.cat(list(measured)), torch.cat(list(reference))
    centre_y, centre = (weights * y).sum(0), (weights * truth).sum(0)
    y, truth = y - centre_y, truth - centre
    if matrix == "scale":
        spread = (weights * truth.square()).sum(0)
        if bool((spread <= 0).any()):
            raise ConfigError(
                "a channel of the reference never changes: its scale cannot be estimated; fit the bias alone"
            )
        forward = torch.diag((weights * truth * y).sum(0) / spread)
    else:
        transposed, ok = solve_psd((weights * truth).mT @ truth, (weights * truth).mT @ y)
        if not bool(ok):
            raise ConfigError("the reference does not move in every direction: fit matrix='scale' or the bias alone")
        forward = transposed.mT
    inverse, ok = solve_psd(forward.mT @ forward, forward.mT)
    if not bool(ok):
        raise ConfigError("the sensor does not follow the reference in every direction; are both in the same frame?")
    return CalibrationValues(centre_y - forward @ centre, inverse)
