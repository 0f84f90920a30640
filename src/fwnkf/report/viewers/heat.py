"""A spectrogram as an image: colours, and PNG without a library for images."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from ...diagnosis.result import Waterfall
from ..spectrogram import raster
from .scene import Picture

STOPS = (
    (0, 0, 4),
    (40, 11, 84),
    (101, 21, 110),
    (159, 42, 99),
    (212, 72, 66),
    (245, 125, 21),
    (250, 193, 39),
    (252, 255, 164),
)
"""Colours from low to high, evenly apart: dark, purple, orange, light."""
SMALLEST = (240, 480)
"""Rows and columns of an image; smaller ones are enlarged, because viewers blur what they enlarge."""


def picture(result: Waterfall, name: str) -> Picture:
    """The spectrogram of a channel, with the tracks of possible sources."""
    levels, extent = raster(result)
    finite = levels[np.isfinite(levels)]
    low, high = (float(np.quantile(finite, q)) for q in (0.2, 0.999)) if finite.size else (0.0, 1.0)
    share = np.clip((np.nan_to_num(levels, nan=low) - low) / max(high - low, 1e-9), 0.0, 1.0)
    image = coloured(share)[::-1]
    times = [max(1, -(-wanted // given)) for wanted, given in zip(SMALLEST, image.shape, strict=False)]
    image = np.ascontiguousarray(image.repeat(times[0], 0).repeat(times[1], 1))
    title = f"{result.channel} ({result.unit}/√Hz, {10**low:.2g} to {10**high:.2g})"
    return Picture(f"spectrogram/{name}", title, image, extent, dict(result.tracks))


def coloured(share: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Numbers from 0 to 1 as colours.

    >>> coloured(np.array([[0.0, 1.0]])).tolist()
    [[[0, 0, 4], [252, 255, 164]]]
    """
    at = np.linspace(0.0, 1.0, len(STOPS))
    parts = [np.interp(share, at, [stop[k] for stop in STOPS]) for k in range(3)]
    return np.round(np.stack(parts, -1)).astype(np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    """An image ``[rows, columns, 3]`` as PNG.

    >>> png(np.zeros((2, 3, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    rows, columns = image.shape[:2]
    lines = np.zeros((rows, 1 + 3 * columns), np.uint8)  # the first byte of a line says that it is not filtered
    lines[:, 1:] = image.reshape(rows, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines.tobytes(), 6))
        + chunk(b"IEND", b"")
    )
