"""docs/results/navigation.md from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]
THREE = ("position", "velocity", "orientation")
LIMITS = {10: 2.0, 30: 12.0}
"""Of the car's outages (m)."""
GAIN = 0.8
"""Wanted share of the error with an autopilot's noises."""
NIS = (0.85, 1.15)


def write(rows: Sequence[Row], path: Path) -> None:
    """Write the page."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row["part"], []).append(row)
    sections = {
        "navego": _navego, "car": _car, "replay": _replay, "simulated flight": _simulated, "flights": _flights,
        "vibration": _vibration,
    }  # fmt: skip
    lines = [
        "# Navigation",
        "",
        *_summary(parts),
        "",
        "Written by `python -m tasks run navigation`, which goes on where it was stopped; rows are",
        "in navigation.jsonl beside",
        "this page. Recordings are public; units, delays and faults of each are in the README that",
        "comes with them. Nothing is",
        "chosen on what is scored: noises, delays and mounting come from the first part of a",
        "recording, or from another one.",
        "",
    ]
    for name, section in sections.items():
        if name in parts:
            lines += [*section(parts[name]), ""]
    seconds = sum(row["CPU s"] for row in rows)
    lines += [f"All rows together took {seconds / 60:.0f} CPU minutes."]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _numbers(values: Sequence[float], digits: int = 2) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def _redrawn(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["case"].startswith("redrawn")]


def _mean(rows: Sequence[Row], name: str) -> tuple[float, float]:
    values = np.array([row[name] for row in rows])
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _ratio(row: Row) -> float:
    return float(row["ours"] / row["default noises"])


def _delay(row: Row) -> str:
    return f"{1e3 * row['delay']:.0f} ± {1e3 * row['delay error']:.0f}"


def _summary(parts: Mapping[str, list[Row]]) -> list[str]:
    said = []
    if redrawn := _redrawn(parts.get("navego", [])):
        worst = [f"{_mean(redrawn, f'NEES {name}')[0]:.2f}" for name in THREE]
        said.append(f"Error bars hold where the truth is known (NEES {' / '.join(worst)} on {len(redrawn)} redraws)")
    ends = {row["case"]: row for row in parts.get("car", [])}
    if "with wheels: outages of 30 s" in ends:
        ten, thirty = (ends[f"with wheels: outages of {length} s"]["rms"] for length in (10, 30))
        plain = ends["inertial: outages of 30 s"]["rms"]
        said.append(
            f"a car without GNSS is off by {ten:.1f} m after 10 s and {thirty:.1f} m after 30 s ({plain:.0f} m without "
            "the knowledge that it does not slip)"
        )
    if flights := parts.get("flights"):
        better = [row for row in flights if _ratio(row) <= GAIN]
        said.append(
            f"on {len(better)} of {len(flights)} real recordings fitted noises and delays predict hidden fixes with at "
            f"most {GAIN} of the error that an autopilot's own have"
        )
    return ["; ".join(said) + "."] if said else []


def _navego(rows: Sequence[Row]) -> Iterator[str]:
    redrawn = _redrawn(rows)
    yield from (
        "## NaveGo, synthetic drive of 437 s",
        "",
        "Errors after 60 s. The error model of the sensor is told, not fitted. Redraws have other",
        "noise of IMU and GNSS, and",
        "start from an alignment with errors of 1, 1 and 2 degrees. A plain EKF with 15 states has",
        "0.23 / 0.37 / 0.51 m,",
        "0.022 / 0.021 / 0.012 m/s and NEES 1.58 of position and velocity on the given noise.",
        "",
    )
    table = []
    for row in rows:
        if row["case"] == "given":
            table.append(
                ["given noise, own start", _numbers(row["position"]), _numbers(row["velocity"], 3),
                 _numbers(np.rad2deg(row["orientation"])), *(f"{row[f'NEES {n}']:.2f}" for n in THREE),
                 f"{row['NIS']:.2f}"]
            )  # fmt: skip
    if redrawn:
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in (_mean(redrawn, f"NEES {n}") for n in THREE)]
        means = {n: np.mean([row[n] for row in redrawn], 0) for n in THREE}
        table.append(
            [f"{len(redrawn)} redraws, filtered", _numbers(means["position"]), _numbers(means["velocity"], 3),
             _numbers(np.rad2deg(means["orientation"])), *cells, f"{_mean(redrawn, 'NIS')[0]:.2f}"]
        )  # fmt: skip
        twenty = redrawn[:20]
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in (_mean(twenty, f"NEES {n}") for n in THREE)]
        table.append(["the first 20 of them", "", "", "", *cells, ""])
        smoothed = [row for row in redrawn if "smoothed position" in row]
        if smoothed:
            means = {n: np.mean([row[f"smoothed {n}"] for row in smoothed], 0) for n in THREE}
            cells = [f"{_mean(smoothed, f'smoothed NEES {n}')[0]:.2f}" for n in THREE]
            table.append(
                [f"{len(smoothed)} redraws, smoothed", _numbers(means["position"]), _numbers(means["velocity"], 3),
                 _numbers(np.rad2deg(means["orientation"])), *cells, ""]
            )  # fmt: skip
    yield from _table(
        (
            "",
            "position N/E/D, m",
            "velocity, m/s",
            "angles, degrees",
            "NEES position",
            "velocity",
            "orientation",
            "NIS",
        ),
        table,
    )
    smoothed = [row for row in redrawn if "smoothed position" in row]
    if smoothed:
        shares = [np.linalg.norm(row["smoothed position"]) / np.linalg.norm(row["position"]) for row in smoothed]
        yield from ("", f"Smoothed positions have {np.mean(shares):.2f} of the error of filtered ones (0.6 wanted).")
        yield from (
            "A position error lasts for minutes, because velocities of GNSS bridge its noise: a",
            "drive holds few independent ones,",
            "and twenty drives scatter by more than a tenth in NEES. Hence the further ones.",
        )


def _car(rows: Sequence[Row]) -> Iterator[str]:
    by = {row["case"]: row for row in rows}
    yield from (
        "## A car with outages of GNSS",
        "",
        "A consumer IMU at 100 Hz and RTK at 4 Hz. Delay, noises, mounting and the place of the axle",
        "are found on the first 150 s;",
        "then GNSS is hidden seven times, every 60 s. Horizontal error at the end of an outage.",
        "References: a plain EKF with the",
        "clock right 4.3 m and 62 m, with the clock 125 ms off 7.5 m and 84 m.",
        "",
    )
    table = []
    for kind in ("inertial", "with wheels"):
        if f"{kind}: fit" not in by:
            continue
        fit = by[f"{kind}: fit"]
        for length in (10, 30):
            row = by.get(f"{kind}: outages of {length} s")
            if row is not None:
                table.append(
                    [kind, _delay(fit), f"{length}", f"{row['rms']:.2f}", f"{np.median(row['ends']):.2f}",
                     _numbers(row["ends"], 1), f"{row['coverage']:.2f}", f"{LIMITS[length]:.0f}"]
                )  # fmt: skip
    yield from _table(
        ("", "delay found, ms", "outage, s", "RMS, m", "median, m", "each, m", "coverage of 95 %", "wanted, m"), table
    )


def _replay(rows: Sequence[Row]) -> Iterator[str]:
    yield from (
        "## PX4's own EKF on its own test data",
        "",
        "Our filter with EKF2's noises and delay beside the states that EKF2 had, after 15 s.",
        "Differences are relative to the",
        "standard deviations that EKF2 states; positions relative to their median difference, because origins differ.",
        "",
    )
    table = []
    for row in rows:
        for name in ("orientation", "velocity", "position", "gyro_bias", "accelerometer_bias"):
            item = row[name]
            digits = 4 if name.endswith("bias") or name == "orientation" else 2
            table.append(
                [row["case"], name.replace("_", " "), _numbers(item["difference"], digits),
                 _numbers(item["EKF2 std"], digits),
                 f"{item['within two std']:.2f}"]
            )  # fmt: skip
        for name in ("earth field", "body field"):
            item = row[name]
            table.append(
                [
                    row["case"],
                    f"{name}, µT",
                    _numbers(item["ours"], 1),
                    f"EKF2 {_numbers(item['EKF2 in our scale'], 1)}",
                    "",
                ]
            )
    yield from _table(("recording", "state", "difference, RMS", "std stated by EKF2", "share within two std"), table)
    yield from (
        "",
        "The heading differs by the declination: EKF2's magnetic field has no eastern part, ours that of the place.",
        "EKF2 fuses airspeed and wind in neither recording, so that its wind is zero; ours has no",
        "wind state without airspeed. In",
        "`ekf_gsf_reset` EKF2 was run with gates of one standard deviation, and resets yaw and",
        "height; ours resets nothing.",
    )


def _simulated(rows: Sequence[Row]) -> Iterator[str]:
    yield from (
        "## A simulated PX4 flight with truth",
        "",
        "`yuneec_position.ulg`; noises are fitted on another flight of the simulator, the delay on",
        "the first half. With realistic",
        "GNSS (1.5 m white, 2 m of drift with 60 s), whose statistics the filter is told, ten draws.",
        "",
    )
    table = []
    for row in rows:
        if row["case"] == "as logged":
            for who, prefix in (("ours", ""), ("EKF2", "autopilot ")):
                if f"{prefix}position" in row:
                    table.append(
                        [
                            f"as logged, {who}",
                            _numbers(row[f"{prefix}position"]),
                            _numbers(np.rad2deg(row[f"{prefix}orientation"])),
                            "",
                        ]
                    )
    noisy = [row for row in rows if row["case"].startswith("noise")]
    if noisy:
        lengths = {}
        for who in ("ours", "EKF2's noises"):
            errors = np.array([row[f"{who}: position"] for row in noisy])
            lengths[who] = np.linalg.norm(errors, axis=1)
            nees = np.array([row[f"{who}: NEES position"] for row in noisy])
            angle = np.rad2deg(np.mean([row[f"{who}: orientation"] for row in noisy], 0))
            table.append(
                [f"realistic GNSS, {who}", _numbers(np.sqrt((errors**2).mean(0))), _numbers(angle),
                 f"{nees.mean():.2f} ± {nees.std(ddof=1) / np.sqrt(len(nees)):.2f}"]
            )  # fmt: skip
        yield from _table(("", "position N/E/D, m", "angles, degrees", "NEES position"), table)
        share = lengths["ours"] / lengths["EKF2's noises"]
        yield from (
            "",
            f"Error relative to EKF2's noises in the same filter: {share.mean():.2f} ± "
            f"{share.std(ddof=1) / np.sqrt(len(share)):.2f} (0.8 wanted).",
        )
    else:
        yield from _table(("", "position N/E/D, m", "angles, degrees", "NEES position"), table)


def _flights(rows: Sequence[Row]) -> Iterator[str]:
    yield from (
        "## Real recordings: fixes that were hidden",
        "",
        "Noises and delay are fitted to the first half (its last 120 s at most); in the second half",
        "every second window of ten seconds",
        "is hidden. RMS of the error of predicted positions (m), beside the same filter with PX4's",
        "default noises, with its",
        "default delay and with the delay that was found. NIS on the second half, all fixes seen.",
        "",
    )
    table = []
    for row in rows:
        windows = np.array(row["ours: windows"]), np.array(row["default noises: windows"])
        nis = ", ".join(f"{name.replace('gnss_', '')} {value:.2f}" for name, value in row["NIS"].items())
        out = sum(row["outliers"].values())
        table.append(
            [row["case"], f"{row['seconds']:.0f}", _delay(row), f"{len(windows[0])}",
             *(f"{row[name]:.2f}" for name in ("ours", "default noises", "default noises, delay found")),
             f"{_ratio(row):.2f}", nis, f"{out}"]
        )  # fmt: skip
    yield from _table(
        (
            "recording",
            "s",
            "delay, ms",
            "windows",
            "ours",
            "default noises",
            "and our delay",
            "ratio",
            "NIS",
            "outliers",
        ),
        table,
    )
    beside = [row for row in rows if any(name.startswith("autopilot") for name in row)]
    if beside:
        yield from ("", "Difference to the autopilot's own estimate on the second half (RMS):", "")
        cells = []
        for row in beside:
            angle = row.get("autopilot orientation")
            cells.append(
                [row["case"], _numbers(row["autopilot position"]) if "autopilot position" in row else "not logged",
                 _numbers(row["autopilot velocity"]) if "autopilot velocity" in row else "not logged",
                 _numbers(np.rad2deg(angle), 1) if angle is not None else "not logged"]
            )  # fmt: skip
        yield from _table(("recording", "position, m", "velocity, m/s", "angles, degrees"), cells)


def _vibration(rows: Sequence[Row]) -> Iterator[str]:
    yield from (
        "## What frequency-awareness is worth here",
        "",
        "The same filter, fitted anew, on the IMU as it is, behind notches at its strongest lines",
        "and PX4's low-pass, and behind",
        "filters with noise states that were fitted to the first half. RMS of hidden fixes (m).",
        "",
    )
    names = list(dict.fromkeys(row["case"].rsplit(", ", 1)[0] for row in rows))
    kinds = ("white noise", "notches before", "noise states")
    found = {row["case"]: row for row in rows}
    table = [
        [name, *(f"{found[f'{name}, {kind}']['ours']:.2f}" if f"{name}, {kind}" in found else "" for kind in kinds)]
        for name in names
    ]
    yield from _table(("recording", *kinds), table)
    whole = [name for name in names if all(f"{name}, {kind}" in found for kind in kinds)]
    if whole:
        best = [min(kinds, key=lambda kind: found[f"{name}, {kind}"]["ours"]) for name in whole]
        yield from (
            "",
            f"White noise is best on {best.count('white noise')}, notches on {best.count('notches before')} and noise "
            f"states on {best.count('noise states')} of {len(whole)} recordings.",
            "A navigation filter integrates the IMU: lines far above the",
            "rate of fixes average out by themselves, and what counts is the density at low",
            "frequencies, which all three share.",
        )
