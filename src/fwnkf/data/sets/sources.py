"""Downloads with pooch, which checks the checksum, retries, and renames a file only when it is complete.

pooch offers neither mirrors, nor resuming a partial download, nor a limit on the size; these are added here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...extras import need

TIMEOUT = 30.0
"""Seconds without a byte from the server."""
MAX_BYTES = 4 << 30
RETRIED = (408, 416, 425, 429)
"""Client errors after which another attempt may succeed; 416: the partial file does not fit the one on the server."""

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and the total number of bytes, if the server reports it."""


def download(
    urls: Sequence[str],
    target: str | Path,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
    attempts: int = 3,
    max_bytes: int = MAX_BYTES,
    manual: str = "",
) -> Path:
    """Download a file from the first mirror that provides it; returns its path.

    An existing file is kept if its checksum is correct or not known. A partial download is kept as ``<name>.part`` and
    resumed, by another mirror too, if the checksum is known: otherwise a mixture of two versions would go unnoticed.

    Args:
        attempts: number of attempts per mirror.
        manual: instructions for a manual download, added to the error if every mirror fails.
    """
    pooch = need("pooch", extra="data")
    pooch.get_logger().setLevel("WARNING")  # progress is reported to the caller
    target = Path(target)
    path = target.with_name(f"{target.name}.part")

    def fetch(url: str, output_file: str, _: Any) -> None:
        with path.open("wb" if sha256 is None else "ab") as file:
            part = _Part(file, url, max_bytes, progress, file.tell())
            headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={part.size}-"} if part.size else {})}
            http = pooch.HTTPDownloader(
                chunk_size=1 << 16, timeout=timeout, headers=headers, hooks={"response": part.begin}
            )
            http(url, part, None)
        os.replace(path, output_file)

    failures = []
    for url in urls:
        cache = pooch.create(
            target.parent, base_url="", registry={target.name: sha256}, urls={target.name: url},
            retry_if_failed=attempts - 1,
        )  # fmt: skip
        try:
            return Path(cache.fetch(target.name, downloader=fetch))
        except (OSError, ValueError) as error:  # the errors of requests are OSErrors
            failures.append(f"{url}: {error}")
    if path.is_file() and (sha256 is None or path.stat().st_size == 0):
        path.unlink()
    raise DataError(
        "\n  ".join([f"{target} could not be downloaded:", *(failures or ["no URL is known"])])
        + (f"\n{manual}" if manual else "\nCheck the network connection, or copy the file there manually.")
    )


@dataclass
class _Part:
    """The output file of one HTTP request: appends to a partial download, and limits and reports its size."""

    file: Any
    url: str
    limit: int
    progress: Progress | None
    size: int
    total: int | None = None

    def begin(self, response: Any, **_: Any) -> None:
        """Check status and headers of a response, before its body is read; pooch does not retry after an OSError."""
        if self.url.startswith("https:") and not response.url.startswith("https:"):
            raise OSError(f"redirected from https to {response.url[:80]}")
        if 400 <= response.status_code < 500 and response.status_code not in RETRIED:
            raise OSError(f"the server responded {response.status_code} {response.reason}")
        if response.status_code in (200, 416):  # not 206: the server sends the whole file
            self._clear()
        length = response.headers.get("Content-Length", "")
        self.total = self.size + int(length[:20]) if length.isascii() and length.isdigit() else None
        if self.total is not None and self.total > self.limit:
            raise OSError(f"the server offers {self.total:,} bytes; the limit is {self.limit:,}")

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self.limit:
            self._clear()
            raise OSError(f"the server sends more than the limit of {self.limit:,} bytes")
        self.file.write(chunk)
        if self.progress is not None:
            self.progress(self.size, self.total)

    def flush(self) -> None:
        self.file.flush()

    def _clear(self) -> None:
        self.file.truncate(0)
        self.size = 0
