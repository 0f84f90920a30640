"""In which order files are filtered: a file after all that hold earlier samples of one of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import DataError
from .reading import Survey


def waves(surveys: Mapping[str, Survey | None]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Files in groups, each of which needs the groups before it only, and the files each one goes on from.

    >>> day = lambda *times: Survey(np.array(["a", "b"], object), np.array(times), np.array(times) + 0.5, 2)
    >>> groups, before = waves({"monday": day(1.0, 1.0), "sunday": day(0.0, 0.0)})
    >>> groups, before["monday"]
    ([['sunday'], ['monday']], ['sunday'])
    """
    files = sorted(surveys)
    known = [(place, item) for place, name in enumerate(files) if (item := surveys[name]) is not None]
    before: dict[int, set[int]] = {place: set() for place in range(len(files))}
    if known:
        devices = np.concatenate([item.device for _, item in known]).astype(str)
        file = np.concatenate([np.full(len(item.device), place) for place, item in known])
        first = np.concatenate([item.first for _, item in known])
        _, codes = np.unique(devices, return_inverse=True)
        order = np.lexsort((file, first, codes))
        same = codes[order][1:] == codes[order][:-1]
        pairs = np.stack([file[order][:-1][same], file[order][1:][same]], 1)
        for earlier, later in np.unique(pairs, axis=0).tolist():
            before[later].add(earlier)
    groups: list[list[str]] = []
    waiting = dict(before)
    while waiting:
        free = [place for place, earlier in waiting.items() if not earlier & waiting.keys()]
        if not free:
            names = ", ".join(files[place] for place in list(waiting)[:4])
            raise DataError(
                f"{names}: each holds samples of a device before and of another one after those of the others, so that "
                "no order is right; write each device's samples of one time into one file"
            )
        groups.append([files[place] for place in free])
        for place in free:
            del waiting[place]
    return groups, {files[place]: [files[item] for item in sorted(earlier)] for place, earlier in before.items()}


def holders(surveys: Mapping[str, Survey | None], devices: Sequence[str], files: Sequence[str]) -> dict[str, list[str]]:
    """For each surveyed file those of ``files`` that hold the last state of one of its devices.

    ``devices`` and ``files`` have an entry for each state.
    """
    place = dict(zip(devices, files, strict=True))
    found = {}
    for name, item in surveys.items():
        wanted = [] if item is None else [place[device] for device in item.device.tolist() if device in place]
        found[name] = sorted(set(wanted))
    return found
