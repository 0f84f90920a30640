"""How much of the possible gain ``fwnkf diagnose --fix`` reaches on simulated flights with vibration.

    python benchmarks/cure.py --seeds 100 101 102 103 104 -o docs/results/cure.md

The truth is the same flight without sensor noise and vibration. The oracle knows the signal's model from the flight
without vibration, and the lines from the vibration alone. Errors are those of the last 40 % of each flight; the share
is that of mean squared errors, averaged over the channels.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fwnkf.data.flights import Flight, Vehicle, flight, random_vehicle
from fwnkf.diagnosis.calibrate import Calibrated, calibrated, split
from fwnkf.diagnosis.default_filter import LINES, channel_models
from fwnkf.diagnosis.fix import TRAIN
from fwnkf.diagnosis.innovations import innovations
from fwnkf.diagnosis.series import Series

NAMES = ("gyro_x", "gyro_y", "gyro_z", "accel_x", "accel_y", "accel_z")
UNITS = ("rad/s",) * 3 + ("m/s²",) * 3
CASES = ("vibration", "rotor_vibration")


def series_of(flown: Flight) -> Series:
    return Series.of("imu", flown.imu_time, np.hstack((flown.gyro, flown.accel)), NAMES, UNITS)


def study(case: str, seed: int, seconds: float = 60.0) -> dict[str, Any]:
    """One flight: errors without noise states, with fitted ones, and with the oracle's."""
    vehicle: Vehicle = random_vehicle(np.random.default_rng(seed), case)
    shaken = series_of(flight(case, seed=seed, seconds=seconds, vehicle=vehicle))
    still = series_of(flight(None, seed=seed, seconds=seconds, vehicle=vehicle))
    silent = replace(vehicle, gyro_noise=0.0, accel_noise=0.0)
    truth = series_of(flight(None, seed=seed, seconds=seconds, vehicle=silent)).values
    train, test = split(shaken, TRAIN)
    white, cured = calibrated(train, lines=LINES)
    noise = replace(shaken, values=shaken.values - truth)
    lines = channel_models(noise, lines=LINES + 3, lowest_hz=8.0)
    told = tuple(replace(a, lines=b.lines) for a, b in zip(channel_models(still), lines, strict=True))
    oracle = Calibrated(told, None, 0.0)
    errors = {}
    row: dict[str, Any] = {"case": case, "seed": seed, "rate": round(vehicle.rate), "half_life": cured.half_life}
    row["kept"] = "noise states" if cured.score > white.score else "white noise"
    for name, fitted in (("white", white), ("fixed", cured), ("oracle", oracle)):
        result = innovations(fitted.filter(NAMES), test)
        at = np.searchsorted(shaken.time, result.time)
        errors[name] = np.mean((result.mean - truth[at]) ** 2, 0)
        row[f"nis_{name}"] = float(np.nanmean(result.nis))
        row[f"likelihood_{name}"] = float(np.nanmean(result.log_likelihood))
    gain = (errors["white"] - errors["fixed"]) / (errors["white"] - errors["oracle"])
    total = sum((errors["white"] - errors["fixed"]) / errors["white"])
    row["share"] = float(total / sum((errors["white"] - errors["oracle"]) / errors["white"]))
    row["rms_ratio"] = float(np.sqrt(np.mean(errors["fixed"] / errors["white"])))
    row["oracle_ratio"] = float(np.sqrt(np.mean(errors["oracle"] / errors["white"])))
    row["worst_channel"] = NAMES[int(gain.argmin())]
    return row


def page(rows: list[dict[str, Any]], command: str) -> str:
    """The table as Markdown."""
    lines = [
        "# What `--fix` reaches on simulated vibration",
        "",
        "Simulated flights with vibration at a fixed frequency, or of rotors with their harmonics. Noise states are",
        "fitted to the first 60 % of each flight without any truth; figures are those of the last 40 %. *Share* is the",
        "share of the oracle's gain in mean squared error (1: as good as the filter that is told the vibration),",
        "*error* the ratio of root mean square errors to the filter without noise states.",
        "",
        "| case | seed | rate (Hz) | NIS before | NIS after | error after | error of the oracle | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['case']} | {row['seed']} | {row['rate']} | {row['nis_white']:.2f} | {row['nis_fixed']:.2f} "
        f"| {row['rms_ratio']:.2f} | {row['oracle_ratio']:.2f} | {row['share']:.2f} |"
        for row in rows
    ]
    for case in dict.fromkeys(row["case"] for row in rows):
        shares = np.array([row["share"] for row in rows if row["case"] == case])
        levels = np.array([row["nis_fixed"] for row in rows if row["case"] == case])
        lines += [
            "",
            f"{case}: share {shares.mean():.2f} ± {shares.std(ddof=1) if len(shares) > 1 else 0:.2f} (worst "
            f"{shares.min():.2f}), NIS {levels.mean():.2f}, from {levels.min():.2f} to {levels.max():.2f}, over "
            f"{len(shares)} seeds.",
        ]
    return "\n".join([*lines, "", f"Command: `{command}`", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for case in CASES:
        for seed in options.seeds:
            rows.append(study(case, seed))
            print(rows[-1], flush=True)
            if options.output is not None:
                command = f"python benchmarks/cure.py --seeds {' '.join(map(str, options.seeds))} -o {options.output}"
                options.output.write_text(page(rows, command), encoding="utf-8")


if __name__ == "__main__":
    main()
