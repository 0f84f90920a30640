"""The report of a diagnosis: the verdict first, all of it escaped, small, and the same bytes every time."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fwnkf.diagnosis.finding import Finding
from fwnkf.diagnosis.result import ALL_CHANNELS, Diagnosis, Waterfall

from .synthetic import LINE, diagnosis
from .test_page import HOSTILE, Reader

pytest.importorskip("matplotlib", reason="figures come with the extra 'plot'")
from fwnkf.report import diagnosis_figures
from fwnkf.report.diagnosis_page import diagnosis_page
from fwnkf.report.drawing import VARIABLES, canvas, svg, thin
from fwnkf.report.spectrogram import raster
from fwnkf.report.verdict import overall_row


def label(page: str, start: str) -> str:
    """The label of the drawing that begins with ``start``."""
    return next(text for text in re.findall(r'aria-label="([^"]*)"', page) if text.startswith(start))


@pytest.fixture(scope="module")
def page() -> str:
    return diagnosis_page(diagnosis())


def test_the_verdict_comes_first(page):
    reader = Reader(page)
    reader.check()
    words = " ".join(" ".join(reader.words).split())
    verdict, action = words.index("Rotor 2 shakes the gyro"), words.index("Balance propeller 2")
    assert verdict < action < words.index("What did the log contain?")
    assert words.index("✕ Failure") < verdict
    questions = re.findall(r"<h2>(.*?)</h2>", page)
    assert questions == [
        "What did the log contain?", "Where is the noise?", "Does the noise follow the rotors?",
        "Is the filter consistent?", "Does the bias drift?", "How much delay does filtering add?",
        "What does the fitted filter (--fix) improve?", "How was it measured?",
    ]  # fmt: skip


def test_the_same_diagnosis_gives_the_same_bytes(page):
    shown = "".join(re.findall(r"<svg.*?</svg>", page))
    again = svg(
        diagnosis_figures.waterfall(diagnosis().waterfalls[0]), "waterfall0", label(page, "Spectral density over time")
    )
    assert again in shown


def test_the_values_of_the_diagnosis_are_in_the_page(page):
    values = json.loads(Reader(page).data)
    assert values["peaks"][0]["frequency"] == LINE
    assert values == diagnosis().as_dict(arrays=False)
    full = json.dumps(diagnosis().as_dict(), allow_nan=False)
    assert json.loads(full)["spectra"][0]["density"] == pytest.approx(diagnosis().spectra[0].density, rel=1e-5)


def test_hostile_names_in_every_field_are_text():
    counter = iter(range(10_000))

    def name(text: str) -> str:
        return f"{HOSTILE}{text}\x00\n\ud800 {next(counter)}"

    reader = Reader(diagnosis_page(diagnosis(name)))
    reader.check()
    assert "<script>alert(1)</script>" in "".join(reader.words)


def test_colours_of_drawings_are_variables(page):
    """What is not a variable would not change with the colour scheme of the reader."""
    styles = re.findall(r'style="([^"]*)"', page)
    assert len(styles) > 100
    fixed = {colour for style in styles for colour in re.findall("#[0-9a-f]{6}", style)}
    assert fixed <= {diagnosis_figures.TRACK}
    sheet = page[page.index("<style>") : page.index("</style>")]
    for variable in set(VARIABLES.values()):
        name = variable[4:-1]
        assert sheet.count(f"{name}:") == 2, f"{name} needs a light and a dark value"


def test_long_logs_give_small_pages():
    long = diagnosis(samples=200_001)
    series = Diagnosis("a", "csv", 1.0, "kf", spectra=long.spectra, consistency=long.consistency[:2])
    assert len(diagnosis_page(series).encode()) < 1_000_000  # half of what a whole page may have


@pytest.mark.parametrize("log", [False, True])
def test_thinning_keeps_the_extremes_of_every_pixel(log):
    rng = np.random.default_rng(1)
    x = np.sort(10 ** rng.uniform(0, 3, 50_000)) if log else np.sort(rng.uniform(-5, 5, 50_000))
    y = rng.standard_normal(50_000)
    y[rng.integers(0, 50_000, 20)] = np.nan
    short_x, short_y = thin(x, y, pixels=300, log=log)
    assert len(short_x) <= 600
    assert np.all(np.diff(short_x) >= 0)
    scale = np.log(x) if log else x
    edges = np.linspace(scale[0], scale[-1], 301)
    for low, high in pairwise(edges):
        inside = (scale >= low) & (scale < high)
        short = np.log(short_x) if log else short_x
        chosen = short_y[(short >= low) & (short < high)]
        if inside.any():
            assert chosen.max() == np.nanmax(y[inside])
            assert chosen.min() == np.nanmin(y[inside])


def test_the_image_of_a_waterfall_has_the_largest_value_of_every_cell():
    rng = np.random.default_rng(2)
    time = np.arange(0.0, 100.0, 0.2)
    time = time[(time < 30) | (time > 40)]
    frequency = np.linspace(0, 500, 401)
    density = rng.gamma(1.0, 1.0, (len(time), len(frequency)))
    density[3, 7] = 0.0
    image, (left, right, bottom, top) = raster(Waterfall("x", "u", time, frequency, density))
    rows, columns = image.shape
    expected = np.full(image.shape, np.nan)
    place = [int((hz - bottom) / (top - bottom) * rows) for hz in frequency]
    for at, values in zip(time, density, strict=True):
        column = int((at - left) / (right - left) * columns)
        for row, value in zip(place, values, strict=True):
            if value > 0:
                expected[row, column] = np.fmax(expected[row, column], 0.5 * math.log10(value))
    np.testing.assert_allclose(image, expected)
    assert np.isnan(image[:, columns * 35 // 100]).all()  # the gap stays empty


@pytest.mark.parametrize("decades", [0.5, 4])
def test_numbers_at_logarithmic_axes_are_text(decades):
    """Of any figure: matplotlib's own labels are formulas, which a page would show as their source."""
    figure, (axis,) = canvas()
    axis.loglog([1, 10**decades], [1e-4, 1e-4 * 10**decades])
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", svg(figure, "log", ""))
    assert not any("$" in label or "math" in label for label in labels)
    assert {"1", "10⁻⁴"} <= set(labels)


def test_names_with_formula_signs_are_drawn_as_they_are():
    figure, (axis,) = canvas()
    axis.set_title("$\\frac{a & <b>")
    text = svg(figure, "a", 'label "<x>"')
    assert "$\\frac{a &amp; &lt;b&gt;" in text
    assert 'aria-label="label &quot;&lt;x&gt;&quot;"' in text


def test_figures_do_not_share_identifiers():
    def one(name: str) -> set[str]:
        figure, (axis,) = canvas()
        axis.plot([0, 1], [0, 1], "o-")
        return set(re.findall(r'id="([^"]*)"', svg(figure, name, "")))

    assert one("a")
    assert not one("a") & one("b")


def test_without_faults_the_page_says_so():
    empty = Diagnosis("log.csv", "csv", 3.0, "")
    assert "✓</span> OK" in diagnosis_page(empty)
    limit = Finding("not_observable", "info", 1.0, "No IMU in this log.", "", "Log the IMU and fly again.")
    text = diagnosis_page(replace(empty, findings=(limit,)))
    assert "✓</span> OK" not in text
    assert text.index("No problem was found, but this log does not contain everything") < text.index(
        "Log the IMU and fly again."
    )


@pytest.mark.parametrize(
    ("mean", "words"), [(3.0, "Overconfident"), (0.2, "Underconfident"), (1.0, "Yes"), (1.1, "Yes")]
)
def test_both_sides_of_the_band_are_named(mean, words):
    row = replace(diagnosis().consistency[0], mean=mean)
    text = diagnosis_page(replace(Diagnosis("a", "csv", 1.0, "kf"), consistency=(row,)))
    assert f'<p class="answer">{words}' in text


def test_findings_with_one_remedy_are_one_card():
    same = [
        Finding("time_base", "warning", 0.9, f"{name}: the rate is wrong.", "", "Use the stamps.") for name in "abc"
    ]
    other = Finding("gaps", "warning", 0.9, "Gaps.", "", "Use a faster card.")
    text = diagnosis_page(replace(Diagnosis("log.csv", "csv", 3.0, ""), findings=(*same, other)))
    assert text.count("<dd>Use the stamps.</dd>") == 1
    assert text.count('<div class="notice warning">') == 3  # the verdict in one line, and two cards
    assert "b: the rate is wrong. c: the rate is wrong." in text


def test_the_key_figure_is_that_of_all_channels():
    """Wherever its row stands: rows of other streams may come first."""
    found = diagnosis()
    rows = sorted(found.consistency, key=lambda row: row.name == ALL_CHANNELS)
    assert rows[-1].name == ALL_CHANNELS != rows[0].name
    assert overall_row(rows) is rows[-1]
    assert overall_row(rows[:1]) is rows[0]
    assert overall_row([]) is None


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("better", "is better by"), ("worse", "not saved"), ("unchanged", "which is kept")],
)
def test_the_page_says_whether_a_fix_holds(outcome, words):
    page = diagnosis_page(Diagnosis("a", "csv", 1.0, "kf", fix=replace(diagnosis().fix, outcome=outcome)))
    assert words in page
