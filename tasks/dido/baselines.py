"""Every method that stands beside the filter in ``dido``, tuned on the training flights alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter
from fwnkf.identify import Spectra, VibrationModel, VibrationOptions, cross_spectra, fit_model
from fwnkf.shapes import Bool, Float
from tasks.dido import classical, notch
from tasks.dido.fir import apply_fir, choose_ridge, fit_fir
from tasks.dido.protocol import AXES, RATE

TAPS, LENGTHS = 100, (100, 200)
"""Of the FIR filter of one axis, and those of the FIR filter of six axes among which flights left out choose."""
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
OPTIONS = VibrationOptions(modes=12, oscillators=1, truth_weight=5.0, start="uniform")
"""Of the filter; the number of modes and the weight were chosen on two of the training flights, left out in turn."""
KALMAN: dict[str, VibrationOptions] = {
    # with the weight of the filter its likelihood makes it follow the vibration; with this one it is near its best
    "kf_without_noise_states": replace(OPTIONS, modes=0, oscillators=0, truth_weight=30.0),
    "kf_three_oscillators_per_axis": replace(OPTIONS, modes=0, oscillators=3, truth_weight=0.0),
}
CLASSICAL = classical.METHODS
METHODS = (*CLASSICAL, "notch_tracked", "fir_one_axis", "fir_six_axes", *KALMAN)


class Estimate(NamedTuple):
    """Signals, and where a method states its uncertainty what is needed to check it."""

    mean: Float[Tensor, "N T 6"]
    cov: Float[Tensor, "N T 6 6"] | None = None
    innovation: Float[Tensor, "N T 6"] | None = None
    innovation_cov: Float[Tensor, "N T 6 6"] | None = None


def tune(y: Float[Tensor, "N T 6"], truth: Float[Tensor, "N T 6"], spectra: Spectra) -> dict[str, Any]:
    """Whatever the methods need besides the training flights, as plain values."""
    static = {axis: classical.tune(spectra, i) for i, axis in enumerate(AXES)}
    cutoffs = {axis: math.exp(static[axis]["low_pass_tuned"][0]) for axis in AXES}
    tried = {taps: choose_ridge(y, truth, taps=taps, ridges=RIDGES) for taps in LENGTHS}
    taps = min(tried, key=lambda length: min(tried[length].errors.values()))
    single = {
        axis: choose_ridge(y[..., i : i + 1], truth[..., i : i + 1], taps=TAPS, ridges=RIDGES).ridge
        for i, axis in enumerate(AXES)
    }
    plain = fit_model(spectra, RATE, KALMAN["kf_without_noise_states"])
    options = KALMAN["kf_three_oscillators_per_axis"]
    alone = [cross_spectra(y[..., i : i + 1]) for i in range(len(AXES))]
    per_axis = side_by_side([fit_model(one, RATE, options) for one in alone], options)
    return {
        "classical": static,
        "notch_tracked": notch.tune(y, truth, cutoffs),
        "fir": {
            "taps": taps, "ridge": tried[taps].ridge, "one": single,
            "errors": {str(length): min(each.errors.values()) for length, each in tried.items()},
        },
        "kf_without_noise_states": described(plain, spectra.scale),
        "kf_three_oscillators_per_axis": described(per_axis, torch.cat([one.scale for one in alone])),
    }  # fmt: skip


def fir_weights(tuned: Mapping[str, Any], y: Tensor, truth: Tensor) -> dict[str, Float[Tensor, "k 6 6"]]:
    """Both FIR filters, from the training flights with the ridge that was chosen."""
    chosen = tuned["fir"]
    alone = torch.zeros(TAPS, len(AXES), len(AXES), dtype=y.dtype)
    for i, axis in enumerate(AXES):
        part = slice(i, i + 1)
        alone[:, part, part] = fit_fir(y[..., part], truth[..., part], taps=TAPS, ridge=chosen["one"][axis])
    return {"fir_one_axis": alone, "fir_six_axes": fit_fir(y, truth, taps=chosen["taps"], ridge=chosen["ridge"])}


def estimate(
    method: str, tuned: Mapping[str, Any], weights: Mapping[str, Tensor], y: Float[Tensor, "N T 6"]
) -> Estimate:
    """A method on records without gaps, at the nominal step; Kalman filters with the gains of their steady state."""
    if method in CLASSICAL:
        return Estimate(classical.estimates(tuned["classical"], method, y))
    if method == "notch_tracked":
        return Estimate(notch.estimate(tuned[method], y))
    if method in KALMAN:
        model, scale = restored(method, tuned)
        return Estimate(*model.run(y, scale))
    return Estimate(apply_fir(weights[method], y))


def estimate_with_gaps(
    method: str,
    tuned: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    y: Tensor,
    mask: Bool[Tensor, "N T 6"],
    dt: Tensor | None,
) -> Tensor:
    """A method on records with gaps or irregular steps: Kalman filters get ``mask`` and ``dt``, others hold a value."""
    if method in KALMAN:
        model, scale = restored(method, tuned)
        return run_filter(model.to_filter(scale), y, mask, dt)
    return estimate(method, tuned, weights, hold(y, mask)).mean


@torch.no_grad()
def run_filter(model: Filter, y: Tensor, mask: Tensor | None = None, dt: Tensor | None = None) -> Tensor:
    """The signals of a filter, in pieces for the sake of memory."""
    parts: list[Tensor] = []
    pieces(model, y, mask, dt, lambda track: parts.append(track.mean[..., : len(AXES)].clone()))
    return torch.cat(parts, 1)


@torch.no_grad()
def pieces(
    model: Filter, y: Tensor, mask: Tensor | None, dt: Tensor | None, use: Callable[[Any], None], size: int = 400
) -> None:
    """Run a filter over whole records, piece by piece, and hand the trajectory of each on."""
    state = None
    for first in range(0, y.shape[1], size):
        part = slice(first, first + size)
        masked, steps = (None if item is None else item[:, part] for item in (mask, dt))
        track = model.run(y[:, part], mask=masked, dt=steps, state=state).raise_for_status()
        state = track.state
        use(track)


def hold(y: Float[Tensor, "N T c"], mask: Bool[Tensor, "N T c"]) -> Float[Tensor, "N T c"]:
    """The last value that was measured; zero before the first.

    >>> hold(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[[True], [False], [True]]])).flatten().tolist()
    [1.0, 1.0, 3.0]
    """
    steps = torch.arange(y.shape[1])[:, None].expand(y.shape)
    last = torch.where(mask, steps, -1).cummax(1).values
    return torch.where(last >= 0, y.gather(1, last.clamp_min(0)), 0.0)


# ---- Kalman filters as plain values ---------------------------------------------------------------------------------


def described(model: VibrationModel, scale: Tensor) -> dict[str, Any]:
    return {"scale": scale.tolist(), **{name: value.tolist() for name, value in model.state_dict().items()}}


def restored(method: str, tuned: Mapping[str, Any]) -> tuple[VibrationModel, Tensor]:
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in tuned[method].items()}
    scale = values.pop("scale")
    model = VibrationModel(len(AXES), RATE, KALMAN[method])
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: value.reshape(shapes[name]) for name, value in values.items()})
    return model, scale


@torch.no_grad()
def side_by_side(models: list[VibrationModel], options: VibrationOptions) -> VibrationModel:
    """Models of one channel each as one model of all channels, without coupling."""
    m = len(models)
    joint = VibrationModel(m, models[0].rate, options)
    for parameter in joint.parameters():
        parameter.zero_()
    for i, model in enumerate(models):
        at = torch.tensor([i, i + m])
        for name in ("leak", "log_drive"):
            getattr(joint, name)[at] = getattr(model, name)
        for name in ("coupling", "drive"):
            getattr(joint, name)[at.unsqueeze(-1), at] = getattr(model, name)
        for name in ("log_white", "own_frequency", "own_damping", "own_amplitude"):
            getattr(joint, name)[i] = getattr(model, name)[0]
    return joint
