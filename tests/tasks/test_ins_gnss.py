"""The navigation study: its simulation inverts the mechanisation, its page says what rows say, and real logs load."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fwnkf.errors import ConfigError
from fwnkf.systems import NavigationMotion, NavigationMotionConfig
from tasks.ins_gnss import command, page, recordings, simulated
from tasks.ins_gnss.study import PARTS

needs_recordings = pytest.mark.skipif(
    not os.environ.get("FWNKF_DATA") or not (Path(os.environ["FWNKF_DATA"]) / "navigation").is_dir(),
    reason="FWNKF_DATA names no folder with navigation recordings",
)


def test_the_ideal_imu_carries_each_state_of_a_path_to_the_next() -> None:
    motion = NavigationMotion(NavigationMotionConfig(latitude=-30.0)).double()
    time = 0.01 * np.arange(200)
    angle = 0.3 * np.sin(2 * time)
    orientation = np.stack((np.cos(angle), np.sin(angle), 0 * angle, 0 * angle), -1)
    velocity = np.stack((20 * np.cos(time), 20 * np.sin(time), 0.5 * time), -1)
    position = np.stack((20 * np.sin(time), -20 * np.cos(time), 0.25 * time**2), -1)
    u = torch.from_numpy(simulated.ideal_imu(motion, time, position, velocity, orientation))
    x = torch.cat([torch.from_numpy(item[:1]) for item in (position, velocity, orientation)] + [torch.zeros(1, 6)], -1)
    for row in u:
        x = motion.transition(x, row[None], torch.tensor([0.01], dtype=torch.float64))
    np.testing.assert_allclose(x[0, 3:6].numpy(), velocity[-1], atol=1e-4)
    np.testing.assert_allclose(x[0, 6:10].numpy(), orientation[-1], atol=1e-6)
    np.testing.assert_allclose(x[0, :3].numpy(), position[-1], atol=0.01)


def test_the_page_states_the_figures_of_its_rows(tmp_path: Path) -> None:
    windows = [1.0, 4.0]
    row = {
        "part": "flights", "case": "a flight", "delay": 0.12, "delay error": 0.01, "noises": {}, "seconds": 80.0,
        "CPU s": 1.0, "outliers": {"gnss_position": 3}, "NIS": {"gnss_position": 1.04},
        "ours": 1.5, "default noises": 3.0,
        "default noises, delay found": 2.0, "ours: windows": windows, "default noises: windows": windows,
    }  # fmt: skip
    page.write([row], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| a flight | 80 | 120 ± 10 | 2 | 1.50 | 3.00 | 2.00 | 0.50 | position 1.04 | 3 |" in text
    assert "on 1 of 1 real recordings" in text


def test_a_study_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def part() -> object:
        for name in ("one", "two"):
            yield name, lambda name=name: measured.append(name) or {"value": 1}

    monkeypatch.setitem(PARTS, "navego", part)
    monkeypatch.setattr(page, "write", lambda rows, path: None)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"part": "navego", "case": "one"}) + "\n")
    assert command.run(["navego"], rows, tmp_path / "page.md") == 0
    assert measured == ["two"]
    with pytest.raises(ConfigError, match="no part nowhere"):
        command.run(["nowhere"], rows, tmp_path / "page.md")


@needs_recordings
@pytest.mark.parametrize("name", ["3dr_hexa_flight1", "SwissLog1", "log_376"])
def test_real_recordings_have_what_a_filter_needs(name: str) -> None:
    found = recordings.RECORDINGS[name]()
    begin, end = found.span
    assert end - begin > 40.0
    assert {"gnss_position", "gnss_velocity", "barometer"} <= set(found.sensors)
    force = np.linalg.norm(np.median(found.imu.values[:, 3:], 0))
    assert 8.0 < force < 12.0  # m/s², forward, right, down: gravity is most of it
    assert float(np.median(found.imu.values[:, 5])) < 0
    assert np.linalg.norm(found.magnetic_field) == pytest.approx(50.0, abs=15.0)
