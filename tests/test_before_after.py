"""The before/after figure: white noise at one, and bars with the errors of their method."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fwnkf.errors import ConfigError
from fwnkf.metrics.spectrum import innovation_spectrum

pytest.importorskip("matplotlib", reason="plots come with the extra 'plot'")
ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("before_after", ROOT / "benchmarks" / "before_after.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
before_after = module.before_after

ERRORS = {"low-pass": {"x": 3.0, "y": 4.0}, "white": {"x": 2.0, "y": 5.0}, "ours": {"x": 1.0, "y": 1.5}}


@pytest.fixture(scope="module")
def spectra():
    noise = torch.randn(40, 2000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    half = innovation_spectrum(noise / 2, rate=400.0, segment=100)
    return {"white": half, "ours": innovation_spectrum(noise, rate=400.0, segment=100)}


def test_white_noise_of_unit_variance_is_drawn_at_one(spectra):
    left, _ = before_after(spectra, ERRORS, bands=(34.2,)).axes
    reference, quarter, ours, band = left.lines  # half the innovations have a quarter of the power
    assert set(reference.get_ydata()) == {1.0}
    assert torch.as_tensor(ours.get_ydata()).sub(1).abs().max() < 0.06
    torch.testing.assert_close(torch.as_tensor(quarter.get_ydata()), torch.as_tensor(ours.get_ydata()) / 4)
    assert (min(ours.get_xdata()), max(ours.get_xdata())) == (8.0, 196.0)
    assert band.get_xdata()[0] == 34.2
    assert [text.get_text() for text in left.texts] == ["34"]


def test_bars_are_the_errors_in_the_colour_of_their_method(spectra):
    figure = before_after(spectra, ERRORS, title="a title", error_label="RMSE (m)")
    left, right = figure.axes
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in right.containers}
    assert heights == {name: list(values.values()) for name, values in ERRORS.items()}
    colours = {bars.get_label(): bars[0].get_facecolor()[:3] for bars in right.containers}
    assert len(set(colours.values())) == 3
    for drawn, name in zip(left.lines[1:3], spectra, strict=True):
        assert colours[name] == pytest.approx([int(drawn.get_color()[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bars in right.containers for bar in bars)
    assert all(a[1] < b[0] for a, b in pairwise(edges))  # bars do not overlap
    assert right.get_ylabel() == "RMSE (m)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(ERRORS)


def test_inconsistent_methods_or_quantities_are_refused(spectra):
    with pytest.raises(ConfigError, match="every method with a spectrum"):
        before_after(spectra, {"white": {"x": 1.0}})
    with pytest.raises(ConfigError, match="same quantities: x, y"):
        before_after(spectra, {**ERRORS, "ours": {"x": 1.0}})
