"""The page in a real browser: it fits a phone, follows the colour scheme, and its figures are readable."""

from __future__ import annotations

import pytest

from benchmarks import screenshots

from .synthetic import diagnosis
from .test_page import HOSTILE

pytest.importorskip("matplotlib", reason="figures come with the extra 'plot'")
from fwnkf.report.diagnosis_page import page_of

pytestmark = [
    pytest.mark.skipif(screenshots.browser() is None, reason="no Chromium is installed"),
    pytest.mark.filterwarnings("error"),  # such as one about axes that names left no room
]


def test_the_page_fits_a_phone_and_follows_the_colour_scheme(tmp_path):
    path = page_of(diagnosis(lambda text: f"{text} {'long' * 30} {HOSTILE}")).save(tmp_path / "page.html")
    light, dark = (screenshots.probe(path, dark=scheme) for scheme in (False, True))
    assert light["width"] == screenshots.PHONE
    assert light["overflow"] == 0
    assert light["wide"] == []
    assert light["smallest"] >= 8  # pixels
    assert (light["background"], dark["background"]) == ("rgb(255, 255, 255)", "rgb(20, 24, 29)")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_table_is_clipped_and_no_label_lies_over_another(tmp_path, width):
    path = page_of(diagnosis(lambda text: text)).save(tmp_path / "page.html")
    found = screenshots.probe(path, width)
    assert found["crossed"] == []
    assert [table for table in found["clipped"] if table[0].startswith("stream")] == []
    assert [table for table in found["clipped"] if width > screenshots.PHONE + 100] == []
