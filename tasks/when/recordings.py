"""The recordings of the map: DIDO, the racer's accelerometer, BROAD's shaken trials, and the logs of rotors.

DIDO has the truth of its motion capture. For the others the reference is the channel itself, filtered in both
directions with no delay: the motion is far slower than the vibration, and a filter that may not look ahead is compared
with one that may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.signal import butter, sosfiltfilt  # type: ignore[import-untyped]

from fwnkf.data.sets import catalogue
from fwnkf.logs import open_log
from tasks.when import recorded
from tasks.when.problem import Array
from tasks.when.recorded import Channel, Pair, Recorded
from tasks.when.search import Found
from tasks.when.store import Job, Row, rounded

PART = "recordings"
AXES = ("x", "y", "z")
SLOW_HZ = {"racer": 60.0, "broad": 20.0, "rotor": 60.0}
"""Below it a channel counts as motion; of rotors as in the benchmark of lines that follow them, of BROAD as in
``python -m tasks shaken``."""
DIDO_LOWEST = 5.0
ROTOR_LOGS = ("blackbox/bblhelper_btfl_003.bbl", "blackbox/bbltuning_sample-short.BFL",
              "ulog/3dr_hexa_flight1.ulg", "ulog/3dr_hexa_flight2.ulg")  # fmt: skip
TURNING = {".bbl": 100.0, ".BFL": 100.0, ".ulg": 50.0}
"""Speed in Hz from which rotors count as flying."""
TRAIN_SHARE = 0.6
BROAD_TRAIN, BROAD_TEST = ("24", "26"), ("25", "27")
"""Of each pair of trials, tapped on and beside a vibrating phone, one to learn from and one to score on."""


def dido(axis: int) -> Channel:
    """Rate or force of the protocol of the task ``dido``."""
    from tasks.dido.denoise import Denoise, training_records
    from tasks.dido.protocol import RATE

    y, truth = training_records()
    data = Denoise().load()
    train, test = (
        [Pair(*(each[..., axis].double().numpy() for each in record)) for record in zip(*part, strict=True)]
        for part in ((y, truth), (data.y, data.truth))
    )
    return Channel(RATE, train, test, DIDO_LOWEST)


def racer(axis: int) -> Channel:
    """The raw accelerometer of the racing quadrotor, in the flights of its task."""
    from tasks.racer.protocol import STEP, TEST, TRAIN, flights

    parts = (
        [filled(flight.force[:, axis].double().numpy()) for flight in flights(numbers)] for numbers in (TRAIN, TEST)
    )
    return slow_channel("racer", 1 / STEP, *parts)


def broad(axis: int) -> Channel:
    """The accelerometer of the shaken trials."""
    from tasks.broad.trials import trials

    groups = [trials(names) for names in (BROAD_TRAIN, BROAD_TEST)]
    parts = [[trial.observations[:, 3 + axis].double().numpy() for trial in group] for group in groups]
    return slow_channel("broad", groups[0][0].rate, *parts)


def rotor_log(name: str, axis: int) -> Channel:
    """The gyro of a flight log while its rotors turn: the first part to learn from, the rest to score on."""
    path = catalogue.data_folder() / "logs" / name
    log = open_log(path)
    gyro, rotor = log.signal("imu" if path.suffix == ".ulg" else "gyro"), log.signal("rotor")
    speeds = np.nan_to_num(rotor.stack()).max(1)
    turning = rotor.time[speeds > TURNING[path.suffix]]
    inside = (gyro.time >= turning[0]) & (gyro.time <= turning[-1])
    values = filled(gyro.stack()[inside, axis])
    cut = int(TRAIN_SHARE * len(values))
    return slow_channel("rotor", 1 / float(np.median(np.diff(gyro.time))), [values[:cut]], [values[cut:]])


def slow_channel(data: str, rate: float, train: Sequence[Array], test: Sequence[Array]) -> Channel:
    """Recordings whose reference is what is slow in them."""
    hz = SLOW_HZ[data]
    slow = butter(4, hz, fs=rate, output="sos")
    parts = [[Pair(each, sosfiltfilt(slow, each)) for each in part] for part in (train, test)]
    return Channel(rate, parts[0], parts[1], hz)


def filled(values: Array) -> Array:
    """Missing samples on straight lines between their neighbours."""
    known = np.flatnonzero(np.isfinite(values))
    return np.interp(np.arange(len(values)), known, values[known])


def channels() -> Iterator[tuple[str, str, Callable[[], Channel]]]:
    """Data, axis and what reads the channel."""
    for axis, name in enumerate(("gyro x", "gyro y", "gyro z", "force x", "force y", "force z")):
        yield "dido", name, partial(dido, axis)
    for axis, name in enumerate(AXES):
        yield "racer", name, partial(racer, axis)
    for axis, name in enumerate(AXES):
        yield "broad", name, partial(broad, axis)
    for log in ROTOR_LOGS:
        for axis, name in enumerate(AXES):
            yield f"rotor, {Path(log).name}", name, partial(rotor_log, log, axis)


def jobs() -> Iterator[Job]:
    """Every row of the recordings."""
    for data, axis, read in channels():
        bench = cache(partial(_bench, read))
        for name, estimate in recorded.ESTIMATORS.items():
            key = {"part": PART, "data": data, "axis": axis, "estimator": name, "seed": 0}
            yield Job(key, f"{data}, {axis}", partial(_row, bench, estimate))


def _bench(read: Callable[[], Channel]) -> Recorded:
    return Recorded(read())


def _row(bench: Callable[[], Recorded], estimate: Callable[[Recorded], Found]) -> Row:
    return {"rmse": rounded(math.sqrt(estimate(bench()).variance))}
