"""Decompression of chunks from outside, with a bound on what they expand to."""

from __future__ import annotations

import bz2
import io

from ..errors import DataError
from ..extras import need

CHUNK_LIMIT = 1 << 28
"""Largest chunk in bytes after decompression."""
WINDOW_LIMIT = 1 << 27


def decompress(kind: str, data: bytes, size: int, where: str) -> bytes:
    """The content of a chunk, at most ``size`` bytes; of an incomplete one, what can be read.

    >>> decompress("bz2", bz2.compress(b"abc"), 3, "here")
    b'abc'
    """
    if kind in ("", "none"):
        return data[:size]
    if size > CHUNK_LIMIT:
        raise DataError(f"{where}: a chunk of {size:,} bytes; at most {CHUNK_LIMIT:,} are read")
    try:
        if kind == "zstd":
            reader = need("zstandard", "logs").ZstdDecompressor(max_window_size=WINDOW_LIMIT)
            with reader.stream_reader(io.BytesIO(data)) as stream:
                return bytes(stream.read(size))
        if kind == "lz4":
            return bytes(need("lz4.frame", "logs").LZ4FrameDecompressor().decompress(data, max_length=size))
        if kind == "bz2":
            return bz2.BZ2Decompressor().decompress(data, max_length=size)
    except (OSError, EOFError, ValueError, RuntimeError, MemoryError) as error:
        raise DataError(f"{where}: a chunk cannot be decompressed ({kind}: {str(error)[:80]})") from error
    except need("zstandard", "logs").ZstdError as error:
        raise DataError(f"{where}: a chunk cannot be decompressed ({kind}: {str(error)[:80]})") from error
    raise DataError(f"{where}: chunks compressed with {kind[:40]!r} are not read; write them with zstd, lz4 or none")
