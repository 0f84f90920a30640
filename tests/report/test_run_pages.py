"""Pages of compare, inspect and train: what they say follows from the rows, and what a run folder says is escaped."""

from __future__ import annotations

import json
import math

import pytest
import torch

import fwnkf
from fwnkf.cli.main import main
from fwnkf.evaluation.runs import compare

from ..evaluation.run_folders import make_run, row
from .test_page import HOSTILE, Reader

pytest.importorskip("matplotlib", reason="figures come with the extra 'plot'")
from fwnkf.report import plots
from fwnkf.report.run_pages import comparison_page, filter_page, training_page


def words(page: str) -> str:
    reader = Reader(page)
    reader.check()
    return " ".join("".join(reader.words).split())


def test_compare_writes_a_page(tmp_path, capsys):
    folders = [
        make_run(tmp_path / str(seed), [row("mine", mse=0.1 + seed), row("ekf", mse=0.4)], seed=seed) for seed in (0, 1)
    ]
    target = tmp_path / "page.html"
    assert main(["compare", *map(str, folders), "--html", str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "ekf has the smallest error: MSE 0.4; next is mine with 0.6." in words(text)
    assert json.loads(Reader(text).data)[0]["mse_std"] == pytest.approx(math.sqrt(0.5), rel=1e-5)
    assert "mine" in capsys.readouterr().out


def test_rows_of_a_run_are_escaped(tmp_path):
    folder = make_run(tmp_path / "a", [row(HOSTILE, mse=0.1, data=HOSTILE), row("ekf\x1b", mse=math.inf, data=HOSTILE)])
    text = words(comparison_page(compare([folder]), HOSTILE).html())
    assert "<script>alert(1)</script>" in text


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (0.2, "It is more accurate than the best baseline, ekf (an MSE 50 % lower)."),
        (0.6, "It is less accurate than the best baseline, ekf (an MSE 50 % higher)."),
        (0.401, "As accurate as the best baseline, ekf (within 1.0 %)."),
    ],
)
def test_a_training_is_judged_by_the_best_baseline(own, said):
    rows = [row("mine", mse=own, nees=1.1), row("hold", mse=9.0), row("ekf", mse=0.4, nees=1.0)]
    history = [{"step": step, "loss": 1.0 / (1 + step), "val_mse": 1.0 / (2 + step)} for step in range(5)]
    page = training_page(
        "mine", rows, {"history": plots.history(history), "noise": None}, {"seed": 3}, "fwnkf train mine"
    )
    text = words(page.html())
    assert said in text
    assert "consistent (NEES 1.1)" in text
    assert "Did the training converge?" in text
    assert "Does its noise change over time?" not in text


def test_inspect_writes_a_page(tmp_path):
    eye = torch.eye(2)
    model = fwnkf.FWNKF(fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye, dt=0.01), noise=fwnkf.Lines())
    fwnkf.save(model, tmp_path / "filter")
    target = tmp_path / "page.html"
    assert main(["inspect", str(tmp_path / "filter"), "--html", str(target), "--json"]) == 0
    text = words(target.read_text(encoding="utf-8"))
    assert "Which frequencies does it treat differently?" in text
    assert "Oscillators" in text


def test_a_filter_without_a_response_says_why():
    model = fwnkf.build("kf", F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1))
    from fwnkf.report.inspect import inspect

    assert "models white noise only" in words(filter_page("kf", inspect(model), {}).html())
