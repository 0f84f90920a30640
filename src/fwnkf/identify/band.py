"""What is known of the motion where nobody measured it: the band of frequencies in which it lies."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigError
from ..shapes import Float

ORDER = 4
"""Of the Butterworth low-pass, run forwards and backwards."""


def below(y: Float[Tensor, "N T m"], rate: float, hz: float) -> Float[Tensor, "N T m"]:
    """The part of recordings below a frequency, without delay: a stand-in for the truth that a filter is fitted to.

    A filter that runs cannot have it, since it reads the future. Vibration in the band of the motion stays in it, and
    motion above the band is missing.

    Args:
        y: recordings.
        rate: samples per second (Hz).
        hz: where a fourth-order Butterworth filter, run forwards and backwards, has a quarter of the power.

    Returns:
        The low-passed recordings. Their ends are reflected, as ``scipy.signal.sosfiltfilt`` does.

    >>> t = torch.arange(400).double() / 100
    >>> slow, fast = torch.sin(2 * torch.pi * 0.5 * t), torch.sin(2 * torch.pi * 30 * t)
    >>> bool((below((slow + fast)[None, :, None], 100.0, 5.0)[0, 50:-50, 0] - slow[50:-50]).abs().max() < 0.01)
    True
    """
    if not 0 < hz < rate / 2:
        raise ConfigError(f"hz = {hz} must lie between 0 and half the rate, {rate / 2} Hz")
    pad = min(y.shape[1] - 1, round(3 * rate / hz))
    start = 2 * y[:, :1] - y[:, 1 : pad + 1].flip(1)
    end = 2 * y[:, -1:] - y[:, -pad - 1 : -1].flip(1)
    longer = torch.cat((start, y, end), 1)
    # the bilinear transform bends frequencies as a digital filter does
    omega = torch.pi * torch.fft.rfftfreq(longer.shape[1], dtype=y.dtype, device=y.device)
    warped = torch.tan(omega.clamp_max(torch.pi / 2 * (1 - 1e-6))) / torch.tan(omega.new_tensor(torch.pi * hz / rate))
    gain = 1 / (1 + warped ** (2 * ORDER))
    lines = torch.fft.rfft(longer, dim=1) * gain.unsqueeze(-1)
    return torch.fft.irfft(lines, longer.shape[1], dim=1)[:, pad : pad + y.shape[1]]
