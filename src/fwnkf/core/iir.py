"""Stable biquad cascades: parametrisation, one step, frequency response, poles and zeros.

A section is ``(b0 + b1 z⁻¹ + b2 z⁻²) / (1 + a1 z⁻¹ + a2 z⁻²)``. Its poles lie inside the stated radius for *every* raw
value: ``a2 = tanh β`` and ``a1 = (1 + a2) tanh α`` cover the stability triangle, real and complex poles alike, and
scaling ``a1 ← r a1, a2 ← r² a2`` moves every pole inside ``r``. A cascade is never expanded to direct form, which can
become unstable in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Complex, Float

ROUNDING_MARGIN = 2e-3
"""Poles are placed inside ``radius · (1 - margin)``: rounding moves a double pole by the square root of the rounding
error, about 5e-4 in float32, and it must stay inside the stated radius nevertheless."""


class Sections(NamedTuple):
    """Coefficients of a cascade of ``k`` biquads, for one filter or one filter per channel."""

    b: Float[Tensor, "*C k 3"]
    a: Float[Tensor, "*C k 2"]


def sections(raw: Float[Tensor, "*C k 5"], radius: float) -> Sections:
    """A stable cascade from raw ``(α, β, b0 - 1, b1, b2)``; raw zeros give the identity ``Φ = 1``."""
    alpha, beta = raw[..., 0], raw[..., 1]
    inside = radius * (1 - ROUNDING_MARGIN)
    a2 = torch.tanh(beta)
    a1 = (1 + a2) * torch.tanh(alpha)
    b = torch.cat((raw[..., 2:3] + 1, raw[..., 3:]), -1)
    return Sections(b, torch.stack((inside * a1, inside * inside * a2), -1))


def raw_from_sections(cascade: Sections, radius: float) -> Float[Tensor, "*C k 5"]:
    """The inverse of :func:`sections`; the poles of the cascade must lie inside the radius."""
    inside = radius * (1 - ROUNDING_MARGIN)
    a1, a2 = cascade.a[..., 0] / inside, cascade.a[..., 1] / inside**2
    raw = (torch.atanh(a1 / (1 + a2)), torch.atanh(a2))
    return torch.stack((*raw, cascade.b[..., 0] - 1, cascade.b[..., 1], cascade.b[..., 2]), -1)


def state_space(cascade: Sections) -> Float[Tensor, "*C s s"]:
    """A matrix per filter that maps ``[input, memory]`` to ``[output, next memory]``; ``s = 2 k + 1``.

    The memory of each section is its direct-form-II buffer ``(s_{t-1}, s_{t-2})``, the paper's lags. The matrix is
    block triangular with one block per section; the cascade is not expanded to direct form.
    """
    count = cascade.a.shape[-2]
    unit = torch.eye(2 * count + 1, dtype=cascade.a.dtype, device=cascade.a.device)
    flow = unit[0].expand(*cascade.a.shape[:-2], -1)  # the input of the section, as a row over [input, memory]
    memory: list[Tensor] = []
    for k in range(count):
        first, second = unit[1 + 2 * k], unit[2 + 2 * k]
        a1, a2 = cascade.a[..., k, 0:1], cascade.a[..., k, 1:2]
        b0, b1, b2 = (cascade.b[..., k, i : i + 1] for i in range(3))
        pole = flow - a1 * first - a2 * second
        flow = b0 * pole + b1 * first + b2 * second
        memory += [pole, first.expand_as(pole)]
    return torch.stack([flow, *memory], -2)


def step(
    matrix: Float[Tensor, "*C s s"], signal: Float[Tensor, "B m"], memory: Float[Tensor, "B m r"]
) -> tuple[Float[Tensor, "B m"], Float[Tensor, "B m r"]]:
    """Filter one sample; ``matrix`` is from :func:`state_space`, shared ``[s, s]`` or one per channel."""
    stacked = torch.cat((signal.unsqueeze(-1), memory), -1)
    out = stacked @ matrix.mT if matrix.ndim == 2 else torch.einsum("bms,mts->bmt", stacked, matrix)
    return out[..., 0], out[..., 1:]


def response(cascade: Sections, omega: Float[Tensor, " w"]) -> Complex[Tensor, "*C w"]:
    """``Φ(e^{jω})`` at angular frequencies in radians per sample."""
    delay = torch.polar(torch.ones_like(omega), -omega)  # z⁻¹ on the unit circle
    powers = torch.stack((torch.ones_like(delay), delay, delay**2), -1)
    numerator = cascade.b.to(delay.dtype) @ powers.mT
    denominator = 1 + cascade.a.to(delay.dtype) @ powers[..., 1:].mT
    return (numerator / denominator).prod(-2)


def _roots(c1: Tensor, c2: Tensor) -> Tensor:
    """Roots of ``z² + c1 z + c2``, without the cancellation of the textbook formula."""
    half = -0.5 * c1
    root = torch.sqrt((half * half - c2).to(torch.promote_types(c1.dtype, torch.complex64)))
    large = half + torch.where(half >= 0, root, -root)
    other = torch.where(large.abs() > 0, c2 / large, torch.zeros_like(large))
    return torch.stack((large, other), -1)


def poles(cascade: Sections) -> Complex[Tensor, "*C k 2"]:
    return _roots(cascade.a[..., 0], cascade.a[..., 1])


def zeros(cascade: Sections) -> Complex[Tensor, "*C k 2"]:
    """Zeros of each section; where ``b0 = 0`` they are not finite."""
    b0 = cascade.b[..., 0]
    return _roots(cascade.b[..., 1] / b0, cascade.b[..., 2] / b0)
