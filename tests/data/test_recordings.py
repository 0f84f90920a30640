"""The real recordings, if present: values that were measured on them before, by other code."""

from __future__ import annotations

import os

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.data.recording import Recording
from fwnkf.data.sets import catalogue, dido, euroc
from fwnkf.data.sets._files import read_table

PAPER = tuple(name for name in euroc.SEQUENCES if name != "MH_01_easy")
"""The ten sequences of the paper."""


def recordings(name: str, **options: object) -> list[Recording]:
    if not os.environ.get("FWNKF_DATA"):
        pytest.skip("FWNKF_DATA is not set")
    folder = catalogue.folder_of(name)
    if not catalogue.info(name).find(folder):
        pytest.skip(f"{folder} contains no recording of {name}")
    return catalogue.load(name, **options)


def by_name(name: str, **options: object) -> dict[str, Recording]:
    return {sequence.name: sequence for sequence in recordings(name, **options)}


def test_no_copy_is_damaged():
    if not os.environ.get("FWNKF_DATA"):
        pytest.skip("FWNKF_DATA is not set")
    for name in catalogue.list_sets():
        assert [report for report in catalogue.verify(name) if report.status == "differs"] == []


@pytest.fixture(scope="module")
def flights() -> dict[str, Recording]:
    sequences = by_name("euroc")
    if not set(euroc.SEQUENCES) <= set(sequences):
        pytest.skip("not all sequences of EuRoC are present")
    return sequences


def test_euroc_has_the_windows_of_the_paper(flights):
    assert sum(len(list(flights[name].windows(200, 50))) for name in PAPER) == 4628


def test_euroc_signs_flip_and_positions_jump(flights):
    flips = {}
    for name, sequence in flights.items():
        assert 199.9 < sequence.rate < 200.1
        assert sequence.truth is not None
        assert sequence.truth_mask is not None
        assert bool(sequence.truth_mask.all())
        q = sequence.truth[:, 6:]
        assert bool(((q[1:] * q[:-1]).sum(-1) > 0.99).all()), name
        notes = [note for note in sequence.notes if "sign flip" in note]
        flips[name] = int(notes[0].split()[0]) if notes else 0
    assert flips == {
        "MH_01_easy": 0, "MH_02_easy": 0, "MH_03_medium": 0, "MH_04_difficult": 2, "MH_05_difficult": 2,
        "V1_01_easy": 17, "V1_02_medium": 8, "V1_03_difficult": 11, "V2_01_easy": 16, "V2_02_medium": 5,
        "V2_03_difficult": 7,
    }  # fmt: skip
    assert any("jump of 13.0 cm at 45.005 s" in note for note in flights["MH_04_difficult"].notes)
    jumps = {name: int(sequence.extras["jump"].sum()) for name, sequence in flights.items()}
    assert {name for name, count in jumps.items() if count} == {"MH_03_medium", "MH_04_difficult", "MH_05_difficult"}
    biased = {name for name, sequence in flights.items() if bool(sequence.extras["gyro_bias"].isfinite().all())}
    assert len(biased) == 7


def test_holding_the_state_and_constant_velocity_give_the_known_errors(flights):
    """Mean squared errors over the windows, 0.0498 and 0.0307, found before by code that shares nothing with this."""
    hold, drift, count = 0.0, 0.0, 0
    for name in PAPER:
        for window in flights[name].windows(200, 50):
            assert window.truth is not None
            x, elapsed = window.truth, (window.time - window.time[0])[:, None]
            hold += float((x - x[0]).square().mean())
            moved = torch.cat((x[0, :3] + elapsed * x[0, 3:6], x[:1, 3:].expand(len(x), -1)), -1)
            drift += float((x - moved).square().mean())
            count += 1
    assert abs(hold / count - 0.0498) < 0.0002
    assert abs(drift / count - 0.0307) < 0.0002


def test_the_corrected_pose_mends_the_tilt_of_one_sequence(flights):
    (corrected,) = catalogue.load("euroc", sequences=["V1_01_easy"], truth="corrected")
    official = flights["V1_01_easy"]
    assert official.epoch_ns is not None
    assert corrected.epoch_ns is not None
    offset = round((official.epoch_ns - corrected.epoch_ns) / 5e6)
    same = corrected.slice(offset, offset + 28_000)
    assert same.truth is not None
    assert official.truth is not None
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    mended, tilted = (rotation.to_matrix(x[:28_000, 6:]).mT @ up for x in (same.truth, official.truth))
    apart = torch.atan2(torch.linalg.cross(mended, tilted).norm(dim=-1), (mended * tilted).sum(-1)).rad2deg()
    assert 2.0 < float(apart.median()) < 3.0  # "about 2.5 degrees"


def test_broad_loses_its_reference_now_and_then():
    sequences = recordings("broad")
    for sequence in sequences:
        assert sequence.truth_mask is not None
        assert 0.0 < 1.0 - float(sequence.truth_mask.double().mean()) < 0.09
        assert 285.7 < sequence.rate < 285.8
        assert 0.5 < float(sequence.extras["movement"].double().mean()) < 0.7
        assert bool(sequence.mask.all())
    lost = max(float((~s.truth_mask).double().mean()) for s in sequences if s.truth_mask is not None)
    assert lost > 0.0 if len(sequences) < 10 else 0.085 < lost < 0.09


def test_dido_has_one_clock_and_irregular_steps():
    sequences = recordings("dido")
    if len(sequences) == 16:
        rates = torch.tensor([sequence.rate for sequence in sequences])
        assert float(rates.min()) > 406.0
        assert 407.0 < float(rates.median()) < 411.0
        assert float(rates.max()) < 417.0
    folder = catalogue.folder_of("dido")
    for sequence in sequences:
        assert abs((len(sequence) - 1) / float(sequence.time[-1] - sequence.time[0]) - 400.0) < 0.05
        assert float(sequence.dt[1:].min()) < 0.0005
        assert sequence.truth_mask is not None
        assert bool(sequence.truth_mask.all())
        assert not sequence.notes or "sign flip" in sequence.notes[0]
        place = dido.find(folder)[sequence.name]
        imu = read_table(place / dido.IMU_FILE, dido._IMU, 10**9, "s").stamps_ns
        pose = read_table(place / dido.POSE_FILE, dido._POSE, 1000, "µs").stamps_ns
        assert len(imu) == len(pose)
        assert abs(imu - pose).max() <= 1000  # the same instants, rounded in two ways


def test_uipdb_ranges_arrive_every_third_frame():
    for sequence in recordings("uipdb"):
        if sequence.truth is not None:
            continue
        fresh = sequence.mask[:, 6:]
        assert bool((fresh.any(-1) == (torch.arange(len(sequence)) % 3 == 0)).all())
        assert 0.32 < float(fresh.double().mean()) < 0.3334
        assert bool(sequence.mask[:, :6].all())
