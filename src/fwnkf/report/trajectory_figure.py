"""The figure of :meth:`fwnkf.Trajectory.plot`: means with their 95 % bands, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.trajectory import Trajectory
from ..errors import ConfigError, ShapeError
from ..registry import FIGURES
from . import series
from ._style import COLOURS, DOTS, finish, line, panels
from .labels import stored_names, units
from .plots import Z95, widened, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any


@FIGURES.register("trajectory")
def draw_trajectory(track: Trajectory, y: Tensor | None, time: Any, record: int) -> Figure:
    """See :meth:`fwnkf.Trajectory.plot`."""
    if track.mean is None or track.cov is None:
        raise ConfigError("a plot needs means and covariances: run the filter without outputs=…, or with both")
    mean, cov = (torch.as_tensor(item).detach().cpu().double() for item in (track.mean, track.cov))
    if not 0 <= record < len(mean):
        raise ShapeError(f"record = {record}: the trajectory has {len(mean)}, counted from 0")
    layout = Layout.euclidean(mean.shape[-1]) if track.layout is None else track.layout
    lines = series.without_jumps(layout, mean[record], mean[record])
    reach = Z95 * series.stored_std(layout, lines, cov[record])
    steps = len(lines)
    at = range(steps) if time is None else time
    if len(at) != steps:
        raise ShapeError(f"time has {len(at)} values, the trajectory {steps} steps")
    dots = None if y is None else _measured(track, y, record)
    names = stored_names(layout)
    channels = [] if dots is None or track.measured is None else stored_names(track.measured)
    apart = [index for index, name in enumerate(channels) if name not in names]
    figure, axes = panels(len(names) + len(apart))
    for index, (axis, name, unit) in enumerate(zip(axes, names, units(layout), strict=False)):
        if dots is not None and name in channels:
            points = lines.clone()
            points[:, index] = dots[:, channels.index(name)]
            points = series.without_jumps(layout, lines, points)
            axis.plot(at, points[:, index], ".", color=DOTS, markersize=4, label="measured", zorder=1)
        _band(axis, at, lines[:, index], reach[:, index])
        axis.set_ylabel(with_unit(name, unit))
    for index, axis in zip(apart, axes[len(names) :], strict=True):
        assert dots is not None
        _predicted(axis, at, track, dots[:, index], record, index)
        axis.set_ylabel(channels[index])
    finish(figure, axes, f"record {record}, {steps:,} steps", xlabel="step" if time is None else "time")
    return figure


def _band(axis: Axes, at: Any, mean: Tensor, reach: Tensor) -> None:
    axis.plot(at, mean, label="estimate", zorder=3, **line(0))
    limits = axis.get_ylim()  # a wide initial band must not dominate the scale
    low, high = mean - reach, mean + reach
    axis.fill_between(at, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label="95 %", zorder=2)
    axis.set_ylim(widened(limits, low, high))


def _predicted(axis: Axes, at: Any, track: Trajectory, dots: Tensor, record: int, channel: int) -> None:
    """A channel that is no component of the state: what was measured, and what the filter predicted."""
    axis.plot(at, dots, ".", color=DOTS, markersize=4, label="measured", zorder=1)
    if any(item is None for item in (track.innovation, track.innovation_cov)):  # of a run with outputs=…
        return
    innovation, variance = (
        torch.as_tensor(item).detach().cpu().double()
        for item in (track.innovation[record, :, channel], track.innovation_cov[record, :, channel, channel])
    )
    axis.plot(at, dots - innovation, label="predicted", zorder=3, **line(1))
    reach = Z95 * variance.clamp_min(0).sqrt()
    axis.fill_between(
        at, dots - innovation - reach, dots - innovation + reach, color=COLOURS[1], alpha=0.18, linewidth=0,
        label="95 % of a measurement", zorder=2,
    )  # fmt: skip


def _measured(track: Trajectory, y: Tensor, record: int) -> Tensor:
    """Measurements of a record, NaN where the run had none."""
    values = torch.as_tensor(y).detach().cpu().double()
    wanted = None if track.innovation is None else tuple(track.innovation.shape)
    if track.measured is None or tuple(values.shape) != (wanted or tuple(values.shape)):
        raise ShapeError(
            f"y has shape {tuple(values.shape)}, and the measurements of this run {wanted}; leave y out for a filter "
            "that preprocesses raw samples or has a latent space"
        )
    found = values[record]
    if track.weight is None:
        return found
    return torch.where(torch.as_tensor(track.weight)[record].cpu() > 0, found, torch.nan)
