"""Downloads that can be trusted: resumed after a cut, checked, from the first mirror that answers, then renamed.

Only ``http`` and ``https``, by the standard library. Nothing appears under the final name before its size and checksum
are right; what was fetched of a file is kept as ``<name>.part`` and gone on from the next time.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from ._files import file_digest
from .archives import extract

__all__ = ["Progress", "download", "extract"]

TIMEOUT = 30.0
MAX_BYTES = 64 << 30
STALL_SECONDS = 60.0
STALL_BYTES = 1 << 14
"""Less than this in ``STALL_SECONDS`` counts as a dead connection."""
_PIECE = 1 << 16

Progress = Callable[[int, int | None], None]
"""Called with the bytes there are and the bytes there will be, if the server says."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """A redirection must not lead from https to anything less."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError(f"redirected from https to {newurl[:80]}; refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _CutError(Exception):
    """The connection ended early; going on from where it stopped may help."""


class _RefusedError(Exception):
    """This mirror has not got what is wanted; another may."""


def download(
    urls: Sequence[str],
    target: str | Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
    attempts: int = 4,
    pause: float = 1.0,
    max_bytes: int = MAX_BYTES,
    manual: str = "",
) -> Path:
    """Fetch a file from the first of several mirrors that has it whole; returns its path.

    A file that is there already is kept if its size and checksum are right (or not known), and fetched anew otherwise.

    Args:
        sha256: the checksum the file must have.
        size: the number of bytes it must have.
        attempts: how often one mirror may cut the connection before the next is tried.
        pause: seconds to wait before asking again, longer each time.
        manual: what a user can do by hand, said if every mirror fails.
    """
    target = Path(target)
    if target.is_file() and size in (None, target.stat().st_size) and sha256 in (None, file_digest(target)):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to {target.parent}: {error}") from error
    part = target.with_name(target.name + ".part")
    failures = []
    for url in urls:
        if not url.lower().startswith(("http://", "https://")):
            failures.append(f"{url}: neither http nor https; refused")
            continue
        try:
            _from_mirror(url, part, sha256, size, progress, timeout, attempts, pause, max_bytes)
            os.replace(part, target)
            _state_of(part).unlink(missing_ok=True)
            return target
        except _RefusedError as error:
            failures.append(f"{url}: {error}")
        except OSError as error:  # the disk: what the network does has become one of the two above
            raise DataError(f"cannot write {part}: {error}") from error
    raise DataError(
        f"{target.name} could not be fetched:\n  " + "\n  ".join(failures or ["no address is known"])
        + ("\n" + manual if manual else "\nCheck the connection, or put the file there by hand.")
    )  # fmt: skip


def _from_mirror(
    url: str, part: Path, sha256: str | None, size: int | None, progress: Progress | None, timeout: float,
    attempts: int, pause: float, max_bytes: int,
) -> None:  # fmt: skip
    """Fill the part file from one mirror, however often it is cut, and check it."""
    last = "no answer"
    for attempt in range(max(1, attempts)):
        time.sleep(pause * attempt)
        resumed = _resumable(part, url, sha256)
        try:
            _fetch(url, part, size, progress, timeout, max_bytes)
        except _CutError as cut:
            last = str(cut)
            continue
        except urllib.error.HTTPError as error:
            error.close()
            last = f"the server answers {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 425, 429):
                break
            continue
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            last = f"cannot be reached ({error})"
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if not isinstance(reason, http.client.HTTPException | TimeoutError | ConnectionResetError):
                break  # no such host, nobody there, no such address: asking again will not help
            continue
        found = part.stat().st_size
        wrong = f"{found:,} bytes, not {size:,}" if size is not None and found != size else ""
        if not wrong and sha256 is not None and (digest := file_digest(part)) != sha256:
            wrong = f"SHA-256 {digest}, not {sha256}"
        if not wrong:
            return
        _forget(part)
        last = f"the file is another or damaged ({wrong})"
        if not resumed:  # fetched in one go: this mirror has another file
            break
    raise _RefusedError(last)


def _fetch(url: str, part: Path, size: int | None, progress: Progress | None, timeout: float, max_bytes: int) -> None:
    have = part.stat().st_size if part.is_file() else 0
    if size is not None and have == size:
        return
    headers = {"User-Agent": "fwnkf (dataset download)", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        tag = _read_state(part).get("tag")
        if tag:
            headers["If-Range"] = tag
    opener = urllib.request.build_opener(_NoDowngrade)
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing beyond what is there: it is whole, or another file
            error.close()
            if error.headers.get("Content-Range", "").strip() == f"bytes */{have}":
                return
            _forget(part)
            raise _CutError("what was fetched before does not fit the file; starting anew") from error
        raise
    except ValueError as error:
        raise urllib.error.URLError(f"no such address: {error}") from error
    with response:
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            _forget(part)
            raise _CutError("the server goes on from another place; starting anew")
        if response.status == 200:
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None
        limit = max_bytes if size is None else min(size, max_bytes)
        if total is not None and total > limit:
            raise _RefusedError(f"the server offers {total:,} bytes, more than the {limit:,} there should be")
        tag = response.headers.get("ETag", "")
        _state_of(part).write_text(json.dumps({"url": url, "tag": tag if tag.startswith('"') else ""}), "utf-8")
        _pour(response, part, have, total, limit, progress)


def _pour(response: Any, part: Path, have: int, total: int | None, limit: int, progress: Progress | None) -> None:
    since, before = time.monotonic(), have
    with part.open("ab" if have else "wb") as file:
        while True:
            try:
                piece = response.read1(_PIECE)  # what has arrived, so that a trickle does not block for ever
            except (http.client.HTTPException, OSError) as error:
                raise _CutError(f"the connection was cut after {have:,} bytes ({error!r})") from error
            if not piece:
                break
            have += len(piece)
            if have > limit:
                _forget(part)
                raise _RefusedError(f"the server sends more than {limit:,} bytes")
            file.write(piece)
            if progress is not None:
                progress(have, total)
            if time.monotonic() - since > STALL_SECONDS:
                if have - before < STALL_BYTES:
                    raise _CutError(f"the connection gives less than {STALL_BYTES} bytes in {STALL_SECONDS:g} s")
                since, before = time.monotonic(), have
    if total is not None and have < total:
        raise _CutError(f"the connection was cut after {have:,} of {total:,} bytes")


def _resumable(part: Path, url: str, sha256: str | None) -> bool:
    """Whether what is there may be gone on from; if nothing could tell a mixture of two files apart, it is dropped."""
    if not part.is_file() or part.stat().st_size == 0:
        return False
    state = _read_state(part)
    if sha256 is None and not (state.get("url") == url and state.get("tag")):
        _forget(part)
        return False
    if state.get("url") != url:  # another mirror's tag means nothing here; the checksum will tell
        _state_of(part).unlink(missing_ok=True)
    return True


def _state_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_state(part: Path) -> dict[str, str]:
    try:
        state = json.loads(_state_of(part).read_bytes()[:65536])
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: value for key, value in state.items() if isinstance(value, str)} if isinstance(state, dict) else {}


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _state_of(part).unlink(missing_ok=True)
