"""ARMA models ``A(z) w = C(z) e`` from the spectrum of a series, and as state-space models for a filter.

The spectrum says how much a sensor's own filter has smoothed what it reports. ``A = 1 + a_1 z⁻¹ + …`` and
``C = 1 + c_1 z⁻¹ + …`` are monic with all roots inside the unit circle, ``e`` is white: the innovations of the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.errors import ConfigError, DataError
from fwnkf.shapes import Float


class ARMA(NamedTuple):
    """Coefficients of ``A`` and ``C``, the leading 1 included."""

    a: Float[Tensor, " p1"]
    c: Float[Tensor, " p1"]

    def innovations(self, series: Float[Tensor, "T m"]) -> Float[Tensor, "T m"]:
        """``e = A(z)/C(z) w`` from rest: what the past of the same series does not tell.

        >>> ARMA(torch.tensor([1.0, -0.5]), torch.tensor([1.0, 0.0])).innovations(torch.tensor([[1.0], [0.5]]))
        tensor([[1.],
                [0.]])
        """
        order = len(self.a) - 1
        a, c = self.a[1:, None].to(series), self.c[1:, None].to(series)
        past_w, past_e = series.new_zeros(2, order, series.shape[-1])
        errors = []
        for w in series.unbind(0):
            e = w + (a * past_w).sum(0) - (c * past_e).sum(0)
            past_w, past_e = torch.cat((w[None], past_w[:-1])), torch.cat((e[None], past_e[:-1]))
            errors.append(e)
        return torch.stack(errors)

    def state_space(self) -> tuple[Float[Tensor, "p p"], Float[Tensor, " p"]]:
        """``F, g`` of the innovations form ``s⁺ = F s + g e``, ``w = s_1 + e``: ``s_1`` is ``w`` as predicted."""
        order = len(self.a) - 1
        F = torch.diag_embed(torch.ones(order - 1), 1).to(self.a)
        F[:, 0] -= self.a[1:]
        return F, self.c[1:] - self.a[1:]


def monic(raw: Float[Tensor, "*B p"]) -> Float[Tensor, "*B p1"]:
    """``1 + a_1 z⁻¹ + … + a_p z⁻ᵖ`` with all roots inside the unit circle, from any numbers (Levinson's recursion)."""
    a = torch.ones_like(raw[..., :1])
    for k in raw.tanh().unbind(-1):
        zero = torch.zeros_like(a[..., :1])
        a = torch.cat((a, zero), -1) + k.unsqueeze(-1) * torch.cat((zero, a.flip(-1)), -1)
    return a


def power(pieces: Sequence[Float[Tensor, "T m"]], window: int = 256) -> Float[Tensor, "f m"]:
    """Mean power of several series over Hann-tapered windows, half overlapping."""
    short = [len(piece) for piece in pieces if len(piece) < window]
    if short or not pieces:
        raise DataError(f"a series of {min(short, default=0)} samples is shorter than the window of {window}")
    taper = torch.hann_window(window, dtype=pieces[0].dtype, device=pieces[0].device).unsqueeze(-1)
    parts = torch.cat([piece.unfold(0, window, window // 2).mT for piece in pieces])
    return torch.fft.rfft(parts * taper, dim=1).abs().square().mean(0)


def fit(spectrum: Float[Tensor, "f m"], order: int, *, iterations: int = 400) -> ARMA:
    """``A`` and ``C`` of one order, shared by all channels, by Whittle's likelihood with the scales taken out.

    ``spectrum`` is the power at the frequencies of ``rfft``, of any scale for each channel. The prediction error of a
    monic stable model is the mean of ``spectrum |A / C|²``; its logarithm is what is minimised.

    >>> denominator = torch.fft.rfft(torch.tensor([1.0, -0.9], dtype=torch.float64), 256).abs().square()
    >>> model = fit(1 / denominator.unsqueeze(-1), 1)
    >>> round(float(model.a[1]), 1)
    -0.9
    """
    if order < 1 or len(spectrum) < 2 * order + 1:
        raise ConfigError(f"order {order} with {len(spectrum)} frequencies: at least 1, and twice as many frequencies")
    length = 2 * (len(spectrum) - 1)
    relative = (spectrum / spectrum.mean(0)).mT.double()
    # a smooth series to start from: what low-pass filtered sensors look like
    start = torch.zeros(2, order, dtype=torch.float64, device=spectrum.device)
    start[0, :2] = torch.tensor([-1.5, 1.0])[:order]
    start[1, :2] = torch.tensor([-1.0, 0.8])[:order]
    raw = start.requires_grad_()
    solver = torch.optim.LBFGS([raw], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def loss() -> Tensor:
        solver.zero_grad()
        a, c = (torch.fft.rfft(polynomial, length).abs().square() for polynomial in monic(raw))
        value = (relative * a / c).mean().log()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    return ARMA(*monic(raw.detach()))
