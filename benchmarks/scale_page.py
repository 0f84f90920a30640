"""docs/design/scale.md from the figures in docs/results/scale.json; what was not measured is said to be so."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEVICES, RATE, DAY = 1_000_000, 200, 86_400
SMALL = "small: fwnkf, GRU 64, 3 states"
WRAP: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
ROW_BYTES = 16
"""Of a sample with two channels in float32 and a time in float64."""


def write_page(values: Mapping[str, Any], path: Path) -> None:
    """Write the page."""
    parts = [_head(), _limits(values), _device(values), _day(values), _moves(values), _workers(values), _machines()]
    path.write_text(_wrapped("\n\n".join(part for part in parts if part)) + "\n", encoding="utf-8")


def _wrapped(text: str) -> str:
    """Paragraphs and items of lists in lines of equal length, whatever figures they contain."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith(("#", "|")):
            blocks.append(block)
            continue
        items = block.split("\n- ")
        indent = "  " if block.startswith("- ") else ""
        lines = [(item if k == 0 else f"- {item}") for k, item in enumerate(items)]
        blocks.append(
            "\n".join(textwrap.fill(" ".join(line.split()), 120, subsequent_indent=indent, **WRAP) for line in lines)
        )
    return "\n\n".join(blocks)


def _head() -> str:
    return """# Scale: a fleet of a million devices

Written by `python benchmarks/scale.py page` from the figures that the other commands of that script measured
(`docs/results/scale.json`, with the command beside each). The machine has two cores,
which
other work shared while this was measured; figures in processor time or as ratios inside one run are meant to be
compared,
the others are orders of magnitude. How to use `fwnkf batch`: [the how-to guide](../howto/fleet.md)."""


def _limits(values: Mapping[str, Any]) -> str:
    """What must hold, and what was found."""
    rows = []

    def add(what: str, wanted: str, found: str) -> None:
        rows.append(f"| {what} | {wanted} | {found} |")

    run, turns = values.get("throughput"), values.get("parts")
    if turns:
        ratios = turns["ratios"]
        add(
            "whole parts (read, filter, write) against the batched step over tensors in memory, processor time",
            "at least 0.85",
            f"{turns['ratio']:.3f} ({min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} rounds; "
            f"{turns['task_rows']:,.0f} rows a file)",
        )
    if run:
        add(
            f"{run['sessions']:,} sessions of 100 steps in one command, two workers",
            "1,000,000 sessions",
            f"{run['rows']:,} rows in {run['seconds']:.0f} s at a load of {run['load']:.0f} on two cores",
        )
        add("memory of that command and all processes of Ray", "below 4 GB", f"{run['memory_gb']:.2f} GB")
    else:
        add("1,000,000 sessions of 100 steps in one command, memory", "below 4 GB", "not measured")
    two = values.get("workers", {}).get("two_over_one")
    add(
        "two workers against one, by the clock, start of Ray included",
        "at least 1.7",
        "not measured" if two is None else f"{two:.2f}",
    )
    if kills := values.get("kills"):
        add(
            f"{kills['workers_killed']} workers killed with -9, then the driver, then `--resume`",
            "the files of a calm run, byte by byte",
            f"{'the same' if kills['same_files'] else 'OTHER'} ({kills['parts_before']} parts before, "
            f"{kills['parts_after']} after)",
        )
    else:
        add("three workers and the driver killed with -9, then `--resume`", "the files of a calm run", "not measured")
    if chunks := values.get("chunks"):
        add(
            f"{chunks['devices']:,} devices in 7 daily chunks",
            "the bits of the uncut logs",
            f"{chunks['equal']:,} of {chunks['devices']:,} devices",
        )
        add("a chunk that comes late", "refused", f"{chunks['refused']:,} of {chunks['late_chunks']:,}")
    if corrupt := values.get("corrupt"):
        add(
            f"{corrupt['damaged']} of {corrupt['sessions']:,} sessions damaged (NaN, time, columns, truncated files)",
            "all named, all others right",
            f"{corrupt['named']} named, {corrupt['wrongly']} others; all others "
            f"{'have the same bits' if corrupt['others_same'] else 'DIFFER'}",
        )
    if stream := values.get("stream"):
        add(
            f"keyed consumer, {stream['kills']} kills, {stream['messages']:,} messages, {stream['devices']:,} devices",
            "50 kills over 100,000 messages: the states of a calm run",
            "the same bits" if stream["same_states"] and stream["all_read"] else "OTHER",
        )
    return "\n".join(("## What was checked", "", "| what | wanted | found |", "|---|---|---|", *rows))


def _device(values: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {row['us_per_step']:.1f} | {row['devices_per_core']:,.0f} | {row['state_bytes']:,} | "
        f"{row['state_bytes'] * DEVICES / 1e9:.2f} |"
        for name, row in values.get("device", {}).items()
        if isinstance(row, dict)
    ]
    text = "\n".join(
        (
            "| filter | µs of one core for a step, in batches of 1,024 | devices at 200 Hz on a core | "
            "bytes of state | GB of a million states |",
            "|---|---|---|---|---|",
            *rows,
        )
    )
    return f"""## One core

{text}

A filter belongs on the device: there a step is one of a batch of one, written in C ([export](export.md)). The
states of a
million devices fit into the memory of one machine; they never need a database of their own."""


def _day(values: Mapping[str, Any]) -> str:
    row = values.get("device", {}).get(SMALL)
    run, turns = values.get("throughput"), values.get("parts")
    if row is None or run is None or turns is None:
        return _day_of_cpu(row)
    steps = DEVICES * RATE * DAY
    overhead = 1 / turns["ratio"]
    hours = steps * row["us_per_step"] * 1e-6 * overhead / 3600
    work = turns["work_seconds"]
    whole = sum(work.values())
    shares = ", ".join(f"{kind} {100 * seconds / whole:.0f} %" for kind, seconds in work.items())
    size_in = steps * run["bytes_in"] / run["rows"] / 1e12
    size_out = steps * run["bytes_out"] / run["rows"] / 1e12
    return f"""## A day of a million devices

{DEVICES:,} devices at {RATE} Hz make {steps:.3g} samples in a day. At {row["us_per_step"]:.1f} µs a step and the
measured overhead
of parts, filtering them again takes **{hours:,.0f} core hours**: {hours / 24:,.0f} cores for a day, or a thousand
cores for
{hours / 1000:.0f} hours. Read and written are {size_in:,.0f} TB and {size_out:,.0f} TB as Parquet, from
{run["bytes_in"] / run["rows"]:.0f} and {run["bytes_out"] / run["rows"]:.0f} bytes a sample in the run above.

Who asks for that rarely needs it. A device that logs a minute of each hour makes a sixtieth; estimates at 10 Hz
instead of at
every sample make a twentieth of the output. Work by kind in a part: {shares}."""


def _day_of_cpu(row: Mapping[str, Any] | None) -> str:
    """Without a measured run: the processor time of the steps alone."""
    if row is None:
        return ""
    steps = DEVICES * RATE * DAY
    hours = steps * row["us_per_step"] * 1e-6 / 3600
    return f"""## A day of a million devices

{DEVICES:,} devices at {RATE} Hz make {steps:.3g} samples in a day. At {row["us_per_step"]:.1f} µs a step,
the steps alone take **{hours:,.0f} core hours**: {hours / 24:,.0f} cores for a day, or a thousand cores for
{hours / 1000:.0f} hours. What reading and writing add is in the table above where it was measured.

Who asks for that rarely needs it. A device that logs a minute of each hour makes a sixtieth; estimates at 10 Hz instead
of at every sample make a twentieth of the output."""


def _moves(values: Mapping[str, Any]) -> str:
    row = values.get("device", {}).get(SMALL)
    if row is None:
        return ""
    per_core = 1e6 / row["us_per_step"]
    return f"""## Where the bottleneck moves

- **CPU** first, with any learned filter: a core takes {per_core:,.0f} samples a second, which is
  {per_core * ROW_BYTES / 1e6:.1f} MB/s of samples, far below what a disk or an object store delivers.
- **Object store** next: a thousand cores read {1000 * per_core * ROW_BYTES / 1e9:.1f} GB/s and write about twice
  as much. Large
  files (a million rows) keep the number of requests low.
- **Decoding** of Parquet is a few per cent; decoding of vehicle logs in Python is not, and is better done once, to
  Parquet.
- **Shuffle** never, as long as each file holds the same devices day by day, or all samples of a device of one day:
  files are
  filtered where they are, and only states (hundreds of bytes a device) pass from one day to the next. Files whose
  devices are
  mixed at random still work: a part then reads the states of several files of the day before.
- **The driver** lists files, reads the columns of device and time of new files to put chunks in order, and holds
  one entry for
  each device. That is good for millions of devices and hundreds of thousands of files. Beyond, the survey has to
  become a step
  of Ray Data as well, and the manifest a table in a catalogue."""


def _workers(values: Mapping[str, Any]) -> str:
    found = values.get("simulate")
    if not found:
        return ""
    rows = [
        f"| {name} | {row['seconds']:,.0f} ({row['range'][0]:,.0f} to {row['range'][1]:,.0f}) "
        f"| {100 * row['useful']:.0f} % | {row['lost']:,.0f} |"
        for name, row in found["cases"].items()
    ]
    table = "\n".join(
        (
            "| workers | seconds (range of ten draws) | useful time of workers | attempts lost |",
            "|---|---|---|---|",
            *rows,
        )
    )
    return f"""## A thousand workers, simulated

{found["tasks"]:,} tasks with the times of the tasks measured above (median {found["task_median"]:.1f} s, longest
{found["task_most"]:.1f} s) on {found["workers"]:,} workers, in simulated time (`benchmarks/scale_simulation.py`):
slow machines,
machines that die and come back a minute later with their task lost, and late tasks started a second time.

{table}

Small tasks make failures cheap: what is lost is one task. The end of a wave waits for its slowest task; starting
late tasks
twice is safe here, because both attempts write the same bytes under the same name. Ray Data starts dead workers
again, and
does not start late tasks twice; with tasks of seconds the loss is that of the second line."""


def _machines() -> str:
    return """## What needs more than one machine, and what never will

- Never: the states, the manifest, the fleet page, a fit of one noise model, or a fleet of a few thousand devices.
  One machine
  filters them in the time in which a cluster starts.
- Yes: filtering the raw samples of more than some ten thousand devices at full rate again, every day.
- Bits are the same on processors of one kind with one version of torch. Math libraries choose their kernels by the
  processor: a
  cluster of mixed kinds gives results that agree to rounding, and a device that moves between kinds goes on to
  rounding. Use
  one kind of machine where audits compare bytes.

## At a hundred times that

- Write the step in C (`fwnkf export`) and call it from the workers: without an encoder most of the time above is
  the overhead of
  small tensor operations.
- Keep estimates at the rate somebody reads, and statistics of the rest.
- Let a table format (Iceberg, Delta) hold the manifest: commits of many writers, and snapshots in time, are what
  they are for.
- Survey by the statistics in the footers of files, not by their columns.
- Partition by a hash of the device, once, at ingest, so that no day's file depends on another's."""
