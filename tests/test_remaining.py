"""Wherever progress is shown, it ends with the time that is left."""

from __future__ import annotations

import io
import re

import pytest
import torch

import fwnkf
from fwnkf.cli import batch, data, run
from fwnkf.remaining import Remaining, duration
from fwnkf.scale.batch import Progress

LEFT = re.compile(r"\d+ (s|min|h)( \d+ min)? left")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    monkeypatch.setitem(Remaining.__init__.__kwdefaults__, "clock", made)
    return made


@pytest.mark.parametrize("speed", [0.03, 1.0, 40.0])
def test_the_time_left_is_what_a_steady_worker_takes(speed):
    clock = Clock()
    remaining = Remaining(500, 100, clock=clock)
    for done in range(101, 501):
        clock.now += 1 / speed
        assert remaining.seconds(done) == pytest.approx((500 - done) / speed, abs=1e-6)
    assert remaining.left(500) == ""


def test_nothing_is_foretold_before_anything_is_done():
    clock = Clock()
    assert Remaining(None, clock=clock).left(5) == ""
    clock.now += 10
    assert Remaining(10, 4, clock=clock).left(4) == ""
    assert Remaining(10, 4, clock=clock).added(2) == ""


def test_durations_are_never_too_short_and_at_most_a_unit_too_long():
    units = {"s": 1, "min": 60, "h": 3600}
    for seconds in [0.1, 1, 42.2, 59, 59.2, 61, 3540, 3541, 3600, 3661, 86_000]:
        words = duration(seconds).split()
        said = sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
        assert seconds <= said <= seconds + (1 if seconds <= 59 else 61)


# ---- the displays ----------------------------------------------------------------------------------------------------


def test_run_shows_it(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    report = run._progress(1000, clock.now)
    clock.now += 30
    report(type("Summary", (), {"samples": 250})())
    assert "250 samples of 1,000, 2 min left" in capsys.readouterr().err


def test_batch_shows_it(clock, capsys):
    report = batch._progress(clock.now)
    clock.now += 30
    report(Progress(parts=4, parts_done=3, rows=9))
    assert "3 of 4 files" in (shown := capsys.readouterr().err)
    assert "10 s left" in shown


def test_a_download_shows_it_from_where_it_was_continued(clock, capsys):
    report = data._progress()
    report("a.zip", 900, 1000)
    clock.now += 10
    report("a.zip", 950, 1000)
    assert "95.0 % a.zip, 10 s left" in capsys.readouterr().err


def test_a_fit_shows_it():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(4, 200, 1, generator=generator, dtype=torch.float64)
    one, lines = torch.ones(1, 1, dtype=torch.float64), []
    fwnkf.fit(fwnkf.build("kf", F=0.5 * one, H=one, Q=one, R=one), y, held_out=0.25, progress=lines.append)
    iterations = [line for line in lines if line.startswith("iteration")]
    assert len(iterations) > 1
    assert all(re.search(rf", at most {LEFT.pattern}$", line) for line in iterations)


def test_training_shows_it_on_a_terminal_and_in_a_file(clock):
    pytest.importorskip("lightning")
    from rich.console import Console

    from fwnkf.training.progress import ProgressLine

    class Trainer:
        global_step, is_global_zero = 10, True
        callback_metrics: dict[str, float] = {}  # noqa: RUF012

    for terminal in (False, True):
        written = io.StringIO()
        line = ProgressLine("run", 40)
        line.console = Console(file=written, force_terminal=terminal, width=120)
        trainer = Trainer()
        line.on_train_start(trainer, None)
        trainer.global_step = 20
        clock.now += 60
        if terminal:
            assert [type(column).__name__ for column in line.bar.columns].count("TimeRemainingColumn") == 1
        line.on_train_batch_end(trainer, None, None, None, 0)
        line.on_validation_end(trainer, None)
        line.on_train_end(trainer, None)
        if not terminal:
            assert "step 20/40" in written.getvalue()
            assert written.getvalue().rstrip().endswith("2 min left")
