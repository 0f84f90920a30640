"""Records from a folder of logs: on a grid, split without shared samples, with a linear model."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from fwnkf.data import tables
from fwnkf.data.recording import assert_disjoint
from fwnkf.data.tables import Columns
from fwnkf.errors import ConfigError, DataError
from tests.data.test_fuzz import TABLE, alarm
from tests.tolerances import assert_close, assert_same_bits

H_STEP = 0.05
F = np.array([[1.0, 0.0, H_STEP, 0.0], [0.0, 1.0, 0.0, H_STEP], [0.0, 0.0, 0.97, 0.0], [0.0, 0.0, 0.0, 0.97]])
H = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
STD_Q, STD_R = np.array([0.01, 0.01, 0.2, 0.2]), np.array([0.5, 0.3])
COLUMNS = Columns(("px", "py", "vx", "vy"), ("gps_x", "gps_y"), time="t")
SMALL = Columns(("x",), ("y",), time="t")


def write(folder, name, columns):
    """A CSV by hand: every number as Python writes it, NaN as an empty cell."""
    rows = zip(*columns.values(), strict=True)
    cells = [",".join("" if isinstance(v, float) and math.isnan(v) else repr(v) for v in row) for row in rows]
    path = folder / name
    path.write_text(",".join(columns) + "\n" + "\n".join(cells) + "\n")
    return path


def simulate(rng, steps, B=None):
    """A cart with friction in the plane: truth, measurements and the control that acts from each row to the next."""
    x, truth, u = rng.standard_normal(4), [], rng.standard_normal((steps, 1))
    for t in range(steps):
        truth.append(x)
        x = F @ x + STD_Q * rng.standard_normal(4) + (0.0 if B is None else B @ u[t])
    truth = np.array(truth)
    return truth, truth @ H.T + STD_R * rng.standard_normal((steps, 2)), u


def carts(folder, rng, files, steps, B=None):
    for number in range(files):
        truth, y, u = simulate(rng, steps, B)
        values = np.concatenate((np.arange(steps)[:, None] * H_STEP, truth, y, u), -1).T.tolist()
        names = ("t [s]", "px [m]", "py", "vx", "vy", "gps_x", "gps_y", "push")
        write(folder, f"run{number}.csv", dict(zip(names, values, strict=True)))


def ramp(folder, name, time, **more):
    """Values equal to their row number."""
    rows = [float(i) for i in range(len(time))]
    return write(folder, name, {"t [s]": list(time), "x": rows, "y": rows, **more})


# ---- columns and clocks ---------------------------------------------------------------------------------------------


def test_contradictory_columns_are_refused():
    for given in (
        {"state": ("x",), "observe": ()},
        {"state": ("x", "x"), "observe": ("y",)},
        {"state": ("x",), "observe": ("y",), "angles": ("z",)},
        {"state": ("x",), "observe": ("t",), "time": "t"},
        {"state": ("x",), "observe": ("y",), "control": ("x",)},
    ):
        with pytest.raises(ConfigError):
            Columns(**given)
    with pytest.raises(ConfigError, match="fwnkf fit"):  # training needs the truth
        tables.load(".", Columns((), ("y",)))
    with pytest.raises((ConfigError, TypeError)):  # the pass with shape checks is faster
        Columns("px", ("y",))


@pytest.mark.parametrize(
    ("name", "scale", "start", "unit", "source"),
    [
        ("t [ms]", 1e3, 0.0, "ms", "header"),
        ("t (µs)", 1e6, 0.0, "us", "header"),
        ("t_ms", 1e3, 0.0, "ms", "name"),
        ("timestamp_ns", 1e9, 1.7e18, "ns", "name"),
        ("t", 1.0, 0.0, "s", "guess"),
        ("t", 1e3, 0.0, "ms", "guess"),
        ("t", 1e6, 0.0, "us", "guess"),
        ("t", 1e9, 0.0, "ns", "guess"),
        ("t", 1.0, 1.7e9, "s", "guess"),
        ("t", 1e3, 1.7e12, "ms", "guess"),
        ("t", 1e6, 1.7e15, "us", "guess"),
        ("t", 1e9, 1.7e18, "ns", "guess"),
    ],
)
def test_units_of_time(tmp_path, name, scale, start, unit, source):
    exact = scale > 1
    stamps = [(round(start) + round(i * 0.02 * scale)) if exact else start + i * 0.02 for i in range(100)]
    write(tmp_path, "a.csv", {name: stamps, "x": [0.1 * i for i in range(100)], "y": [0.2 * i for i in range(100)]})
    survey = tables.survey(tmp_path, Columns(("x",), ("y",), time=name))
    (one,) = survey.files
    assert (one.time_unit, one.time_unit_from) == (unit, source)
    assert one.rate == pytest.approx(50.0, rel=1e-6)
    assert one.duration == pytest.approx(99 * 0.02, rel=1e-6)
    assert any("guessed" in line for line in survey.lines()) == (source == "guess")


def test_an_unknown_unit_of_time_is_refused(tmp_path):
    write(tmp_path, "a.csv", {"t [min]": [0.0, 1.0], "x": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(DataError, match="'min'; expected one of s, ms, us, ns"):
        tables.survey(tmp_path, SMALL)


def test_stamps_rounded_to_milliseconds_do_not_bias_the_rate(tmp_path):
    ramp(tmp_path, "a.csv", [round(i / 30, 3) for i in range(600)])
    protocol, survey = tables.load(tmp_path, SMALL, window=30)
    assert survey.files[0].rate == pytest.approx(30.0, rel=1e-4)
    assert 0 < survey.files[0].jitter < 1e-3
    assert bool(protocol.split.train.mask.all())  # no sample lost, none missing


def test_survey_of_gaps_repeats_and_holes(tmp_path):
    time = [i * 0.1 for i in range(40)] + [10.0 + i * 0.1 for i in range(40)]
    time[5], time[60] = time[4], time[50]
    values = [float(i) for i in range(80)]
    holes = [math.nan if i % 10 == 0 else v for i, v in enumerate(values)]
    write(tmp_path, "a.csv", {"t [s]": time, "x [m]": values, "y": holes, "c": [1.0] * 80})
    survey = tables.survey(tmp_path, Columns(("x",), ("y",), ("c",), "t"))
    (one,) = survey.files
    assert one.rows == 80
    assert one.rate == pytest.approx(10.0)
    assert (one.duplicates, one.backward) == (1, 1)
    assert one.gaps == 3  # the pause, and where a row is left out
    assert (one.longest_gap, one.longest_gap_at, one.longest_gap_row) == (pytest.approx(6.1), pytest.approx(3.9), 39)
    assert one.missing == {"y": 8}
    assert one.constant == ("c",)
    assert one.units == {"t": "s", "x": "m"}
    text = "\n".join(survey.lines())
    assert all(word in text for word in ("a.csv", "10 Hz", "6.1 s", "8 of 80", "constant: c", "decrease"))


def test_without_time_a_row_is_a_second(tmp_path):
    ramp(tmp_path, "a.csv", [0.1 * i for i in range(60)])
    protocol, survey = tables.load(tmp_path, Columns(("x",), ("y",)), window=8)
    assert survey.files[0].rate == 1.0
    assert any("1 Hz" in line and "'t [s]'" in line for line in survey.lines())
    assert_same_bits(protocol.split.train.dt[0], torch.tensor([0.0] + [1.0] * 7))


# ---- grid, windows, splits ------------------------------------------------------------------------------------------


def test_missing_samples_are_masked_in_their_place(tmp_path):
    kept = [i for i in range(100) if i not in (7, 20, 21, 22)]
    rows = [float(i) for i in kept]
    holes = [math.nan if i == 30 else float(i) for i in kept]
    blind = [math.nan if i == 40 else float(i) for i in kept]
    write(tmp_path, "a.csv", {"t [s]": [i * 0.1 + 5 for i in kept], "x": blind, "y": holes, "z": rows})
    protocol, _ = tables.load(tmp_path, Columns(("x",), ("y", "z"), time="t"), window=60)
    task = protocol.split.train
    expected = torch.arange(60.0)
    gone = torch.isin(torch.arange(60), torch.tensor([7, 20, 21, 22]))
    assert_same_bits(task.y[0, :, 1], torch.where(gone, torch.nan, expected))
    assert_same_bits(task.y[0, :, 0], torch.where(gone | (expected == 30), torch.nan, expected))
    assert_same_bits(task.truth[0, :, 0], torch.where(gone | (expected == 40), torch.nan, expected))
    assert torch.equal(task.mask, task.y.isfinite())
    assert_close(task.dt[0], torch.tensor([0.0] + [0.1] * 59), "rounding")


def test_jitter_finds_the_nearest_point_and_uses_no_sample_twice(tmp_path, rng):
    time = np.arange(400) * 0.01 + rng.uniform(-0.0024, 0.0024, 400)
    time[0] = 0.0045  # a late first stamp does not shift the rest
    ramp(tmp_path, "a.csv", time.tolist())
    protocol, survey = tables.load(tmp_path, SMALL, window=240)
    seen = protocol.split.train.y[0, :, 0]
    assert survey.files[0].jitter == pytest.approx(0.0024 * math.sqrt(2 / 3), rel=0.1)
    assert_same_bits(seen, torch.arange(240.0))


def test_values_of_one_point_on_different_rows_come_together(tmp_path):
    rows = [(0.1 * i, float(i), math.nan) for i in range(100)]
    rows += [(0.1 * i + 0.02, math.nan, float(i)) for i in range(0, 100, 10)]  # a slow sensor writes rows of its own
    write(tmp_path, "a.csv", dict(zip(("t [s]", "x", "y"), map(list, zip(*sorted(rows), strict=True)), strict=True)))
    task = tables.load(tmp_path, SMALL, window=60)[0].split.train
    expected = torch.arange(60.0)
    assert_same_bits(task.truth[0, :, 0], expected)
    assert_same_bits(task.y[0, :, 0], torch.where(expected % 10 == 0, expected, torch.nan))


def test_uneven_rows_are_remarked(tmp_path):
    ramp(tmp_path, "a.csv", [0.1 * (i // 2) + 0.01 * (i % 2) for i in range(100)])
    assert any("not evenly spaced" in line for line in tables.survey(tmp_path, SMALL).lines())


def test_a_clock_that_runs_backwards_is_refused_and_a_single_slip_is_dropped(tmp_path):
    time = [i * 0.1 for i in range(200)]
    ramp(tmp_path, "a.csv", [*time[:150], *time[:50]])
    with pytest.raises(DataError, match=r"a\.csv.*decrease.*split the file"):
        tables.load(tmp_path, SMALL)
    time[100] = time[98]
    ramp(tmp_path, "a.csv", time)
    protocol, _ = tables.load(tmp_path, SMALL, window=120)
    assert torch.equal((~protocol.split.train.mask[0, :, 0]).nonzero().flatten(), torch.tensor([100]))
    assert any("decrease" in note for note in protocol.notes)


def test_a_jump_of_the_clock_does_not_fill_the_memory(tmp_path):
    ramp(tmp_path, "a.csv", [i * 0.1 for i in range(100)] + [1.7e9 + i * 0.1 for i in range(100)])
    with pytest.raises(DataError, match=r"most samples are missing.*after row 99"):
        tables.load(tmp_path, SMALL)


@pytest.mark.parametrize("files", [1, 2, 3, 7])
def test_no_split_shares_a_sample_and_all_are_used(tmp_path, rng, files):
    carts(tmp_path, rng, files, 400)
    protocol, _ = tables.load(tmp_path, COLUMNS, window=20)
    assert (protocol.name, protocol.data) == ("strict", "tables")
    named = [[_Named(span) for span in task.spans] for task in protocol.split]
    assert_disjoint(*named)
    assert sum(span.stop - span.start for task in protocol.split for span in task.spans) == 400 * files
    sources = [{span.source for span in task.spans} for task in protocol.split]
    if files >= 3:
        assert not any(a & b for i, a in enumerate(sources) for b in sources[:i])
        assert [len(names) for names in sources] == [files - 2, 1, 1]
    else:
        assert all(len(names) == files for names in sources)
        for source in sources[0]:  # the past trains, the future tests
            ends = [[s for s in task.spans if s.source == source] for task in protocol.split]
            assert ends[0][-1].stop == ends[1][0].start == 280
            assert ends[1][-1].stop == ends[2][0].start == 340
    assert any("split by" in note for note in protocol.notes)


class _Named:
    def __init__(self, span):
        self.span, self.name = span, str(span)


def test_the_same_call_gives_the_same_bits_and_the_seed_moves_files(tmp_path, rng):
    carts(tmp_path, rng, 6, 60)
    one, other, moved = (tables.load(tmp_path, COLUMNS, seed=seed)[0] for seed in (0, 0, 1))
    for a, b in zip(one.split, other.split, strict=True):
        for name in ("y", "truth", "mask", "dt"):
            assert_same_bits(getattr(a, name), getattr(b, name), name)
        assert_same_bits(a.start.cov, b.start.cov)
        assert_same_bits(a.system.F, b.system.F)
        assert a.spans == b.spans
    assert one.notes == other.notes
    assert [s.source for s in one.split.test.spans] != [s.source for s in moved.split.test.spans]


def test_the_last_window_is_padded_or_dropped(tmp_path):
    for name, steps in (("a.csv", 45), ("b.csv", 43), ("c.csv", 40)):
        ramp(tmp_path, name, [0.1 * i + steps for i in range(steps)])
    protocol, _ = tables.load(tmp_path, SMALL, window=20)
    by_name = {span.source: [] for task in protocol.split for span in task.spans}
    for task in protocol.split:
        for row, span in enumerate(task.spans):
            by_name[span.source].append((span.start, span.stop, task.take([row])))
    assert [(a, b) for a, b, _ in by_name["a.csv"]] == [(0, 20), (20, 40), (40, 45)]
    assert [(a, b) for a, b, _ in by_name["b.csv"]] == [(0, 20), (20, 40)]
    last = by_name["a.csv"][-1][2]
    assert int(last.mask.sum()) == int(last.truth.isfinite().sum()) == 5
    assert bool(last.dt[0, 1:].isclose(torch.tensor(0.1)).all())
    assert any("3 step(s) at the end" in note for note in protocol.notes)


def test_errors_of_splits(tmp_path):
    ramp(tmp_path, "a.csv", [0.1 * i for i in range(100)])
    with pytest.raises(DataError, match="val: no window of 100 steps"):
        tables.load(tmp_path, SMALL, window=100)
    assert tables.load(tmp_path, SMALL)[0].split.train.y.shape[1] == 15  # the shortest piece
    for wrong in ({"fractions": (0.5, 0.5, 0.0)}, {"window": 1}):
        with pytest.raises(ConfigError):
            tables.load(tmp_path, SMALL, **wrong)


def test_files_that_do_not_belong_together(tmp_path):
    for number, rate in enumerate((10.0, 10.1, 10.0, 25.0)):
        ramp(tmp_path, f"{number}.csv", [number + i / rate for i in range(50)])
    with pytest.raises(DataError, match=r"at 10\.\d* Hz, but 3\.csv at 25 Hz"):
        tables.load(tmp_path, SMALL)
    (tmp_path / "3.csv").write_bytes((tmp_path / "0.csv").read_bytes())
    with pytest.raises(DataError, match="same recording"):
        tables.load(tmp_path, SMALL)


def test_a_code_for_missing_values_is_noticed(tmp_path):
    rows = [float(i) for i in range(50)]
    write(tmp_path, "a.csv", {"t [s]": rows, "x": rows, "y": [*rows[:-1], 1e30]})
    with pytest.raises(DataError, match=r"a\.csv, row 49, column 'y'.*missing values"):
        tables.load(tmp_path, SMALL)


def test_parquet_gives_the_same_records(tmp_path, rng):
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    truth, y, _ = simulate(rng, 300)
    stamps = np.arange(300) * 50_000_000 + 1_700_000_000_000_000_000
    values = dict(zip(("px", "py", "vx", "vy", "gps_x", "gps_y"), [*truth.T, *y.T], strict=True))
    (tmp_path / "p").mkdir()
    (tmp_path / "c").mkdir()
    writer.write_table(
        arrow.table({"t": arrow.array(stamps, arrow.timestamp("ns")), **values}), tmp_path / "p/run.parquet"
    )
    write(tmp_path / "c", "run.csv", {"t_ns": stamps.tolist(), **{k: v.tolist() for k, v in values.items()}})
    one, survey = tables.load(tmp_path / "p", COLUMNS)
    other, _ = tables.load(tmp_path / "c", Columns(COLUMNS.state, COLUMNS.observe, time="t_ns"))
    assert survey.files[0].time_unit == "ns"
    for a, b in zip(one.split, other.split, strict=True):
        assert_same_bits(a.y, b.y)
        assert_same_bits(a.truth, b.truth)
        assert_same_bits(a.dt, b.dt)


def test_controls_are_held_and_act_on_the_way_to_the_next_row(tmp_path):
    time = [0.1 * i for i in range(100)]
    push = [math.nan if i in (0, 5, 6) else float(i) for i in range(100)]
    ramp(tmp_path, "a.csv", time, push=push)
    train = tables.load(tmp_path, Columns(("x",), ("y",), ("push",), "t"), window=35)[0].split.train
    expected = torch.tensor([0.0, 0.0, *[4.0 if i in (5, 6) else float(i) for i in range(1, 69)]])
    assert_same_bits(train.u.flatten(), expected)


def test_remarks(tmp_path):
    values = [47.37 + 1e-5 * (i % 7) for i in range(300)]
    rows = [float(i) for i in range(300)]
    write(tmp_path, "a.csv", {"t [s]": rows, "lat": values, "odd": [3.0 + math.sin(7.0 * i * i) for i in range(300)]})
    protocol, _ = tables.load(tmp_path, Columns(("lat",), ("lat", "odd"), time="t"))
    text = "\n".join(protocol.notes)
    assert "lose precision in float32" in text
    assert "both measurement and ground truth" in text
    assert "odd is not a linear function" in text
    assert "steps of the training records" in text


# ---- mutants --------------------------------------------------------------------------------------------------------


def test_mutants_are_refused_or_make_sane_records(tmp_path, rng):
    carts(tmp_path, rng, 1, 80)
    path = tmp_path / "run0.csv"
    original, outcomes = path.read_bytes(), {"read": 0, "refused": 0}
    for _ in range(300):
        data = original
        for _ in range(int(rng.integers(1, 3))):
            try:
                data = TABLE[int(rng.integers(len(TABLE)))](data, rng)
            except Exception:  # the second mutation may not apply to the result of the first
                break
        path.write_bytes(data)
        with alarm():
            try:
                protocol, survey = tables.load(path, COLUMNS, window=8)
            except DataError:
                outcomes["refused"] += 1
                continue
        outcomes["read"] += 1
        assert survey.lines()
        json.dumps(dataclasses.asdict(survey), allow_nan=False)
        for task in protocol.split:
            assert torch.equal(task.mask, task.y.isfinite())
            assert bool(task.start.cov.isfinite().all())
            assert bool(torch.linalg.cholesky_ex(task.start.cov).info == 0)
            assert all(bool(value.isfinite().all()) for value in task.system.state_dict().values())
    assert min(outcomes.values()) > 30
