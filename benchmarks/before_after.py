"""Figure that compares filters by the spectra of their innovations and by their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fwnkf.errors import ConfigError
from fwnkf.metrics.spectrum import Spectrum
from fwnkf.report._style import DOTS, TRUTH, beside, finish, line, log_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any


def before_after(
    spectra: Mapping[str, Spectrum],
    errors: Mapping[str, Mapping[str, float]],
    *,
    title: str = "",
    error_title: str = "errors",
    error_label: str = "RMSE",
    bands: Sequence[float] = (),
) -> Figure:
    """Left: spectra of normalised innovations (frequencies in Hz). Right: errors of each quantity.

    Densities are relative to white noise of unit variance, ``S(f) · rate / 2``, averaged over channels: a filter with
    the correct model is at one. ``errors`` are by method and quantity, ``bands`` are frequencies to mark. A method has
    the same colour in both panels; a method without innovations, such as a low-pass filter, has errors only.
    """
    if not spectra or not set(spectra) <= set(errors):
        raise ConfigError(f"every method with a spectrum ({', '.join(spectra)}) needs errors ({', '.join(errors)})")
    quantities = list(next(iter(errors.values())))
    if any(list(values) != quantities for values in errors.values()):
        raise ConfigError(f"all methods must have errors of the same quantities: {', '.join(quantities)}")
    figure, left, right = beside()
    colours = {name: line(k)["color"] for k, name in enumerate(reversed(list(errors)))}
    _draw_spectra(left, spectra, colours, bands)
    width = 0.8 / len(errors)
    for k, (name, values) in enumerate(errors.items()):
        positions = [i + width * (k - (len(errors) - 1) / 2) for i in range(len(quantities))]
        right.bar(positions, list(values.values()), 0.92 * width, color=colours[name], label=name)
    right.set_xticks(range(len(quantities)), quantities)
    right.grid(False, axis="x")
    right.set_ylabel(error_label)
    right.set_title(error_title, fontsize=9)
    finish(figure, [left, right], title, legend=False)
    left.set_xlabel("frequency (Hz)", fontsize=9)
    right.set_xlabel("")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    return figure


def _draw_spectra(
    axis: Axes, spectra: Mapping[str, Spectrum], colours: Mapping[str, str], bands: Sequence[float]
) -> None:
    axis.axhline(1.0, color=TRUTH, linewidth=0.9, linestyle="--", zorder=4)
    for name, (frequency, density) in spectra.items():
        flat = density.detach().double().mean(-1) * float(frequency[-1])
        # without the first two bins, which the removed mean affects, and the last, which has half the power
        axis.plot(frequency[2:-1], flat[2:-1], color=colours[name], linewidth=1.5, zorder=3)
    log_scale(axis)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.1)
    for band in bands:
        axis.axvline(band, ymax=0.92, color=DOTS, linewidth=0.8, linestyle=":", zorder=1)
        axis.text(band, 1.0, f"{band:.0f}", transform=axis.get_xaxis_transform(), ha="center", va="top", fontsize=8)
    axis.set_ylabel("density (white noise = 1)")
    axis.set_title("spectrum of normalised innovations", fontsize=9)
