"""Tables of ``benchmarks/diagnosis.py`` as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from diagnosis_score import Row, Scored, Share, by_cause, calibration, errors, false_warnings, halves, score

TARGETS = ("rotor_vibration", "vibration", "resonance", "impact", "gaps", "time_base", "clipping", "axis_sign")
"""Causes of which 95 of 100 findings are to be right, and 95 of 100 faults to be found."""
RIGHT, FALSE, APART = 0.95, 0.05, 0.05
TEXT = """# Is the right cause named?

Simulated logs (`fwnkf.data.labelled`) with none, one or two faults, through `fwnkf diagnose` as it is by default.

Every log has a seed. Seeds below 2,000,000 were used to choose thresholds and rules, those from 2,000,000 on were not
looked at before. The tables of the held-out half are the result; those of the other half are shown for comparison.
Seeds 1,000,000 to 1,000,999 were the held-out half of an earlier version; its misses were looked at for this one.

A *stated* finding is one of the first three warnings or failures of a log. It is right if it names the cause of a label
that has to be found, or one that the log cannot separate from it, within 10 % of the frequency of one of its lines (or
1.5 times the spread of a line that sweeps), or in one of its channels where the cause is about channels. A second
finding for the same label is wrong. *Precision* is the share of stated findings of a cause that are right; *recall* the
share of labels of a cause that a stated finding names. Findings about something that is there but need not be named
(a line between the limits of a weak and a strong one, what an impact clips) count for neither. Intervals are 95 %, by
Wilson.

Simulator, labels and rules were made side by side, on seeds below 2,000,000. Four rules of the labels were relaxed
after logs had been seen on which the diagnosis disagreed, because those logs cannot tell: a rotor that hardly leaves
a wide resonance may be named instead of it; a rotor line that reaches half the rate may be called an alias where no
speeds are logged; a folded line that sweeps over much of the band need not be found without rotor speeds of 20 Hz or
more; a line below the shaking that clips an accelerometer need not be found unless the gyro has it. Kinds of logs on
which real ones had failed were added (all rotors rough, acrobatics). So this is a test on the faults that the
simulator has, and no estimate for real logs, which are on [a page of their own](verdicts.md).

"""
MISSING = "**The held-out half has not been run: the figures below are of seeds that rules may have been chosen on.**"


def summary(rows: Sequence[Row]) -> list[str]:
    """The tables of both halves."""
    lines: list[str] = []
    for name, own in reversed(halves(rows).items()):
        if own:
            lines += [f"## The {name} half: {len(own):,} logs", "", *tables([score(row) for row in own])]
    return lines


def targets(scored: Sequence[Scored]) -> Iterator[tuple[str, str, bool]]:
    """What is to hold, what was measured, and whether it holds."""
    table = {one.cause: one for one in by_cause(scored)}
    for cause in TARGETS:
        if cause in table:
            for name, share in (("precision", table[cause].precision), ("recall", table[cause].recall)):
                yield f"{name} of {cause} at least {RIGHT}", str(share), share.value >= RIGHT
    close = errors(scored).close
    share = Share.of(sum(close), len(close))
    yield f"frequency right in {100 * RIGHT:.0f} of 100", str(share), share.value >= RIGHT
    _, rate = false_warnings(scored)
    yield f"false warnings a healthy log at most {FALSE}", f"{rate:.3f}", rate <= FALSE
    for row in calibration(scored):
        if row.right.count:
            holds = abs(row.stated - row.right.value) <= APART
            yield f"{row.name} confidence within 5 points", f"{row.stated:.2f} stated, {row.right} right", holds


def tables(scored: Sequence[Scored]) -> list[str]:
    """All tables of one half."""
    seeds = [log.row["seed"] for log in scored]
    counts = Counter(len(log.row["faults"]) for log in scored)
    share, rate = false_warnings(scored)
    measured = errors(scored)
    close = Share.of(sum(measured.close), len(measured.close))
    amplitude = np.abs(np.exp(measured.amplitude) - 1) if measured.amplitude else np.array([np.nan])
    rotor = Share.of(sum(measured.rotor), len(measured.rotor))
    lines = [
        f"Seeds {min(seeds):,} to {max(seeds):,}: {counts[0]:,} logs without a fault, {counts[1]:,} with one, "
        f"{counts[2]:,} with two.",
        "",
        f"- logs of which the diagnosis raised an error: {sum(bool(log.row['error']) for log in scored)}",
        f"- healthy logs with a false warning: {share}; false warnings a healthy log: {rate:.3f}",
        f"- frequency within 1 % (of a resonance: within a quarter of its width): {close}; median error "
        f"{100 * float(np.median(np.abs(measured.frequency))) if measured.frequency else float('nan'):.2f} %",
        f"- amplitude: median error {100 * float(np.median(amplitude)):.0f} %, nine of ten within "
        f"{100 * float(np.quantile(amplitude, 0.9)):.0f} %, of {len(measured.amplitude)}",
        f"- right rotor, where speeds are logged and one is named: {rotor}",
        "",
        "| target | measured | holds |",
        "|---|---|---|",
        *(f"| {what} | {value} | {'yes' if holds else 'no'} |" for what, value, holds in targets(scored)),
        "",
        "| cause | precision | recall | stated where it was missed |",
        "|---|---|---|---|",
    ]
    for one in by_cause(scored):
        instead = ", ".join(f"{name} {count}" for name, count in list(one.instead.items())[:4])
        lines.append(f"| {one.cause} | {one.precision} | {one.recall} | {instead or '–'} |")
    lines += ["", "| what was simulated | found |", "|---|---|", *_kinds(scored)]
    for deciles in (False, True):
        lines += ["", f"| {'score' if deciles else 'confidence'} | mean score | share that is right |", "|---|---|---|"]
        for row in calibration(scored, deciles=deciles):
            lines.append(f"| {row.name} | {row.stated:.2f} | {row.right} |")
    return [*lines, ""]


def _kinds(scored: Sequence[Scored]) -> list[str]:
    found = Counter((label["cause"], label["kind"].split(" by ")[0]) for log in scored for label in log.found)
    missed = Counter((label["cause"], label["kind"].split(" by ")[0]) for log in scored for label in log.missed)
    return [
        f"| {cause}: {kind} | {Share.of(found[cause, kind], found[cause, kind] + missed[cause, kind])} |"
        for cause, kind in sorted({*found, *missed})
    ]


def page(rows: Sequence[Row]) -> str:
    """The page of the documentation."""
    seeds = {name: [row["seed"] for row in own] for name, own in halves(rows).items() if own}
    commands = [
        f"    python benchmarks/diagnosis.py --logs {max(own) - min(own) + 1} --seed {min(own)} --rows rows.jsonl"
        for own in seeds.values()
    ]
    commands[-1] += " --markdown docs/results/diagnosis.md"
    warning = [] if "held out" in seeds else [MISSING, ""]
    return "\n".join([*TEXT.splitlines(), *warning, *summary(rows), "## Commands", "", *commands, ""])
