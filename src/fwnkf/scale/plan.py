"""In which order files are filtered: a file after all that hold earlier samples of one of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import DataError
from .reading import Survey
from .rows import Fault


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


def held_back(
    surveys: Mapping[str, Survey | None],
    groups: Sequence[Sequence[str]],
    before: Mapping[str, Sequence[str]],
    lost: Mapping[str, str],
) -> dict[str, list[Fault]]:
    """Files that cannot be filtered now, with the reason: the state of a device is lost, or of a file before it.

    >>> day = lambda time: Survey(np.array(["a"], object), np.array([time]), np.array([time]), 1)
    >>> surveys = {"monday": day(1.0), "sunday": day(0.0)}
    >>> held_back(surveys, *waves(surveys), {"a": "lost"})["sunday"]
    [Fault(device='a', reason='lost')]
    """
    held: dict[str, list[Fault]] = {}
    for name in (name for group in groups for name in group):
        item = surveys[name]
        faults = [] if item is None else [Fault(k, lost[k]) for k in item.device.tolist() if k in lost]
        waits = [other for other in before[name] if other in held]
        if not faults and waits:
            faults = [Fault("", f"comes after {waits[0]}, which is left for a later run")]
        if faults:
            held[name] = faults
    return held
