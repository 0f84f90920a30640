"""One simulated flight of each fault through files and the whole diagnosis: a small part of the benchmark."""

from __future__ import annotations

import pytest

from fwnkf.data.flights import FAULTS, Vehicle, flight
from fwnkf.diagnosis import diagnose
from fwnkf.logs import open_log

from ..logs.writers import write_flight

VEHICLE = Vehicle(rate=200.0, hover=68.0)
FORMAT = dict(zip(FAULTS, ("mcap", "ulog", "blackbox", "ros1", "csv", "ros2", "dataflash", "parquet"), strict=True))


def serious(folder, format, flown):
    diagnosis = diagnose(open_log(write_flight(folder, format, flown)))
    return [finding for finding in diagnosis.findings if finding.severity != "info"]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_finding_names_the_cause(fault, tmp_path):
    flown = flight(fault, seed=11, seconds=24.0, vehicle=VEHICLE)
    truth = flown.causes[0]
    found = diagnose(open_log(write_flight(tmp_path, FORMAT[fault], flown))).findings
    if fault == "confidence":  # constants of an autopilot's filter are a note
        assert truth.name in {finding.cause for finding in found if finding.severity == "info"}
        return
    first = next(finding for finding in found if finding.severity != "info")
    # a folded line of a rotor is that rotor's
    assert first.cause == ("rotor_vibration" if fault == "aliasing" else truth.name)
    assert first.figures.get("folded", 0.0) == float(fault == "aliasing")
    if "rotor" in truth.figures:
        assert first.figures["rotor"] == truth.figures["rotor"]
    if "frequency_hz" in truth.figures and first.figures.get("harmonic", 1) == truth.figures.get("harmonic", 1):
        near = 0.025 if fault == "aliasing" else 0.01  # averaged samples pass less of a faster rotor
        assert first.figures["frequency_hz"] == pytest.approx(truth.figures["frequency_hz"], rel=near)


@pytest.mark.parametrize("format", ["ulog", "mcap"])
def test_a_flight_without_a_fault_has_no_serious_finding(format, tmp_path):
    assert serious(tmp_path, format, flight(seed=12, seconds=24.0, vehicle=VEHICLE)) == []
