"""Plots of estimates, errors, consistency, learned spectra and training, each as a matplotlib Figure.

Figures are created without pyplot: there is no global state, no window opens, and any thread may draw. matplotlib is
installed with the extra ``plot`` and imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.protocols import Records
from ..errors import ConfigError, ShapeError
from ..extras import need
from ..filters.base import Filter
from ..shapes import Float
from . import series
from ._style import COLOURS, DOTS, TRUTH, at_least, beside_plane, finish, line, log_scale, panels, roots
from .inspect import frequencies
from .labels import channel_names, stored_names, tangent_names, units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any

__all__ = ["error_over_time", "history", "nees_over_time", "noise_over_time", "save_all", "shaper", "trajectory"]

Tracks = Mapping[str, tuple[Tensor, Tensor | None]]
"""Estimates by name of the method: mean ``[B, T, n]``, and covariance ``[B, T, d, d]`` or None."""

Z95 = 1.959963984540054
"""Half-width of the 95 % interval of a normal distribution, in standard deviations."""
DEEPEST = 100.0
"""Range of the magnitude axis in dB: a zero on the unit circle would extend it to -300 dB, the rounding error."""


# ---- estimates ------------------------------------------------------------------------------------------------------


def trajectory(records: Records, tracks: Tracks, record: int = 0) -> Figure:
    """Truth, measurements and estimates of one record, with a panel for each component of the state.

    The first method is drawn with its 95 % band. A channel that measures a component of the state directly is drawn as
    dots in the panel of that component; other channels have separate panels, with the observation of the true state.

    Args:
        records: the records.
        tracks: means and covariances (or None) by method.
        record: which one.

    Returns:
        The figure.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=1, val=1, test=2).split.test
    >>> len(trajectory(records, {"truth": (records.truth, None)}).axes)
    3
    """
    _check(records, tracks)
    layout, truth = records.layout, records.truth[record].double()
    means = {name: mean[record].detach().double() for name, (mean, _) in tracks.items()}
    known = series.known(truth)
    first = next(iter(means.values()), truth)
    reference = torch.where(known.unsqueeze(-1), truth, first)
    direct = series.direct_channels(records.system, records.truth[record][known])
    shown = list(zip(stored_names(layout), units(layout), strict=True))
    indirect = [channel for channel in range(records.y.shape[-1]) if channel not in direct]
    groups = _groups(records, indirect)
    figure, axes = panels(len(shown) + len(groups))
    time = series.seconds(records.dt[record])
    y = torch.where(records.mask[record], records.y[record], torch.nan).double()

    lines = series.without_jumps(layout, reference, truth)
    for i, (name, unit) in enumerate(shown):
        axes[i].plot(time, lines[:, i], color=TRUTH, linewidth=2.4, label="truth", zorder=3)
        axes[i].set_ylabel(with_unit(name, unit))
    for channel, i in direct.items():
        dots = reference.clone()
        dots[:, i] = y[:, channel]
        dots = series.without_jumps(layout, reference, dots)[:, i]
        axes[i].plot(time, dots, ".", color=DOTS, markersize=4, label="measured", zorder=1)
    for k, (name, mean) in enumerate(means.items()):
        lines = series.without_jumps(layout, reference, mean)
        for i in range(len(shown)):
            axes[i].plot(time, lines[:, i], label=name, zorder=4, **line(k))
    name, cov = next(((name, cov) for name, (_, cov) in tracks.items()), ("", None))
    if cov is not None:
        lines = series.without_jumps(layout, reference, means[name])
        reach = Z95 * series.stored_std(layout, lines, cov[record].detach().double())
        for i, (low, high) in enumerate(zip((lines - reach).unbind(-1), (lines + reach).unbind(-1), strict=True)):
            limits = axes[i].get_ylim()  # a wide initial band must not dominate the scale
            axes[i].fill_between(
                time, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label=f"{name}, 95 %", zorder=2
            )
            axes[i].set_ylim(widened(limits, low, high))
    for (name, channels), axis in zip(groups.items(), axes[len(shown) :], strict=True):
        _measurements(axis, name, channels, records, record, time, y)
    finish(figure, axes, f"{records.name}, record {record}")
    return figure


def _groups(records: Records, channels: list[int]) -> dict[str, list[int]]:
    """Channels that measure no single component, grouped by part of the observation: one panel for each part."""
    if not channels:
        return {}
    if records.system is None:
        return {"measured": channels}
    owners = [part.name for part in records.system.observation_layout.parts for _ in range(part.size)]
    return {name: [i for i in channels if owners[i] == name] for name in dict.fromkeys(owners[i] for i in channels)}


def _measurements(
    axis: Axes, name: str, channels: list[int], records: Records, record: int, time: Tensor, y: Tensor
) -> None:
    names = channel_names(records.system, records.y.shape[-1])
    for k, channel in enumerate(channels):
        colour = COLOURS[-1 - k % len(COLOURS)]  # in reverse order, to differ from the colours of methods
        axis.plot(time, y[:, channel], ".", color=colour, markersize=4, label=f"{names[channel]} measured")
        if records.system is not None:
            with torch.no_grad():
                expected = records.system.observe(records.truth[record])[:, channel]
            axis.plot(time, expected, color=colour, linewidth=1.2, label=f"{names[channel]} of the truth")
    axis.set_ylabel(name)


def error_over_time(records: Records, tracks: Tracks) -> Figure:
    """Root mean square error of each step over records and dimensions (shortest arc), one line for each method.

    Args:
        records: the records.
        tracks: means and covariances (or None) by method.

    Returns:
        The figure.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=1, val=1, test=2).split.test
    >>> len(error_over_time(records, {"shifted": (records.truth + 1, None)}).axes)
    1
    """
    _check(records, tracks)
    figure, (axis,) = panels(1, height=3.6)
    time = series.seconds(records.dt)
    for k, (name, (mean, _)) in enumerate(tracks.items()):
        error = series.rmse_by_step(records.layout, mean, records.truth)
        axis.plot(time, _drawable(error), label=name + _gaps(error), **line(k))
    log_scale(axis)
    axis.set_ylabel("RMSE of the state")
    finish(figure, [axis], f"{records.name}: error of {len(records)} records")
    return figure


def nees_over_time(records: Records, tracks: Tracks) -> Figure:
    """NEES divided by the dimension, averaged over records: one if consistent, larger for an overconfident filter.

    The average over consistent records lies in the band with a probability of 95 %. Methods without a covariance are
    left out.

    Args:
        records: the records.
        tracks: means and covariances (or None) by method.

    Returns:
        The figure.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=1, val=1, test=2).split.test
    >>> cov = torch.eye(3).to(records.truth).expand(2, 100, 3, 3)
    >>> len(nees_over_time(records, {"shifted": (records.truth + 1, cov)}).axes)
    1
    """
    _check(records, tracks)
    figure, (axis,) = panels(1, height=3.6)
    time = series.seconds(records.dt)
    count = series.known(records.truth).sum(0)
    low, high = series.chi_square_band(count * records.layout.tangent_size)
    axis.fill_between(time, low, high, color=DOTS, alpha=0.3, linewidth=0, label="95 % if consistent")
    axis.axhline(1.0, color=TRUTH, linewidth=0.8)
    for k, (name, (mean, cov)) in enumerate(tracks.items()):
        if cov is None:  # still counted in k, so that methods have the same colour in every plot
            continue
        result = series.consistency(records.layout, mean, cov.detach(), records.truth)
        label = f"{name}: NEES/n {result.overall:.2f}, coverage {100 * result.coverage:.1f} %{_gaps(result.by_step)}"
        axis.plot(time, _drawable(result.by_step), label=label, **line(k))
    log_scale(axis)
    axis.set_ylabel("NEES / n")
    finish(figure, [axis], f"{records.name}: consistency of {len(records)} records", columns=1)
    return figure


# ---- learned response and noise -------------------------------------------------------------------------------------


def shaper(model: Filter) -> Figure | None:
    """Frequency response of a filter: ``Φ`` with its poles and zeros, or the spectral density of its noise.

    Args:
        model: the filter.

    Returns:
        The figure; None for a filter with white noise and without ``Φ``.

    >>> import fwnkf
    >>> one = torch.eye(1)
    >>> shaper(fwnkf.KF(F=one, H=one, Q=one, R=one)) is None
    True
    """
    facts = frequencies(model, loop=False)
    if facts["kind"] == "none":
        return None
    if facts["kind"] == "innovation":
        figure, left, plane = beside_plane(2)
        for k, response in enumerate(facts["filters"]):
            label = "all channels" if facts["shared"] else response["channel"]
            for axis, key in zip(left, ("magnitude_db", "group_delay"), strict=True):
                axis.plot(facts["hz"], _numbers(response[key]), label=label, **line(k))
            for kind, marker in (("poles", "x"), ("zeros", "o")):
                roots(plane, [root["at"] for root in response[kind]], marker, k, kind if k == 0 else None)
        left[0].set_ylabel("|Φ| (dB)")
        left[1].set_ylabel("group delay (samples)")
        at_least(left[0], 1.0)
        at_least(left[1], 0.5)
        low, high = left[0].get_ylim()
        left[0].set_ylim(max(low, high - DEEPEST), high)
        figure.suptitle("Learned innovation filter Φ", fontsize=10)
    else:
        figure, left, plane = beside_plane(1)
        for k, channel in enumerate(facts["channels"]):
            left[0].plot(facts["hz"], channel["density"], label=channel["channel"], **line(k))
            left[0].axhline(channel["white_density"], color=line(k)["color"], linewidth=0.8, linestyle=":", zorder=1)
            upper = [(c["radius"], math.pi * c["frequency"]) for c in channel["oscillators"]]
            poles = [(r * math.cos(w), r * math.sin(sign * w)) for r, w in upper for sign in (1, -1)]
            roots(plane, poles, "x", k, "poles" if k == 0 else None)
        log_scale(left[0])
        left[0].set_ylabel("noise density (unit²/Hz)")
        figure.suptitle("Learned measurement noise (dotted: its white part)", fontsize=10)
    figure.align_ylabels(left)
    plane.legend(loc="lower left", fontsize=7)
    left[0].legend(loc="best", fontsize=8)
    return figure


def noise_over_time(
    Q_diag: Float[Tensor, "B T d"], R_diag: Float[Tensor, "B T m"], records: Records, record: int = 0
) -> Figure:
    """Standard deviations of process and measurement noise that a filter used at each step of one record.

    A step of length zero has no process noise and is not drawn.

    Args:
        Q_diag, R_diag: variances, from :func:`fwnkf.filters.diagnostics.noise_over_time`.
        records: the records.
        record: which one.

    Returns:
        The figure.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=1, val=1, test=2).split.test
    >>> len(noise_over_time(torch.ones(2, 100, 3), torch.ones(2, 100, 2), records).axes)
    2
    """
    figure, axes = panels(2, height=2.4)
    time = series.seconds(records.dt[record])
    names = tangent_names(records.layout), channel_names(records.system, R_diag.shape[-1])
    for axis, variance, labels, kind in zip(axes, (Q_diag, R_diag), names, ("process", "measurement"), strict=True):
        std = variance[record].detach().double().sqrt()
        for k, label in enumerate(labels):
            axis.plot(time, std[:, k].masked_fill(std[:, k] <= 0, torch.nan), label=label, **line(k))
        log_scale(axis)
        axis.set_ylabel(f"{kind} noise (std)")
        axis.legend(loc="best", fontsize=7, ncols=min(len(labels), 4))
    finish(figure, axes, f"{records.name}, record {record}: noise model of each step", legend=False)
    return figure


def history(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Training curves.

    Args:
        rows: with ``step`` and any of ``loss``, ``val_mse``, ``val_nees`` and ``learning_rate``.

    Returns:
        The figure, with a panel for each.

    Raises:
        ConfigError: no row has any of them.

    >>> len(history([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]).axes)
    1
    """
    titles = {
        "loss": "training loss",
        "val_mse": "validation MSE",
        "val_nees": "validation NEES/n",
        "learning_rate": "learning rate",
    }
    curves = {key: [(row["step"], float(row[key])) for row in rows if row.get(key) is not None] for key in titles}
    curves = {key: curve for key, curve in curves.items() if curve}
    if not curves:
        raise ConfigError(f"nothing to plot: no row has a value for {', '.join(titles)}")
    figure, axes = panels(len(curves))
    for k, ((key, curve), axis) in enumerate(zip(curves.items(), axes, strict=True)):
        steps, values = zip(*curve, strict=True)
        # markers, because a single evaluation would not be visible as a line
        axis.plot(steps, values, color=COLOURS[k % len(COLOURS)], linewidth=1.4, marker="." if len(steps) < 40 else "")
        axis.set_ylabel(titles[key])
        finite = [value for value in values if math.isfinite(value)]
        if key == "val_nees":
            axis.axhline(1.0, color=TRUTH, linewidth=0.8)
        if key == "val_mse" and finite:
            best = values.index(min(finite))
            label = f"best: {values[best]:.4g} at step {steps[best]}"
            axis.plot(steps[best], values[best], "*", color=TRUTH, markersize=9, label=label)
            axis.legend(loc="upper right", fontsize=8)
        if finite and min(finite) > 0:  # log-likelihoods may be negative
            log_scale(axis)
    axes[-1].xaxis.set_major_locator(need("matplotlib.ticker", extra="plot").MaxNLocator(integer=True, min_n_ticks=1))
    finish(figure, axes, "Training", legend=False, xlabel="step")
    return figure


def save_all(folder: str | Path, figures: Mapping[str, Figure | None]) -> list[Path]:
    """Write every figure that is not None to ``folder/NAME.png``.

    Args:
        folder: where to; it is created.
        figures: by name.

    Returns:
        The files written.

    >>> import tempfile
    >>> figure = history([{"step": 1, "loss": 2.0}])
    >>> [path.name for path in save_all(tempfile.mkdtemp(), {"history": figure, "shaper": None})]
    ['history.png']
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        if figure is not None:
            written.append(target / f"{name}.png")
            figure.savefig(written[-1], dpi=120)
    return written


# ---- helpers ---------------------------------------------------------------------------------------------------------


def widened(limits: tuple[float, float], low: Tensor, high: Tensor) -> tuple[float, float]:
    """Limits widened for the band at most time steps, by at most half the range on either side."""
    finite = low.isfinite() & high.isfinite()
    if not bool(finite.any()):
        return limits
    half = (limits[1] - limits[0]) / 2
    floor, ceiling = float(low[finite].quantile(0.05)), float(high[finite].quantile(0.95))
    return max(min(limits[0], floor), limits[0] - half), min(max(limits[1], ceiling), limits[1] + half)


def _drawable(values: Tensor) -> Tensor:
    return values.masked_fill(values.isinf(), torch.nan)


def _gaps(values: Tensor) -> str:
    """Addition to the label of a line with steps that have no estimate."""
    count = int(values.isinf().sum())
    return f" (no estimate in {count} steps)" if count else ""


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _check(records: Records, tracks: Tracks) -> None:
    for name, (mean, cov) in tracks.items():
        expected = (*records.truth.shape[:2], records.layout.tangent_size, records.layout.tangent_size)
        if mean.shape != records.truth.shape or (cov is not None and cov.shape != expected):
            raise ShapeError(
                f"track {name!r}: mean {tuple(mean.shape)}, cov {None if cov is None else tuple(cov.shape)}; "
                f"records {records.name!r} need {tuple(records.truth.shape)} and {expected}"
            )
