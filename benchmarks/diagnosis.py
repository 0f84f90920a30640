"""Simulated flights with known faults, written in every log format, through the diagnosis: is the right cause named?

    python benchmarks/diagnosis.py [--cases 100] [--seed 60000] [--jobs 2] [--markdown FILE]

Half of the flights have a fault: every cause and every format in turn, with random vehicle, motion and size. The
other half have none. The cause is that of the first finding that is a warning or a failure; its frequency, and the
rotor where speeds are logged, are compared with the truth. Seeds below 50,000 were used for development, those of the
table were not. The exit code is 1 if fewer than 95 of 100 causes are right, or more than 3 of 100 flights without a
fault are not clean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # the writers of logs are those of the tests

from fwnkf.data.flights import FAULTS, Flight, flight, random_vehicle
from fwnkf.diagnosis import diagnose
from fwnkf.logs import open_log
from tests.logs.writers import FORMATS, write_flight

RIGHT, FALSE = 0.95, 0.03
TOLERANCE = 0.01
WITH_ATTITUDE = ("ulog", "dataflash", "mcap", "ros1", "ros2")
WITH_INNOVATIONS = ("ulog", "dataflash")
WITH_TWO_CLOCKS = ("ulog", "blackbox", "mcap", "ros1", "ros2")
"""Formats that can show a drift of the gyro, a wrong variance, and a clock that is wrong."""
SECONDS = 30.0
PAGE = """# Is the right cause named?

Written by `{command}`. Simulated flights of 30 s (`fwnkf.data.flights`) with one fault each, and as many without a
fault, are written as logs of eight formats, read, and diagnosed with default thresholds. The cause is that of the first
finding that is a warning or a failure. Vehicle, motion and the size of the fault are random. Every flight has a seed of
its own, counted from that of the command; seeds below 50,000 were used for development. A wrong variance
(overconfident, underconfident) is shown by the logged innovations, which ULog and DataFlash have; drift needs the
attitude, which blackbox, CSV and Parquet files here do not have; a wrong clock needs a second one. Rotor speeds are
logged in about 60 % of the flights, motor commands in all.

Simulator and analyses were developed together, so this is a test of the tool on the faults it was written for, one at a
time and well above the noise (lines of 6 to 25 times the noise of a sample, variances wrong by a factor of 5 to 20),
and no estimate for real logs. Two earlier runs, from seeds 20000 and 40000, were stopped after four missed drifts and
one frequency off by 1.7 %. The rule for drift was changed after each, and after the second the simulator too: gusts,
which had moved the gyro alone, now turn the attitude as well, which makes drift easier to see. A third run, from seed
60000, named 100 of 100 causes, with one false alarm; the order of findings and the rule for lines that sweep were
changed after it, for real logs.

"""


class Case(NamedTuple):
    """One flight of the benchmark; ``fault`` is empty for a flight without one."""

    fault: str
    format: str
    seed: int
    rpm: bool
    stamps: str


class Outcome(NamedTuple):
    """What the diagnosis said of one flight."""

    case: Case
    cause: str
    """True cause; empty without a fault."""
    named: str
    """Cause of the first warning or failure; empty if there is none."""
    frequency_error: float
    """Relative, NaN where the cause has no frequency."""
    rotor_right: bool | None
    words: str


def cases(count: int, seed: int) -> Iterator[Case]:
    """``count`` flights with a fault and as many without, causes and formats in turn."""
    generator = np.random.default_rng(seed)
    formats = {fault: list(FORMATS) for fault in FAULTS}
    formats["drift"], formats["confidence"] = list(WITH_ATTITUDE), list(WITH_INNOVATIONS)
    for number in range(count):
        fault = FAULTS[number % len(FAULTS)]
        format = formats[fault][number // len(FAULTS) % len(formats[fault])]
        kinds = ["unit", "order", "jitter"] + (["clock"] if format in WITH_TWO_CLOCKS else [])
        yield Case(fault, format, seed + number, bool(generator.random() < 0.6), str(generator.choice(kinds)))
    for number in range(count):
        yield Case("", list(FORMATS)[number % len(FORMATS)], seed + count + number, number % 2 == 0, "unit")


def fly(case: Case) -> Flight:
    """The flight of a case; without RPM where the case says so."""
    vehicle = random_vehicle(np.random.default_rng(case.seed), case.fault)
    if not case.rpm:
        vehicle = type(vehicle)(**{**vars(vehicle), "rotor_rate": 0.0})
    return flight(case.fault or None, seed=case.seed, seconds=SECONDS, vehicle=vehicle, fault=case.stamps)


def judge(case: Case) -> Outcome:
    """Write, read and diagnose one flight."""
    torch.set_num_threads(1)
    flown = fly(case)
    with tempfile.TemporaryDirectory() as folder:
        diagnosis = diagnose(open_log(write_flight(Path(folder), case.format, flown)))
    serious = [finding for finding in diagnosis.findings if finding.severity != "info"]
    first = serious[0] if serious else None
    truth = flown.causes[0] if flown.causes else None
    error, rotor = float("nan"), None
    if truth is not None and first is not None and first.cause == truth.name and "frequency_hz" in truth.figures:
        error = float(first.figures.get("frequency_hz", 0)) / float(truth.figures["frequency_hz"]) - 1
        harmonic = float(first.figures.get("harmonic", 1))
        if truth.name == "rotor_vibration":  # any harmonic is right, at its own frequency
            at = harmonic * float(truth.figures["frequency_hz"])
            at = abs(at - flown.rate * round(at / flown.rate))
            error = float(first.figures.get("frequency_hz", 0)) / at - 1
        if case.rpm and "rotor" in truth.figures:
            rotor = first.figures.get("rotor") == truth.figures["rotor"]
    words = "; ".join(f"{finding.cause}: {finding.what}" for finding in serious[:2])
    return Outcome(case, truth.name if truth else "", first.cause if first else "", error, rotor, words)


def table(outcomes: list[Outcome]) -> tuple[list[str], bool]:
    """Lines of Markdown, and whether the claims hold."""
    faulty, clean = [o for o in outcomes if o.cause], [o for o in outcomes if not o.cause]
    right, alarms = sum(o.cause == o.named for o in faulty), sum(bool(o.named) for o in clean)
    rotors = [o.rotor_right for o in faulty if o.rotor_right is not None]
    errors = np.abs([o.frequency_error for o in faulty if np.isfinite(o.frequency_error)])
    named = sorted({o.named for o in outcomes} - {""})
    lines = [
        f"- right cause: {right} of {len(faulty)}; false alarms: {alarms} of {len(clean)} flights without a fault",
        f"- right rotor, where speeds are logged: {sum(rotors)} of {len(rotors)}",
        f"- frequency within 1 %: {int((errors < TOLERANCE).sum())} of {len(errors)}; median error "
        f"{100 * float(np.median(errors)) if len(errors) else 0:.3f} %",
        "",
        "| true cause | " + " | ".join(named) + " | nothing |",
        "|---|" + "---:|" * (len(named) + 1),
    ]
    for cause in [*sorted({o.cause for o in faulty}), ""]:
        counts = Counter(o.named for o in outcomes if o.cause == cause)
        cells = [str(counts.get(name, 0) or "·") for name in [*named, ""]]
        lines.append(f"| {cause or 'no fault'} | " + " | ".join(cells) + " |")
    lines += ["", "| format | right cause | false alarms | right rotor |", "|---|---:|---:|---:|"]
    for format in FORMATS:
        own = [o for o in outcomes if o.case.format == format]
        bad = [o for o in own if o.cause]
        good = [o for o in own if not o.cause]
        turned = [o.rotor_right for o in bad if o.rotor_right is not None]
        lines.append(
            f"| {format} | {sum(o.cause == o.named for o in bad)} of {len(bad)} | {sum(bool(o.named) for o in good)} "
            f"of {len(good)} | {sum(turned)} of {len(turned)} |"
        )
    holds = right >= RIGHT * len(faulty) and alarms <= FALSE * len(clean) and all(rotors)
    return lines, holds and bool((errors < TOLERANCE).mean() >= RIGHT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    outcomes = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(judge, cases(options.cases, options.seed)):
            outcomes.append(outcome)
            if len(outcomes) % 20 == 0:
                print(f"{len(outcomes)} of {2 * options.cases}", flush=True)
            wrong = outcome.cause != outcome.named or outcome.rotor_right is False
            if wrong or abs(outcome.frequency_error) > TOLERANCE:
                print(f"{outcome.case}: {outcome.cause or 'no fault'} -> {outcome.named or 'nothing'}", flush=True)
                print(f"    {outcome.frequency_error:+.4f} {outcome.words[:300]}", flush=True)
    lines, holds = table(outcomes)
    print("\n".join(lines))
    if options.markdown:
        command = f"python benchmarks/diagnosis.py --cases {options.cases} --seed {options.seed}"
        options.markdown.write_text(
            "\n".join([*PAGE.format(command=command).splitlines(), *lines, ""]), encoding="utf-8"
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
