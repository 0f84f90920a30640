"""Write the entries of ``fwnkf list airframes`` from public logs.

    python benchmarks/airframes.py                  logs are in $FWNKF_DATA/logs
    python benchmarks/airframes.py --logs FOLDER --out FOLDER

Only logs whose licence allows it are here. An entry has means of spectra and lines, and no samples.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from fwnkf.airframes.entry import FOLDER
from fwnkf.cli import main as fwnkf


class Entry(NamedTuple):
    """A log, and what is known of its vehicle."""

    name: str
    log: str
    licence: str
    source: str
    frame: str
    motors: str
    imu: str


ENTRIES = (
    Entry(
        "px4-hexacopter-tap-v2", "ulog/3dr_hexa_flight1.ulg", "BSD-3-Clause",
        "github.com/zlite/PX4_flight_review, data/datalogs/3DRFlight_1.ulg at 66697465",
        "hexacopter, PX4 airframe 6021", "6 with RPM telemetry", "board TAP_V2",
    ),
    Entry(
        "px4-quadcopter-fmu-v6c", "ulog/px4_quadrotor_local.ulg", "MIT",
        "github.com/Auterion/px4-ulog-rs, tests/fixtures/quadrotor_local.ulg at f98b1045",
        "quadcopter, PX4 airframe 4001", "4", "board PX4_FMU_V6C",
    ),
    Entry(
        "px4-quadcopter-fmu-v6x-rt", "ulog/px4_corrupt_unregistered_msg_id.ulg", "MIT",
        "github.com/Auterion/px4-ulog-rs, tests/fixtures/corrupt_unregistered_msg_id.ulg at f98b1045",
        "quadcopter, PX4 airframe 4019", "4", "board PX4_FMU_V6XRT",
    ),
    Entry(
        "px4-octocopter-cube-orange", "ulog/fsyr_octo_log123_gyrofft.ulg", "Apache-2.0",
        "github.com/FSYR-H/PX4_Ulog_Tools, log_123_2024-3-1-14-47-02.ulg at 886836c2",
        "octocopter, PX4 airframe 12001", "8", "board CUBEPILOT_CUBEORANGE",
    ),
    Entry(
        "betaflight-quadcopter-kakute-f7", "blackbox/fcblackbox_LOG00037.BFL", "MIT OR Apache-2.0",
        "github.com/ilya-epifanov/fc-blackbox, src/test-data/LOG00037.BFL at de08350b",
        "quadcopter AR8", "4", "board HBRO KAKUTEF7",
    ),
    Entry(
        "betaflight-quadcopter-speedybee-f405", "blackbox/bbltuning_sample-short.BFL", "MIT",
        "github.com/Ricardo-Marques/betaflight-tuning-helper, public/sample-short.BFL at 1d59bc18",
        "quadcopter", "4 with 14 poles and RPM telemetry", "board SPBE SPEEDYBEEF405V4",
    ),
    Entry(
        "parrot-ar-drone", "rosbag1/robot_localization_ardrone.bag", "BSD-3-Clause",
        "github.com/cra-ros-pkg/robot_localization, test/test3.bag at 3ec96a6a",
        "quadcopter Parrot AR.Drone", "4", "on board, low-passed",
    ),
)  # fmt: skip


def command(entry: Entry, logs: Path, out: Path) -> list[str]:
    """The words of ``fwnkf airframe`` for an entry."""
    words = ["airframe", str(logs / entry.log), "-o", str(out / f"{entry.name}.json"), "--quiet"]
    for name in ("licence", "source", "frame", "motors", "imu"):
        words += [f"--{name}", getattr(entry, name)]
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")) / "logs")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return max(fwnkf(command(entry, options.logs, options.out)) for entry in ENTRIES)


if __name__ == "__main__":
    raise SystemExit(main())
