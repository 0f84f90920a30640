"""Lines that follow rotors on flight logs: fitted without truth to the first part, scored on the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rotor_fit import Constants, Innovations, density, innovations, motion, search
from rotor_sweep import with_notches
from scipy.signal import butter, sosfiltfilt, welch

import fwnkf
from fwnkf.diagnosis.autopilots import Autopilot, notches_without_speeds
from fwnkf.filters.stacked import FilterStack
from fwnkf.logs import open_log

Array = NDArray[Any]


class Log(NamedTuple):
    """A log below the folder of logs, and the speed from which its rotors count as flying, in Hz."""

    path: str
    flying: float


LOGS = (
    Log("blackbox/bblhelper_btfl_003.bbl", 100.0),
    Log("blackbox/bbltuning_sample-short.BFL", 100.0),
    Log("ulog/3dr_hexa_flight1.ulg", 50.0),
    Log("ulog/3dr_hexa_flight2.ulg", 50.0),
)
WITHOUT_SPEEDS: dict[Autopilot, str] = {
    "Betaflight": "Betaflight: low-pass 250 Hz, dynamic notch",
    "ArduPilot": "ArduPilot: notch at 80 Hz, low-pass 20 Hz",
    "PX4": "PX4: low-pass 40 Hz",
}
TRAIN, SLOW = 0.6, 60.0
"""Share of the time used to fit; the band that counts as motion where an estimate is compared, in Hz."""
ORDERS = (1.0, 2.0, 3.0)
FIT, FIT_STEPS, SETTLED = 4.0, 4000, 1.0
"""Seconds, and at least so many steps, at the end of the part used to fit that likelihoods are compared on; seconds
that a filter runs before."""
LEVEL_TIME, LEVEL_STEPS, DELAY = 0.012, 12, 0.002
"""Time constant of the level in seconds, and in steps at least; the age of the sample that is estimated, in seconds."""


class Flight(NamedTuple):
    """Samples while the rotors turn."""

    step: float
    gyro: Array
    board: Array | None
    """The gyro after the filters of the flight controller, if it is in the log."""
    speeds: Array
    """NaN in steps in which no speed arrived."""
    held: Array
    """The last speed that arrived."""

    def after(self, begin: int) -> Flight:
        board = None if self.board is None else self.board[begin:]
        return Flight(self.step, self.gyro[begin:], board, self.speeds[begin:], self.held[begin:])


def flight(path: Path, flying: float) -> Flight:
    """A log from the first to the last moment in which the rotors turn fast enough, in units of its training part."""
    log = open_log(path)
    rotor = log.signal("rotor")
    blackbox = path.suffix.lower() != ".ulg"
    gyro = log.signal("gyro" if blackbox else "imu")
    values, board = gyro.stack()[:, :3], log.signal("gyro_filtered").stack() if blackbox else None
    measured = rotor.stack()
    measured = measured[:, np.nanmax(measured, 0) > flying]
    arrived = np.searchsorted(gyro.time, rotor.time)
    speeds = np.full((len(values), measured.shape[1]), np.nan)
    speeds[arrived[arrived < len(values)]] = measured[arrived < len(values)]
    last = np.maximum.accumulate(np.where(np.isfinite(speeds[:, 0]), np.arange(len(speeds)), 0))
    held = speeds[last]
    turning = np.flatnonzero(held.mean(1) > flying)
    part = slice(turning[0], turning[-1] + 1)
    scale = values[part][: int(TRAIN * (part.stop - part.start))].std(0)
    return Flight(
        float(np.median(np.diff(gyro.time))), values[part] / scale, None if board is None else board[part] / scale,
        speeds[part], held[part],
    )  # fmt: skip


def candidate(step: float, hz: Array, given: Constants, axis: int, time: float) -> fwnkf.Filter:
    """The rate as an integrated random walk, its last samples, and the lines, over unit white noise."""
    lag = max(1, round(DELAY / step))
    F = torch.zeros(2 + lag, 2 + lag, dtype=torch.float64)
    F[0, 0] = F[1, 1] = F[2, 0] = 1.0
    F[0, 1] = step
    for number in range(1, lag):
        F[2 + number, 1 + number] = 1.0
    Q = torch.zeros_like(F)
    Q[:2, :2] = torch.tensor(motion(step, given.band[axis : axis + 1])[0])
    H = torch.eye(1, 2 + lag).double()
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q + 1e-12 * torch.eye(2 + lag), R=torch.eye(1).double(), dt=step)
    lines = fwnkf.Orders(len(hz), ORDERS, hz=tuple(hz.tolist()), walk=1.0, speed_std=0.005, speed_gate=50.0)
    model = fwnkf.FWNKF(system, noise=lines, level=fwnkf.Level(time, of="all"))
    model.noise_states.set(std=np.exp(given.power[axis] / 2), bandwidth_hz=np.exp(given.width[axis]))
    return model


@torch.no_grad()
def together(models: list[fwnkf.Filter], y: Array, u: Array) -> tuple[Array, Array, Array]:
    """Estimate, innovation and its variance of each model on its own measurements, ``[models, T]``."""
    size = models[0].layout.size
    cov = torch.eye(size).double()
    cov[1, 1] = 1e4

    def run(model: Any, y: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = model.init(len(y), fwnkf.Gaussian(torch.zeros(size).double(), cov))
        track = model.run(y, u, state=state)
        return track.mean[..., -1], track.innovation[..., 0], track.innovation_cov[..., 0, 0]

    inputs = torch.tensor(y)[:, None, :, None], torch.tensor(u).expand(len(y), 1, -1, -1)
    return tuple(item[:, 0].numpy() for item in FilterStack(models).map(run, *inputs))  # type: ignore[return-value]


def against(estimate: Array, wanted: Array, start: int, delay: int) -> float:
    """RMSE against the motion ``delay`` samples ago, after ``start``."""
    return float(np.sqrt(np.mean((estimate[start:] - wanted[start - delay : len(wanted) - delay]) ** 2)))


def delayed(estimate: Array, wanted: Array, start: int, longest: int) -> tuple[float, int]:
    """RMSE against the motion as late as it fits best, at most ``longest`` samples, and how many samples that is."""
    errors = [against(estimate, wanted, start, delay) for delay in range(longest + 1)]
    return min(errors), int(np.argmin(errors))


def one_log(folder: Path, log: Log) -> dict[str, Any]:
    """All figures of a log."""
    whole = flight(folder / log.path, log.flying)
    step, length = whole.step, len(whole.gyro)
    cut, rate = int(TRAIN * length), round(1 / step)
    settle, time = round(SETTLED * rate), max(LEVEL_TIME, LEVEL_STEPS * step)
    begin = max(0, cut - max(round(FIT * rate), FIT_STEPS) - settle)
    train, lasting = whole.gyro[begin:cut].T, whole.held[begin:cut]
    slow = sosfiltfilt(butter(4, SLOW, fs=1 / step, output="sos"), whole.gyro, axis=0)[cut - settle :]
    part = whole.after(cut - settle)

    constants = search(train, lasting, step, ORDERS, time, settle)
    models = [candidate(step, whole.held[cut - settle], constants, axis, time) for axis in range(3)]
    estimate, *found = together(models, part.gyro.T, part.speeds)
    found_by = {"rotors": Innovations(*found)}
    # the same equations without lines, and with lines that stay at the mean speeds of the part used to fit
    for name, orders in (("white", ()), ("fixed", ORDERS)):
        mean = np.broadcast_to(lasting.mean(0), whole.held.shape)
        fitted = search(train, mean[begin:cut], step, orders, time, settle)
        found_by[name] = innovations(part.gyro.T, mean[cut - settle :], step, orders, fitted, time)
    others = with_notches(part.gyro, part.held, step) | {
        label: notches_without_speeds(part.gyro, step, name) for name, label in WITHOUT_SPEEDS.items()
    }
    axes = [
        axis_row(axis, part, slow[:, axis], estimate[axis], found_by, others, settle, rate) | {
            "power": constants.power[axis].tolist(), "width_hz": np.exp(constants.width[axis]).tolist(),
            "band_hz": float(constants.band[axis]),
        }
        for axis in range(3)
    ]  # fmt: skip
    return {
        "log": Path(log.path).name,
        "rate": rate,
        "seconds": length * step,
        "rotors": part.held.shape[1],
        "axes": axes,
    }


def axis_row(
    axis: int, part: Flight, slow: Array, estimate: Array, found_by: dict[str, Innovations], others: dict[str, Array],
    settle: int, rate: int,
) -> dict[str, Any]:  # fmt: skip
    """The figures of one axis, and spectra of its samples."""
    step, longest = part.step, round(0.02 * rate)
    value, variance = (item[axis, settle:] for item in found_by["rotors"])
    nis = value**2 / variance
    seconds = [nis[i : i + rate].mean() for i in range(0, len(nis) - rate // 2, rate)]
    hz, power = welch(value / np.sqrt(variance), fs=1 / step, nperseg=1024)
    mine, late = delayed(estimate, slow, settle, longest)
    row: dict[str, Any] = {
        "axis": "xyz"[axis], "nis_low": float(min(seconds)), "nis_high": float(max(seconds)),
        "peak": float(power.max() / np.median(power)), "peak_hz": float(hz[power.argmax()]),
        "rmse": mine, "delay_ms": 1e3 * late * step,
    }  # fmt: skip
    for name, items in found_by.items():
        ratio = items.value[axis, settle:] ** 2 / items.variance[axis, settle:]
        row[name] = (float(density(items, settle)[axis]), float(ratio.mean()))
    shown = {"gyro": part.gyro[:, axis], "ours": estimate}
    if part.board is not None:
        error, delay = delayed(part.board[:, axis], slow, settle, longest)
        row |= {
            "board": error, "board_delay_ms": 1e3 * delay * step,
            "rmse_no_later": delayed(estimate, slow, settle, delay)[0],
        }  # fmt: skip
        shown["board"] = part.board[:, axis]
    row["others"] = {}
    for name, values in others.items():
        error, delay = delayed(values[:, axis], slow, settle, longest)
        row["others"][name] = (error, 1e3 * delay * step)
    spectra = {name: welch(values[settle:], fs=1 / step, nperseg=512) for name, values in shown.items()}
    row["spectra"] = {"hz": spectra["gyro"][0].round(2).tolist()}
    row["spectra"] |= {name: [float(f"{value:.4g}") for value in item[1]] for name, item in spectra.items()}
    return row
