"""Samples that arrive in packets with one time stamp each, on a time of their own."""

from __future__ import annotations

import numpy as np

from .log import Array, Stream

GAP = 1.5
"""Packets further apart than this many usual distances are not neighbours."""


def true_step(stamps: Array, counts: Array) -> float | None:
    """Seconds between samples by a line through the stamps of packets over the number of samples, without the gaps.

    Ten samples a packet, one sample every 2 ms, and a lost packet:

    >>> stamps = 0.02 * np.array([0.0, 1.0, 2.0, 4.0, 5.0])
    >>> round(true_step(stamps, np.full(5, 10.0)), 9)
    0.002
    """
    if len(stamps) < 3:
        return None
    steps = np.diff(stamps) / np.maximum(counts[1:], 1)
    positive = steps[steps > 0]
    if len(positive) == 0:
        return None
    usual = float(np.median(positive))
    whole = (steps > 0) & (steps < GAP * usual)
    bounds = np.concatenate([[0], np.flatnonzero(~whole) + 1, [len(stamps)]])
    slopes, weights = [], []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if last - first < 3:
            continue
        index = np.cumsum(counts[first:last])
        centred = index - index.mean()
        spread = float(centred @ centred)
        if spread > 0:
            slopes.append(float(centred @ (stamps[first:last] - stamps[first:last].mean())) / spread)
            weights.append(spread)
    return float(np.average(slopes, weights=weights)) if slopes else usual


def expand(name: str, stamps: Array, values: Array, counts: Array, nominal: Array) -> Stream:
    """Samples of FIFO packets: ``values`` is ``[packets, samples, axes]``, the stamp is that of the last sample.

    The step between samples comes from the stamps; the nominal one of the driver may be wrong by per cents.
    """
    most = values.shape[1]
    sizes = np.clip(np.nan_to_num(counts), 0, most)
    usual = float(np.median(nominal[np.isfinite(nominal)])) if np.isfinite(nominal).any() else 0.0
    fitted = true_step(stamps, sizes)
    step = fitted if fitted is not None else usual
    index = np.arange(most)
    present = index < sizes[:, None]
    time = stamps[:, None] - (sizes[:, None] - 1 - index) * step
    columns = {axis: values[..., place][present] for place, axis in enumerate("xyz")}
    notes: tuple[str, ...] = ()
    if usual > 0 and step > 0 and abs(usual / step - 1) > 0.005:
        notes = (
            f"{name}: the field dt says {1 / usual:.0f} Hz, the time stamps of the packets {1 / step:.0f} Hz; the time "
            f"stamps are used, the nominal rate would move every line by {100 * abs(step / usual - 1):.1f} %",
        )
    return Stream(name, time[present], columns, nominal=usual or None, notes=notes)
