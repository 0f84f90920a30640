"""``fwnkf airframe``: the noise of an airframe from a log, as a file that others can use."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .columns import add_columns, chosen, open_chosen
from .output import add_json, check_readable, print_status, say

TEXTS = {
    "frame": "type and size, such as 'hexacopter, 550 mm'",
    "motors": "number and model",
    "props": "diameter, pitch and number of blades",
    "imu": "sensor or flight controller",
    "mount": "how the sensor is mounted",
    "source": "address of the log",
}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "airframe",
        help="write the spectra of gyroscope and accelerometer in a log as an entry of `fwnkf list airframes`",
        description="The entry has means over bands and the strongest lines, no samples and no positions.",
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="file, or folder of a ROS 2 bag")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="NAME.json, the entry")
    parser.add_argument("--licence", required=True, help="of the entry, as SPDX spells it, such as CC-BY-4.0")
    for name, text in TEXTS.items():
        parser.add_argument(f"--{name}", default="unknown", metavar="TEXT", help=f"{text} (default: unknown)")
    add_columns(parser, controls=False)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, write the file, and read it back."""
    check_readable(options.log)
    from ..airframes import Airframe, read
    from ..diagnosis.airframe import airframe_spectra
    from ..diagnosis.diagnose import examine

    log = open_chosen(options.log, chosen(options), only=True)
    entry = Airframe(
        name=options.output.stem,
        **{name: getattr(options, name) for name in TEXTS},
        firmware=str(log.facts.get("firmware") or "unknown"),
        licence=options.licence,
        spectra=airframe_spectra(examine(log)),
    )
    read(entry.save(options.output))
    print_status(f"fwnkf: wrote {options.output}")
    lines = {
        one.sensor: [f"{line.hz:g} Hz ({line.axis}, {line.amplitude:g} {one.unit})" for line in one.lines[:3]]
        for one in entry.spectra
    }
    rows = {"name": entry.name, "output": str(options.output), "lines": lines}
    say(options, rows, "\n".join(f"{sensor}: {', '.join(found) or 'no line'}" for sensor, found in lines.items()))
    return 0
