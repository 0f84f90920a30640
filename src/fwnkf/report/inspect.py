"""Properties of a trained filter as plain values that can be written as JSON.

Frequencies are fractions of the Nyquist frequency (1 is half the sampling rate) and Hz at the nominal step.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import Tensor

from ..core import iir, oscillators
from ..core.gaussian import dense
from ..core.shaped import spectral_radius
from ..errors import ConfigError, NumericalFailureError
from ..filters.base import Filter
from ..filters.diagnostics import nominal_noise, steady_state_loop
from ..filters.factory import options_of
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.drift import DriftStates
from ..filters.parts.lines import LineStates
from ..filters.parts.modes import ModeStates
from ..filters.parts.part import bandwidth_hz
from ..filters.parts.phi import InnovationShaper
from ..registry import SYSTEMS
from ..shapes import Complex, Float
from .labels import channel_names

GRID = 256
"""Uniform intervals of the frequency grid from zero to Nyquist; points are added around sharp poles and zeros."""


def inspect(model: Filter) -> dict[str, Any]:
    """Properties of a filter: name, options, number of parameters, and its frequency response under ``"frequencies"``.

    ``Φ`` gives sections, poles, zeros, magnitude and group delay, and the spectral radius of its loop; lines and modes
    give oscillators and the spectral density of the noise; other filters give the reason why there is no response.
    Values that are not finite are None.

    >>> import torch, fwnkf
    >>> model = fwnkf.FWNKF(fwnkf.systems.LearnedSystem.of(H=torch.eye(1)), phi=fwnkf.Phi())
    >>> facts = inspect(model)
    >>> facts["name"], facts["parameters"], max(facts["frequencies"]["filters"][0]["magnitude_db"])
    ('fwnkf', 7, 0.0)
    """
    return {
        "name": model.name,
        "options": json.loads(json.dumps(options_of(model.config))),
        "system": None if model.system is None else SYSTEMS.name_of(type(model.system)) or type(model.system).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "dtype": str(model._like().dtype).removeprefix("torch."),
        "frequencies": frequencies(model),
    }


@torch.no_grad()
def frequencies(model: Filter, *, loop: bool = True) -> dict[str, Any]:
    """Frequency response of a filter, as in :func:`inspect`; ``loop=False`` skips the loop, which needs a run."""
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter):
        return {"kind": "none", "reason": f"filter {model.name!r} models white noise only"}
    channels = channel_names(model.system, model.observation_dim)
    lines = model.noise_states
    if model.config.hypotheses is not None and isinstance(lines, LineStates):
        fractions = lines.frequency() / torch.pi
        return {
            "kind": "none",
            "reason": "no single spectrum: hypotheses of different frequencies are weighted at every step",
            "hypotheses": [dict(zip(channels, values.tolist(), strict=True)) for values in fractions],
        }
    if model.shaper is not None:
        facts = _innovation(model.shaper, channels, model.system.dt)
        return {**facts, "loop": _loop(model)} if loop else facts
    if model.noise_states is not None:
        return _noise(model, channels)
    return {"kind": "none", "reason": "innovations are not filtered and the noise is white"}


# ---- Φ --------------------------------------------------------------------------------------------------------------


def _innovation(shaper: InnovationShaper, channels: list[str], dt: float) -> dict[str, Any]:
    cascade = iir.Sections(*(coefficients.double() for coefficients in shaper.sections()))
    shared = cascade.a.ndim == 2
    cascades = [cascade] if shared else [iir.Sections(b, a) for b, a in zip(*cascade, strict=True)]
    grid = _grid(torch.cat([_finite(roots(item)) for item in cascades for roots in (iir.poles, iir.zeros)]))
    filters = [
        {
            "channel": name,
            "sections": [
                {"b": b.tolist(), "a": [1.0, *a.tolist()]}
                for b, a in zip(item.b.unbind(0), item.a.unbind(0), strict=True)
            ],
            "poles": _roots(iir.poles(item), dt),
            "zeros": _roots(iir.zeros(item), dt),
            "magnitude_db": _plain(20 * iir.response(item, grid).abs().log10()),
            "group_delay": _plain(group_delay(item, grid)),
        }
        for name, item in zip(["all"] if shared else channels, cascades, strict=True)
    ]
    return {"kind": "innovation", "dt": dt, "shared": shared, **_axis(grid, dt), "filters": filters}


def group_delay(cascade: iir.Sections, omega: Float[Tensor, " w"]) -> Float[Tensor, "*C w"]:
    """``-dφ/dω`` in samples; not finite at a zero on the unit circle, where the phase jumps.

    The delay of a polynomial ``p = Σ pᵢ z⁻ⁱ`` is ``Re(Σ i pᵢ z⁻ⁱ / p)``; that of a section is the delay of its
    numerator minus that of its denominator.

    >>> delay = iir.Sections(torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(1, 2))  # z⁻²
    >>> group_delay(delay, torch.tensor([0.0, 1.0]))
    tensor([2., 2.])
    """
    delay = torch.polar(torch.ones_like(omega), -omega)
    powers = torch.stack((torch.ones_like(delay), delay, delay**2), -1).mT
    order = torch.arange(3).to(omega)

    def polynomial_delay(polynomial: Tensor) -> Tensor:
        value = polynomial.to(powers.dtype) @ powers
        # at a zero the value is rounding error, with a meaningless phase
        nonzero = value.abs() > 8 * torch.finfo(omega.dtype).eps * polynomial.abs().sum(-1, keepdim=True)
        return torch.where(nonzero, ((polynomial * order).to(powers.dtype) @ powers / value).real, torch.nan)

    denominator = torch.cat((torch.ones_like(cascade.a[..., :1]), cascade.a), -1)
    return (polynomial_delay(cascade.b) - polynomial_delay(denominator)).sum(-2)


def _loop(model: FrequencyWeightedNeuralKalmanFilter) -> dict[str, Any]:
    try:
        loop = steady_state_loop(model)
    except (ConfigError, NumericalFailureError) as reason:
        return {"spectral_radius": None, "reason": str(reason)}
    radius = float(spectral_radius(loop.matrix.double()))
    return {"spectral_radius": radius, "reason": None, "gain": loop.gain.tolist(), "at": loop.at.tolist()}


def _roots(roots: Complex[Tensor, "k 2"], dt: float) -> list[dict[str, Any]]:
    """Position, radius and frequency of every root; zeros of a section with ``b0 = 0`` are not finite and left out."""
    rows = []
    for root in _finite(roots).tolist():
        fraction = abs(math.atan2(root.imag, root.real)) / math.pi
        rows.append({"at": [root.real, root.imag], "radius": abs(root), "frequency": fraction, "hz": fraction / 2 / dt})
    return rows


# ---- noise states ---------------------------------------------------------------------------------------------------


def _noise(model: FrequencyWeightedNeuralKalmanFilter, channels: list[str]) -> dict[str, Any]:
    """Oscillators and the nominal white floor; an encoder changes the floor over time, but not the oscillators."""
    dt = model.system.dt
    base = torch.diagonal(dense(model.system.measurement_noise()), dim1=-2, dim2=-1).double().sqrt()
    floor = nominal_noise(model)[1].double()
    found: list[list[tuple[float, float, float]]] = [[] for _ in channels]
    others = []
    for part in model.noise_parts():
        if isinstance(part, DriftStates):  # an oscillator at 0 Hz
            radius, std = torch.exp(-dt / part.seconds.double()).unsqueeze(-1), part.std.double().unsqueeze(-1)
            omega = torch.zeros_like(radius)
        elif isinstance(part, LineStates | ModeStates):
            # in one channel a shared mode is an oscillator whose phase does not show
            radius, omega = (item.double().expand(part.width, -1) for item in (part.radius(), part.frequency()))
            std = part.std.double()
        else:
            others.append(type(part).__name__)
            continue
        for channel, own in enumerate(torch.stack((radius, omega, std), -1).tolist(), part.channels.start):
            found[channel] += [(r, w, s) for r, w, s in own]
    if not any(found):
        return {"kind": "none", "reason": f"{', '.join(others)} have no fixed spectrum"}
    every = torch.tensor([(r, w) for lines in found for r, w, _ in lines], dtype=torch.float64)
    grid = _grid(torch.polar(*every.unbind(-1)))
    rows = []
    for i, name in enumerate(channels):
        table = torch.tensor(found[i], dtype=torch.float64).reshape(-1, 3)
        radius, omega, std = table.unbind(-1)
        coloured = oscillators.spectrum(radius, omega, std.square(), grid)
        rows.append(
            {
                "channel": name,
                "oscillators": [
                    {
                        "frequency": w / math.pi,
                        "hz": w / math.pi / 2 / dt,
                        "bandwidth_hz": width,
                        "radius": r,
                        "amplitude": a,
                        "std": s,
                    }
                    for w, width, r, a, s in zip(
                        omega.tolist(),
                        bandwidth_hz(radius, dt).tolist(),
                        radius.tolist(),
                        (std / base[i]).tolist(),
                        std.tolist(),
                        strict=True,
                    )
                ],
                "white_std": float(floor[i].sqrt()),
                "white_density": float(2 * dt * floor[i]),
                "density": _plain(2 * dt * (coloured + floor[i])),
            }
        )
    conditioned = model.encoder is not None
    return {"kind": "noise", "dt": dt, "conditioned": conditioned, **_axis(grid, dt), "channels": rows}


# ---- the grid -------------------------------------------------------------------------------------------------------


def _grid(roots: Complex[Tensor, " r"]) -> Float[Tensor, " w"]:
    """Radians per sample in ``[0, π]``: a uniform grid, refined around sharp roots that it would miss."""
    width = (1 - roots.abs()).abs().clamp_min(1e-6)
    reach = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0], dtype=torch.float64)
    around = roots.angle().abs().unsqueeze(-1) + width.unsqueeze(-1) * torch.cat((-reach, reach))
    # roots wider than the uniform grid need no refinement
    sharp = around[width * reach[-1] < 0.5].flatten()
    even = torch.linspace(0, math.pi, GRID + 1, dtype=torch.float64)
    return torch.cat((even, sharp[(sharp > 0) & (sharp < math.pi)])).unique()


def _axis(grid: Tensor, dt: float) -> dict[str, Any]:
    fraction = grid / math.pi
    return {"frequency": fraction.tolist(), "hz": (fraction / 2 / dt).tolist()}


def _finite(roots: Tensor) -> Tensor:
    flat = roots.flatten()
    return flat[flat.isfinite()]


def _plain(values: Tensor) -> list[float | None]:
    """Numbers, with None for values that are not finite, which JSON cannot represent."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
