"""Delays between streams: of one sampled signal behind another, and of an orientation estimate behind the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import rotation
from ..core.gaussian import matvec
from ..errors import ConfigError, DataError
from ..metrics.orientation import error_quaternion, tilt_vector
from ..shapes import Float


def cross_correlation_delay(
    signal: Float[Tensor, "*B T n"], reference: Float[Tensor, "*B T n"], rate: float, *, limit: int = 20
) -> Float[Tensor, " n"]:
    """Seconds by which each channel of ``signal`` lags behind ``reference``, both sampled at ``rate`` hertz.

    The lag of the largest cross-correlation, refined below one sample by a parabola through it and its neighbours;
    leading axes (recordings) are summed. Lags of up to ``limit`` samples either way are searched. A maximum at the
    border raises :class:`DataError`, because the true lag then lies outside.

    >>> t = torch.arange(2000, dtype=torch.float64) / 100
    >>> late = torch.sin(2 * torch.pi * (t - 0.037))
    >>> delay = cross_correlation_delay(late[:, None], torch.sin(2 * torch.pi * t)[:, None], rate=100.0)
    >>> round(float(delay), 4)
    0.037
    """
    length = signal.shape[-2]
    if signal.shape != reference.shape:
        raise ConfigError(f"the signal is {tuple(signal.shape)}, its reference {tuple(reference.shape)}")
    if limit < 1 or length <= 2 * limit + 1:
        raise ConfigError(f"limit = {limit} samples either way need more than {2 * limit + 1} samples; got {length}")
    a = signal - signal.mean(-2, keepdim=True)
    b = reference - reference.mean(-2, keepdim=True)
    middle = b[..., limit : length - limit, :]
    products = [(a[..., limit + k : length - limit + k, :] * middle).sum(-2) for k in range(-limit, limit + 1)]
    correlation = torch.stack([product.reshape(-1, signal.shape[-1]).sum(0) for product in products])
    top = correlation.argmax(0)
    if bool(((top == 0) | (top == 2 * limit)).any()):
        raise DataError(
            f"the cross-correlation is largest at the border of the lags searched (±{limit} samples = "
            f"±{limit / rate:g} s); raise limit, or the signals do not belong together"
        )
    low, high, best = (correlation.gather(0, at.unsqueeze(0))[0] for at in (top - 1, top + 1, top))
    shift = 0.5 * (low - high) / (low - 2 * best + high)
    return (top - limit + shift) / rate


def orientation_delay(
    estimate: Float[Tensor, "*B 4"], truth: Float[Tensor, "*B 4"], gyro: Float[Tensor, "*B 3"]
) -> float:
    """Seconds by which an orientation estimate lags behind the truth: least squares of the tilt error on the rate.

    A delay ``τ`` leaves the error ``-τ ω`` (``ω`` the rate in the world frame). Only its horizontal components are
    used, so that the heading of the estimate may be arbitrary. ``fwnkf.core.rotation.extrapolate`` with the result
    compensates the delay.

    >>> gyro = torch.tensor([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]], dtype=torch.float64)
    >>> truth = rotation.exp(torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.5, 0.1]], dtype=torch.float64))
    >>> round(orientation_delay(rotation.extrapolate(truth, gyro, -0.01), truth, gyro), 5)
    0.01
    """
    error = error_quaternion(estimate, truth)
    rate = matvec(rotation.to_matrix(rotation.normalize(truth)), gyro)[..., :2]
    # about the axes of the true world: the rotation about the vertical is taken off on the left
    tilt = -tilt_vector(rotation.conjugate(error))
    power = float(rate.square().sum())
    if power == 0:
        raise DataError("the sensor does not rotate about a horizontal axis; its delay cannot be observed")
    return -float((tilt * rate).sum()) / power
