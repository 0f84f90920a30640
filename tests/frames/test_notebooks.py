"""What a terminal and a notebook show of an object: short, true, and escaped."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.diagnosis import Diagnosis, Finding
from fwnkf.errors import ConfigError, ShapeError

from ..conformance.cases import CASES

NAMES = {"layout": (("position", "euclidean", 1), ("velocity", "euclidean", 1)), "channels": ("position",)}
HOSTILE = "<script>alert('x')</script>"


def model(**options) -> fwnkf.KF:
    """Position and velocity, of which the position is measured."""
    return fwnkf.KF(
        F=torch.tensor([[1.0, 0.1], [0.0, 1.0]]),
        H=torch.tensor([[1.0, 0.0]]),
        Q=0.01 * torch.eye(2),
        R=torch.tensor([[0.04]]),
        dt=0.1,
        **(NAMES | options),
    )


def turning() -> fwnkf.EKF:
    system = fwnkf.System.of(
        lambda heading, turn: (heading, turn),
        lambda heading: (heading, heading.sin()),
        state={"heading": "angle", "turn": "quaternion"},
        measurement={"heading": "angle", "east": 1},
        Q=[0.1] * 4,
        R=[0.01, 0.01],
    )
    return fwnkf.EKF(system)


class Cells(HTMLParser):
    """The texts of a page by the elements they are in; fails where elements do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.elements.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


# ---- repr -----------------------------------------------------------------------------------------------------------


def test_a_filter_says_what_it_estimates_from_what():
    words = "state position, velocity; channels position; step 0.1 s; learned nothing; numbers float32 on cpu"
    assert repr(model()) == f"<kf on linear: {words}>"
    part = fwnkf.FWNKF(model().system.double(), noise=fwnkf.Lines(hz=2.0))
    count = sum(item.numel() for item in part.parameters())
    assert "options noise=[Lines(count=1, hz=2.0)]" in repr(part)
    assert f"learned {count:,} numbers; numbers float64" in repr(part)
    assert repr(fwnkf.RKN(3, 2)).startswith("<rkn: state x 3; channels y 2; step counted; learned ")
    assert "heading (angle), turn (quaternion); channels heading (angle), east" in repr(turning())


@pytest.mark.parametrize("name", CASES)
def test_every_filter_and_its_system_have_a_short_repr(name):
    filter = CASES[name].build(torch.float32)
    for item in (filter, filter.system):
        if item is not None:
            assert repr(item).startswith("<")
            assert "\n" not in repr(item)
            assert len(repr(item)) < 500
            Cells(item._repr_html_())


def test_a_system_says_its_step_and_controls():
    system = fwnkf.System.of(
        lambda speed, push, dt: speed + dt * push, lambda speed: speed,
        state=["speed"], measurement=["speed"], control=["push"], Q=[0.01], R=[0.1], dt=0.1, learn=("R",),
    )  # fmt: skip
    assert "state speed; measures speed; controls push; step 0.1 s, or dt; learned 1 number>" in repr(system)


def test_a_trajectory_says_its_size_and_whether_a_step_failed():
    y = torch.zeros(2, 5, 1)
    assert repr(model().run(y)) == (
        "<Trajectory: 2 records of 5 steps; state position, velocity; channels position; numbers float32; engine loop; "
        "status ok>"
    )
    assert repr(model().run(y).numpy()) == repr(model().run(y))
    y[1, 3] = torch.inf
    assert "status 1 step flagged" in repr(model().run(y))
    assert repr(model().run(y, outputs=("innovation",))).startswith("<Trajectory: 2 records of 5 steps; state position")


def test_a_diagnosis_says_its_verdict_and_no_character_that_a_terminal_obeys():
    finding = Finding("gaps", "warning", 0.95, "Samples are missing.", "3 gaps", "Check the link.")
    found = Diagnosis("a\x1b[31m.ulg", "ulog", 61.7, "constant velocity", findings=(finding,))
    assert repr(found) == r"<Diagnosis of a\x1b[31m.ulg (ulog, 61.7 s): 1 problem: missing samples.>"


# ---- html -----------------------------------------------------------------------------------------------------------


def test_pages_hold_what_is_known_and_are_escaped():
    hostile = model(layout=((HOSTILE, "euclidean", 1), ("velocity", "euclidean", 1)), channels=(HOSTILE,))
    y = torch.ones(1, 7, 1)
    finding = Finding("gaps", "warning", 0.95, HOSTILE, "3 gaps", "Check <b>the link</b>.", (HOSTILE,))
    items = [hostile, hostile.system, hostile.run(y), Diagnosis(HOSTILE, "ulog", 61.7, HOSTILE, findings=(finding,))]
    for item in items:
        page = Cells(item._repr_html_())
        assert page.elements <= {"div", "strong", "table", "tbody", "thead", "tr", "th", "td"}
        assert any(HOSTILE in text for text in page.texts)


def test_a_notebook_shows_the_last_estimate_and_the_findings():
    track = model().run(torch.ones(1, 7, 1))
    cells = Cells(track._repr_html_()).texts
    deviation = float(track.cov[0, -1, 1, 1].sqrt())
    row = cells.index("velocity")
    assert cells[row : row + 3] == ["velocity", f"{float(track.mean[0, -1, 1]):.4g}", f"{deviation:.4g}"]
    finding = Finding("vibration", "failure", 0.95, "It shakes.", "", "Balance it.", figures={"frequency_hz": 60.0})
    texts = Cells(Diagnosis("flight.ulg", "ulog", 61.7, "kf", findings=(finding,))._repr_html_()).texts
    assert texts[0] == "1 problem: vibration at 60 Hz."
    assert texts[-5:] == ["failure", "high", "vibration at 60 Hz", "It shakes.", "Balance it."]
    assert "x 2" in Cells(fwnkf.KF(F=torch.eye(2), H=torch.eye(2), Q=torch.eye(2), R=torch.eye(2))._repr_html_()).texts


# ---- plot -----------------------------------------------------------------------------------------------------------


def lines(axis) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in axis.get_lines()}


def test_the_plot_is_the_means_with_their_bands_and_what_was_measured(tmp_path):
    y = torch.randn(2, 60, 1, generator=torch.Generator().manual_seed(0)).cumsum(1)
    mask = torch.ones(2, 60, 1, dtype=torch.bool)
    mask[:, 20:30] = False
    track = model().run(y, mask=mask)
    time = 0.1 * torch.arange(60)
    figure = track.plot(y, time=time, record=1)
    assert [axis.get_ylabel() for axis in figure.axes] == ["position", "velocity"]
    position, velocity = map(lines, figure.axes)
    np.testing.assert_array_equal(position["estimate"], track.mean[1, :, 0].double())
    np.testing.assert_array_equal(velocity["estimate"], track.mean[1, :, 1].double())
    np.testing.assert_array_equal(position["measured"], y[1, :, 0].double().where(mask[1, :, 0], torch.nan))
    assert "measured" not in velocity
    (band,) = figure.axes[1].collections
    reach = band.get_paths()[0].vertices
    at = reach[np.isclose(reach[:, 0], float(time[40]))][:, 1]
    std = float(track.cov[1, 40, 1, 1].double().sqrt())
    assert at.max() - at.min() == pytest.approx(2 * 1.959963984540054 * std, rel=1e-6)
    figure.savefig(tmp_path / "track.png", dpi=60)
    data = (tmp_path / "track.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG")
    assert min(width, height) > 200
    assert len(data) > 5000


def test_channels_of_other_names_are_drawn_beside_what_the_filter_predicted():
    y = torch.randn(1, 60, 2, generator=torch.Generator().manual_seed(0))
    track = turning().run(y)
    figure = track.plot(y)
    assert figure.axes[0].get_ylabel() == "heading (rad)"
    east = lines(figure.axes[-1])
    assert figure.axes[-1].get_ylabel() == "east"
    np.testing.assert_array_equal(east["measured"], y[0, :, 1].double())
    np.testing.assert_array_equal(east["predicted"], (y.double() - track.innovation.double())[0, :, 1])
    assert set(lines(track.numpy().plot(y).axes[-1])) == {"measured", "predicted"}
    assert len(track.plot().axes) == 5  # without measurements the state alone
    track.plot(y).savefig(io.BytesIO(), format="png", dpi=40)


def test_what_cannot_be_drawn_is_said():
    y = torch.zeros(1, 5, 1)
    track = model().run(y)
    with pytest.raises(ShapeError, match=r"time has 4 values, the trajectory 5 steps"):
        track.plot(time=range(4))
    with pytest.raises(ShapeError, match=r"y has shape \(1, 4, 1\), and the measurements of this run \(1, 5, 1\)"):
        track.plot(y[:, 1:])
    with pytest.raises(ShapeError, match=r"record = 1: the trajectory has 1, counted from 0"):
        track.plot(record=1)
    with pytest.raises(ConfigError, match="a plot needs means and covariances"):
        model().run(y, outputs=("innovation",)).plot()


def test_without_matplotlib_the_extra_is_named():
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
import torch
from fwnkf.filters.kalman import KalmanFilter  # not by way of the package, which imports its parts
one = torch.eye(1)
track = KalmanFilter(F=one, H=one, Q=one, R=one).run(torch.zeros(1, 3, 1))
print(track)
try:
    track.plot()
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    shown, error = done.stdout.strip().splitlines()
    assert shown.startswith("<Trajectory: 1 record of 3 steps")
    assert "pip install 'fwnkf[plot]'" in error
