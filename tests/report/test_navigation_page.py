"""The page of a navigation review: what it says is what the review found, and it fits a phone."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import screenshots
from fwnkf.navigation.recording import Pose
from fwnkf.navigation.review import review_recording
from fwnkf.navigation.simulated import Flight

from .test_page import HOSTILE

pytest.importorskip("matplotlib", reason="figures come with the extra 'plot'")
from fwnkf.report.navigation_page import page_of

pytestmark = [
    pytest.mark.unchecked("thousands of steps, whose shapes other tests check"),
    pytest.mark.filterwarnings("error"),
]


@pytest.fixture(scope="module")
def found():
    """With an autopilot that is 3 m further east than the truth."""
    made = Flight().recording(np.random.default_rng(3))
    truth = made.truth
    pilot = Pose(truth.time, truth.position + np.array([0.0, 3.0, 0.0]), truth.velocity, truth.orientation)
    named = replace(made, name=HOSTILE, autopilot=pilot)
    return review_recording(named, fit=False, begin=5.0, end=25.0)


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    return page_of(found).save(tmp_path_factory.mktemp("pages") / "page.html")


def test_the_page_says_what_the_review_found(found, page):
    text = page.read_text(encoding="utf-8")
    for question in ("Where did it go?", "How far is it from the truth?", "Where does it differ from the autopilot?"):
        assert question in text
    assert found.differences[0].rms == pytest.approx(3.0, abs=0.5)
    embedded = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert embedded["held_out"]["error"] == pytest.approx(found.held_out.error, rel=1e-5)
    assert embedded["name"] == HOSTILE
    assert text.count("<svg") == len(re.findall("<figure", text)) >= 11


def test_a_name_from_a_log_is_no_markup(page):
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert text.count("<script") == 1


def test_without_autopilot_and_truth_these_questions_are_not_asked(found):
    bare = replace(found, estimate=None, truth=None, differences=(), errors=(), held_out=None)
    questions = [section.question for section in page_of(bare).sections]
    assert "Where did it go?" in questions
    assert not [question for question in questions if "truth" in question or "differ" in question or "seen" in question]


@pytest.mark.skipif(screenshots.browser() is None, reason="no Chromium is installed")
def test_the_page_fits_a_phone(page):
    layout = screenshots.probe(page)
    assert layout["overflow"] == 0
    assert layout["wide"] == []
    assert layout["smallest"] >= 8  # pixels
