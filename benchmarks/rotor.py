"""Lines that follow rotors: what speeds are worth, given, tracked or wrong, in simulation and on flight logs.

    python benchmarks/rotor.py sweep --store results
    python benchmarks/rotor.py logs --store results
    python benchmarks/rotor.py page --store results -o docs/results/rotor.md

Logs are those below ``$FWNKF_DATA/logs``. Figures only: no part of a log.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import butter, lfilter, sosfiltfilt, welch

import fwnkf
from fwnkf.filters.stacked import FilterStack
from fwnkf.logs import open_log

Array = NDArray[Any]
ROTORS = 4

# ---- simulated sweep ------------------------------------------------------------------------------------------------

STEP, STEPS, SETTLE = 1e-3, 5000, 500
ORDERS, LINE_STD, LINE_HZ, FLOOR = (1.0, 2.0, 3.0, 4.0), (1.0, 0.5, 0.35, 0.25), 2.0, 0.1
SPREAD = (-0.04, -0.012, 0.015, 0.04)
"""Speeds of the four motors relative to their mean."""
TELEMETRY, TELEMETRY_STD, WRONG = 10, 0.003, 1
"""A speed every so many steps; its relative error; the motor whose speed is wrong."""
SIGNAL_HZ, DAMPING = 2.0, 0.7
TRACKING: dict[str, Any] = {"walk": 0.3, "common": 0.98, "level": "noise", "level_time": 0.5}
"""Chosen on seeds 10 to 14, which are not among those measured."""


def motion() -> tuple[Array, Array, Array]:
    """``F``, ``Q`` and the stationary covariance of the signal: a damped oscillation driven by white noise."""
    w = 2 * np.pi * SIGNAL_HZ
    F = expm(np.array([[0, 1], [-w * w, -2 * DAMPING * w]]) * STEP)
    P = np.diag([1.0, w * w])
    return F, P - F @ P @ F.T, P


def simulate(seed: int) -> tuple[Array, Array, Array, Array]:
    """Signal, measurement, speeds in Hz, and telemetry with its gaps, of a sweep from 40 to 120 Hz and back."""
    generator = np.random.default_rng(seed)
    F, Q, P = motion()
    roots = np.linalg.cholesky(P), np.linalg.cholesky(Q)
    state, signal = roots[0] @ generator.standard_normal(2), np.empty(STEPS)
    for step in range(STEPS):
        state = F @ state + roots[1] @ generator.standard_normal(2)
        signal[step] = state[0]
    mean = 40.0 * 3.0 ** (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(STEPS) / STEPS))
    apart = 1 + np.array(SPREAD) * (1 + 0.2 * generator.standard_normal(ROTORS))
    wander = 0.01 * math.sqrt(STEP) * np.cumsum(generator.standard_normal((STEPS, ROTORS)), 0)
    hz = mean[:, None] * apart * np.exp(wander)
    phase = 2 * np.pi * STEP * np.cumsum(hz, 0)
    y, r = signal + FLOOR * generator.standard_normal(STEPS), math.exp(-math.pi * STEP * LINE_HZ)
    for rotor in range(ROTORS):
        for order, std in zip(ORDERS, LINE_STD, strict=True):
            drive = generator.standard_normal((2, STEPS)) * math.sqrt(1 - r * r)
            drive[:, 0] /= math.sqrt(1 - r * r)  # from the stationary distribution
            amplitude = lfilter([1.0], [1.0, -r], drive[0] + 1j * drive[1])
            y = y + std * (amplitude * np.exp(1j * order * phase[:, rotor])).real
    telemetry = np.full_like(hz, np.nan)
    measured = hz[::TELEMETRY] * (1 + TELEMETRY_STD * generator.standard_normal((len(hz[::TELEMETRY]), ROTORS)))
    telemetry[::TELEMETRY] = measured
    return signal, y, hz, telemetry


def wrong_speeds(telemetry: Array) -> dict[str, Array]:
    """The telemetry with one motor silent, stuck from a third of the time on, or halved."""
    third, given = STEPS // 3, np.isfinite(telemetry[:, WRONG])
    silent, stuck, halved, from_start = (telemetry.copy() for _ in range(4))
    silent[:, WRONG] = np.nan
    last = telemetry[:third, WRONG][given[:third]][-1]
    stuck[third:, WRONG] = np.where(given[third:], last, np.nan)
    halved[third:, WRONG] /= 2
    from_start[:, WRONG] /= 2
    return {"silent": silent, "stuck": stuck, "halved": halved, "halved from the start": from_start}


def tracker(hz: float, **options: Any) -> fwnkf.Filter:
    """The filter with the true lines; what it is told of the speeds is in the control and in the options."""
    F, Q, _ = (torch.tensor(item) for item in motion())
    system = fwnkf.LinearSystem.of(
        F=F, H=torch.tensor([[1.0, 0.0]]).double(), Q=Q, R=torch.tensor([[FLOOR**2]]).double(), dt=STEP
    )
    model: Any = fwnkf.build("order_tracking", system=system, rotors=ROTORS, orders=ORDERS, hz=(hz,), **options)
    model.set_lines(std=LINE_STD, bandwidth_hz=LINE_HZ)
    return model


@torch.no_grad()
def estimates(model: fwnkf.Filter, y: Array, u: Array | None) -> Array:
    prior = fwnkf.Gaussian(torch.zeros(2).double(), torch.tensor(motion()[2]))
    control = None if u is None else torch.tensor(u)
    return model.run(torch.tensor(y)[..., None], control, prior=prior).mean[..., 0].numpy()


def sweep(seeds: list[int]) -> dict[str, list[float]]:
    """Mean squared error of each filter in each record."""
    signal, y, hz, telemetry = (np.stack(items) for items in zip(*map(simulate, seeds), strict=True))

    def error(estimate: Array) -> Array:
        return np.asarray(((estimate - signal)[:, SETTLE:] ** 2).mean(1))

    F, Q, _ = (torch.tensor(item) for item in motion())
    eye = torch.eye(1).double()
    white = {}
    for variance in (1.0, 3.0, 10.0, 30.0, 100.0):
        model = fwnkf.KF(F=F, H=torch.tensor([[1.0, 0.0]]).double(), Q=Q, R=variance * eye)
        white[variance] = error(estimates(model, y, None))
    best = min(white, key=lambda variance: float(white[variance].mean()))
    result = {f"white noise, best R ({best:g})": white[best]}
    told = tracker(40.0, speed_std=1e-5, speed_gate=1e9, walk=1.0)
    result["told the speeds exactly"] = error(estimates(told, y, hz))
    cases = [("speeds given at 100 Hz", telemetry), ("no speed", np.full_like(telemetry, np.nan))]
    others = [wrong_speeds(item) for item in telemetry]
    cases += [(f"one motor {name}", np.stack([item[name] for item in others])) for name in others[0]]
    model = tracker(40.0, speed_std=TELEMETRY_STD, hz_std=0.3, **TRACKING)
    all_y = np.concatenate([y] * len(cases))
    estimate = estimates(model, all_y, np.concatenate([speeds for _, speeds in cases]))
    for (name, _), part in zip(cases, np.split(estimate, len(cases)), strict=True):
        result[name] = error(part)
    each = [autopilots(y[index][:, None], hz[index], STEP) for index in range(len(seeds))]
    for name in each[0]:
        result[name] = error(np.stack([item[name][:, 0] for item in each]))
    return {name: [float(value) for value in values] for name, values in result.items()}


# ---- what autopilots do ---------------------------------------------------------------------------------------------


def turning_notch(values: Array, hz: Array, step: float, kind: str) -> Array:
    """One notch that follows ``hz`` ``[T]``, over ``values`` ``[T, channels]``, as an autopilot computes it."""
    out = np.empty_like(values)
    if kind == "Betaflight":  # state-variable form, crossfaded near its lowest frequency
        f = np.clip(hz, 100.0, 0.48 / step)
        share = np.clip((f - 100.0) / 50.0, 0, 1)
        g, q = np.tan(np.pi * f * step), 1 / 5.0
        a1 = 1 / (1 + g * (g + q))
        a2 = g * a1
        s1 = s2 = np.zeros(values.shape[1])
        s2 = values[0].copy()
        for t, value in enumerate(values):
            v3 = value - s2
            v1 = a1[t] * s1 + a2[t] * v3
            v2 = s2 + a2[t] * s1 + g[t] * a2[t] * v3
            s1, s2 = 2 * v1 - s1, 2 * v2 - s2
            out[t] = value - share[t] * q * v1
        return out
    f = np.clip(hz, 1.0, 0.48 / step)
    w = 2 * np.pi * f * step
    if kind == "ArduPilot":
        octaves = 2 * math.log2(80.0 / (80.0 - 20.0))
        q, depth = math.sqrt(2**octaves) / (2**octaves - 1), 10 ** (-40.0 / 40)
        alpha = np.sin(w) / (2 * q)
        b = np.stack((1 + alpha * depth**2, -2 * np.cos(w), 1 - alpha * depth**2)) / (1 + alpha)
        a = np.stack((-2 * np.cos(w), 1 - alpha)) / (1 + alpha)
    else:
        alpha, beta = math.tan(math.pi * 15.0 * step), -np.cos(w)
        b = np.stack((np.ones_like(w), 2 * beta, np.ones_like(w))) / (1 + alpha)
        a = np.stack((2 * beta, np.full_like(w, 1 - alpha))) / (1 + alpha)
    x1 = x2 = y1 = y2 = values[0]
    for t, value in enumerate(values):
        out[t] = b[0, t] * value + b[1, t] * x1 + b[2, t] * x2 - a[0, t] * y1 - a[1, t] * y2
        x2, x1, y2, y1 = x1, value, y1, out[t]
    return out


def autopilots(values: Array, speeds: Array, step: float) -> dict[str, Array]:
    """Values ``[T, channels]`` behind the rotor notches and the low-pass of three autopilots, as shipped."""
    results = {}
    smooth = -math.expm1(-2 * np.pi * 150.0 * step)
    followed = lfilter([smooth], [1, smooth - 1], speeds - speeds[0], axis=0) + speeds[0]
    for kind, orders, low in (("Betaflight", 3, 250.0), ("ArduPilot", 2, 20.0), ("PX4", 3, 40.0)):
        out = values
        for rotor in range(speeds.shape[1]):
            for order in range(1, orders + 1):
                out = turning_notch(out, order * (followed if kind == "Betaflight" else speeds)[:, rotor], step, kind)
        if kind == "Betaflight":
            share = -math.expm1(-2 * np.pi * low * step)
            out = lfilter([share], [1, share - 1], out - out[0], axis=0) + out[0]
        else:
            b, a = butter(2, low, fs=1 / step)
            out = lfilter(b, a, out - out[0], axis=0) + out[0]
        results[f"{kind}: rotor notches, low-pass {low:g} Hz"] = out
    return results


# ---- flight logs ----------------------------------------------------------------------------------------------------

LOGS = ("blackbox/bblhelper_btfl_003.bbl", "blackbox/bbltuning_sample-short.BFL")
TRAIN, SLOW, BAND = 0.6, 60.0, 60.0
"""Share of the time used to fit; the band that counts as motion; the band of the prior of the motion, in Hz."""
WIDTHS = (0.6, 10.0, 30.0)
FIRST, HIGHER = (2.0, 4.0, 6.0, 8.0), (0.0,)
"""Logarithms of the power of the first order and of the higher ones, over the white noise: what is fitted."""
FIT, SETTLED = 4.0, 1.0
"""Seconds at the end of the part used to fit that likelihoods are compared on; seconds that a filter runs before."""
LEVEL_TIME, DELAY = 0.012, 0.002


def flight(path: Path) -> tuple[float, Array, Array, Array]:
    """Step, raw gyro, gyro of the flight controller, and rotor speeds, while the rotors turn at 100 Hz or more."""
    log = open_log(path)
    gyro, filtered, rotor = (log.signal(name) for name in ("gyro", "gyro_filtered", "rotor"))
    flying = np.flatnonzero(rotor.stack().mean(1) > 100)
    part = slice(flying[0], flying[-1] + 1)
    return float(np.median(np.diff(gyro.time))), gyro.stack()[part], filtered.stack()[part], rotor.stack()[part]


def candidate(step: float, hz: Array, first: float, higher: float) -> fwnkf.Filter:
    """The rate as an integrated random walk up to ``BAND``, its last samples, and the lines, over unit white noise."""
    lag = round(DELAY / step)
    F = torch.zeros(2 + lag, 2 + lag, dtype=torch.float64)
    F[0, 0] = F[1, 1] = F[2, 0] = 1.0
    F[0, 1] = step
    for number in range(1, lag):
        F[2 + number, 1 + number] = 1.0
    Q = torch.zeros_like(F)
    Q[:2, :2] = torch.tensor([[step**3 / 3, step**2 / 2], [step**2 / 2, step]]) * (2 * math.pi * BAND) ** 4 * step
    H = torch.eye(1, 2 + lag).double()
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q + 1e-12 * torch.eye(2 + lag), R=torch.eye(1).double(), dt=step)
    model: Any = fwnkf.build(
        "order_tracking", system=system, rotors=ROTORS, orders=(1.0, 2.0, 3.0), hz=tuple(hz.tolist()), walk=1.0,
        speed_std=0.005, speed_gate=50.0, level="all", level_time=LEVEL_TIME,
    )  # fmt: skip
    model.set_lines(std=[math.exp(first / 2), math.exp(higher / 2), math.exp(higher / 2)], bandwidth_hz=WIDTHS)
    return model


@torch.no_grad()
def together(models: list[fwnkf.Filter], y: Array, u: Array) -> tuple[Array, Array, Array]:
    """Estimate, innovation and its variance of each model on its own measurements, ``[models, axes, T]``."""
    lag = models[0].layout.size - 2
    cov = torch.eye(2 + lag).double()
    cov[1, 1] = 1e4

    def run(model: Any, y: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = model.init(len(y), fwnkf.Gaussian(torch.zeros(2 + lag).double(), cov))
        track = model.run(y, u, state=state)
        return track.mean[..., -1], track.innovation[..., 0], track.innovation_cov[..., 0, 0]

    inputs = torch.tensor(y)[..., None], torch.tensor(u).expand(*y.shape[:2], -1, -1)
    return tuple(item.numpy() for item in FilterStack(models).map(run, *inputs))  # type: ignore[return-value]


def density(innovation: Array, variance: Array) -> Array:
    """Negative log-likelihood of a sample."""
    return np.asarray(0.5 * (np.log(2 * np.pi * variance) + innovation**2 / variance).mean(-1))


def against(estimate: Array, motion: Array, start: int, delay: int) -> float:
    """RMSE against the motion ``delay`` samples ago, after ``start``."""
    return float(np.sqrt(np.mean((estimate[start:] - motion[start - delay : len(motion) - delay]) ** 2)))


def delayed(estimate: Array, motion: Array, start: int, step: float) -> tuple[float, int]:
    """RMSE against the motion as late as it fits best, and how many samples that is."""
    errors = [against(estimate, motion, start, delay) for delay in range(round(0.02 / step))]
    return min(errors), int(np.argmin(errors))


def one_log(path: Path) -> dict[str, Any]:
    step, gyro, board, speeds = flight(path)
    whole = len(gyro)
    cut, rate = int(TRAIN * len(gyro)), round(1 / step)
    scale = gyro[:cut].std(0)
    gyro, board = gyro / scale, board / scale
    slow = sosfiltfilt(butter(4, SLOW, fs=1 / step, output="sos"), gyro, axis=0)
    grid = [(first, higher) for first in FIRST for higher in HIGHER]
    fitted = [candidate(step, speeds[0], *values) for values in grid]
    settle, last = round(SETTLED * rate), slice(max(0, cut - round((FIT + SETTLED) * rate)), cut)
    train = np.repeat(gyro[last].T[None], len(grid), 0)
    _, innovation, variance = together(fitted, train, speeds[last])
    scores = density(innovation[..., settle:], variance[..., settle:])  # [grid, axes]
    chosen = scores.argmin(0)
    begin, cut = cut - settle, settle
    gyro, board, slow, speeds = (item[begin:] for item in (gyro, board, slow, speeds))
    estimate, innovation, variance = (
        item[:, 0] for item in together([fitted[index] for index in chosen], gyro.T[:, None], speeds)
    )
    others = autopilots(gyro, speeds, step)
    axes = []
    for axis, name in enumerate("xyz"):
        nu, S = innovation[axis, cut:], variance[axis, cut:]
        nis = nu**2 / S
        seconds = [nis[i : i + rate].mean() for i in range(0, len(nis) - rate // 2, rate)]
        power = welch(nu / np.sqrt(S), fs=1 / step, nperseg=1024)[1]
        error, delay = delayed(board[:, axis], slow[:, axis], cut, step)
        mine, late = delayed(estimate[axis], slow[:, axis], cut, step)
        row = {
            "axis": name, "power": grid[chosen[axis]], "nll": float(density(nu, S)), "nis": float(nis.mean()),
            "nis_low": float(min(seconds)), "nis_high": float(max(seconds)),
            "peak": float(power.max() / np.median(power)), "rmse": mine, "delay_ms": 1e3 * late * step,
            "rmse_at_board": against(estimate[axis], slow[:, axis], cut, delay),
            "board": error, "board_delay_ms": 1e3 * delay * step,
        }  # fmt: skip
        for other, values in others.items():
            found, when = delayed(values[:, axis], slow[:, axis], cut, step)
            row[other] = (found, 1e3 * when * step)
        axes.append(row)
    return {"log": path.name, "rate": rate, "seconds": whole * step, "axes": axes}


# ---- the page -------------------------------------------------------------------------------------------------------


def page(store: Path) -> str:
    lines = [
        "# Lines that follow rotors",
        "",
        "`order_tracking` ([how to](../howto/rotors.md)) beside a Kalman filter with white noise, the same filter told",
        "all, and the rotor notches of autopilots with their shipped settings.",
        "",
    ]
    if (store / "sweep.json").exists():
        lines += _sweep_page(json.loads((store / "sweep.json").read_text()))
    logs = [json.loads(file.read_text()) for file in sorted(store.glob("rotor_*.json"))]
    if logs:
        lines += _logs_page(logs)
    command = "python benchmarks/rotor.py"
    lines += [f"Command: `{command} sweep --store results`, `{command} logs --store results --log 0`, then `page`.", ""]
    return "\n".join(lines)


def _sweep_page(stored: dict[str, Any]) -> list[str]:
    errors = {name: np.array(values) for name, values in stored["errors"].items()}
    names = list(errors)
    white, told = errors[names[0]], errors[names[1]]
    lines = [
        "## A simulated sweep",
        "",
        f"Four motors a few per cent apart sweep from 40 to 120 Hz and back in {STEPS * STEP:g} s, each with",
        f"orders 1 to 4, at {1 / STEP:g} samples per second; the motion is below {SIGNAL_HZ:g} Hz, the white floor "
        f"{FLOOR:g}.",
        f"Telemetry comes at {1 / STEP / TELEMETRY:g} Hz with an error of {100 * TELEMETRY_STD:g} %. Seeds "
        f"{', '.join(map(str, stored['seeds']))}; the options of",
        "tracking were chosen on seeds 10 to 14. *Gap closed*: the part of the gap between white noise and told. Wrong",
        "speeds are those of one motor.",
        "",
        "| filter | MSE, mean ± spread over seeds | gap closed, mean (least) | error over white noise, largest |",
        "|---|---|---|---|",
    ]
    for name, values in errors.items():
        closed = (white - values) / (white - told)
        lines.append(
            f"| {name} | {values.mean():.4f} ± {values.std(ddof=1):.4f} | {100 * closed.mean():.1f} % "
            f"({100 * closed.min():.1f} %) | {(values / white).max():.2f} |"
        )
    lines += ["", "Notches are told the speeds exactly; those of Betaflight begin at 100 Hz, above most of this sweep."]
    return [*lines, ""]


def _logs_page(logs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Flight logs",
        "",
        "Unfiltered gyro of Betaflight logs with rotor speeds, from the first to the last moment in which the rotors",
        f"turn at 100 Hz or more; fitted without truth to the first {100 * TRAIN:g} %, scored on the rest. What is",
        f"fitted: the power of the first order for each axis, by likelihood over {len(FIRST)} values. Bandwidths "
        f"({', '.join(f'{width:g}' for width in WIDTHS)} Hz), the band of the motion",
        f"({BAND:g} Hz) and the time constant of the level ({1e3 * LEVEL_TIME:g} ms) are set; they were set after",
        f"looking at {Path(LOGS[0]).name}, the part that is scored included, so that its figures are no test of",
        "them. Units: standard deviations of the part used to fit. RMSE is against the zero-phase gyro below "
        f"{SLOW:g} Hz, as late as it",
        "fits best; *over it*: against the motion as late as `gyroADC`, over the RMSE of `gyroADC`.",
        "",
        "| log | axis | NLL | NIS | NIS in a second | peak over median | RMSE (delay) | `gyroADC` | over it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for log in logs:
        for row in log["axes"]:
            lines.append(
                f"| {log['log']} | {row['axis']} | {row['nll']:.2f} | {row['nis']:.2f} | {row['nis_low']:.2f} to "
                f"{row['nis_high']:.2f} | {row['peak']:.1f} | {row['rmse']:.4f} ({row['delay_ms']:.1f} ms) | "
                f"{row['board']:.4f} ({row['board_delay_ms']:.1f} ms) | {row['rmse_at_board'] / row['board']:.2f} |"
            )
    lines += [
        "",
        "What is left in the innovations does not turn with the rotors: in their spectrogram a band stays where it is",
        "while the rotors sweep, and the third order, folded, is wider than its model. Oscillators of fixed frequency",
        "in the system are the next thing to try. The largest NIS falls in the end of the log, where the gyro shows a",
        "shock.",
    ]
    others = [name for name in logs[0]["axes"][0] if ":" in name]
    lines += ["", "The notches on the same samples, RMSE (delay):", ""]
    lines += ["| log | axis | " + " | ".join(others) + " |", "|---|---|" + "---|" * len(others)]
    for log in logs:
        for row in log["axes"]:
            cells = [f"{row[name][0]:.4f} ({row[name][1]:.1f} ms)" for name in others]
            lines.append(f"| {log['log']} | {row['axis']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("sweep", "logs", "page"))
    parser.add_argument("--store", type=Path, required=True, help="folder with the results so far")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--log", type=int, nargs="+", default=list(range(len(LOGS))), help="numbers of the logs")
    parser.add_argument("-o", "--output", type=Path, help="file of the page; by default it is printed")
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    if options.part == "sweep":
        stored = {"seeds": options.seeds, "errors": sweep(options.seeds)}
        (options.store / "sweep.json").write_text(json.dumps(stored))
    elif options.part == "logs":
        for number in options.log:
            result = one_log(options.data / "logs" / LOGS[number])
            (options.store / f"rotor_{number}.json").write_text(json.dumps(result))
    elif options.output is None:
        print(page(options.store))
    else:
        options.output.write_text(page(options.store))
    print(f"{options.part}: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
