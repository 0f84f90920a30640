"""Long runs in pieces against one run of the whole, and against the dense smoother."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core.preprocess import Calibration, CalibrationConfig
from fwnkf.errors import DataError
from fwnkf.runtime.log_records import log_records
from fwnkf.runtime.recordings import LONGEST_GAP, Summary, run_long

from ..conformance.cases import shake

STEP = 0.01


def moving(continuous: bool = True) -> fwnkf.Filter:
    """A point with velocity; position and velocity are measured."""
    F = torch.tensor([[0.0, 1.0], [0.0, 0.0]]) if continuous else torch.tensor([[1.0, STEP], [0.0, 1.0]])
    Q = torch.diag(torch.tensor([0.0, 1.0])) * (1.0 if continuous else STEP)
    return fwnkf.KF(F=F, H=torch.eye(2), Q=Q, R=torch.eye(2) * 0.1, continuous=continuous, dt=STEP).double()


def composed() -> fwnkf.Filter:
    """The same point with lines in the noise, a level that is tracked and an encoder."""
    motion = moving()
    system = fwnkf.LinearSystem.of(
        F=motion.system.F, H=motion.system.H, Q=motion.system.Q(), R=motion.system.R(), continuous=True, dt=STEP
    )
    parts = {"level": fwnkf.Level(seconds=1.0), "encoder": fwnkf.GRU(4)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return shake(fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=12.0, std=0.3), **parts), 0.05).requires_grad_(False)


def blocks(time: np.ndarray, values: np.ndarray, size: int = 37) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(time[i : i + size], values[i : i + size]) for i in range(0, len(time), size)]


def collect(model: fwnkf.Filter, time: np.ndarray, values: np.ndarray, **options: object) -> tuple[np.ndarray, ...]:
    rows: list[tuple[np.ndarray, ...]] = []
    summary = Summary()
    run_long(model, blocks(time, values), lambda *row: rows.append(row), summary=summary, steps=50, **options)
    return (*(np.concatenate(item) for item in zip(*rows, strict=True)), summary)


def samples(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    values = np.random.default_rng(0).normal(size=(count, 2))
    values[::7, 1] = np.nan
    return STEP * np.arange(count), values


def tensors(values: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.from_numpy(values)[None]
    return y.nan_to_num(0.0), y.isfinite()


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("engine", ["loop", "native"])
@pytest.mark.parametrize("make", [moving, composed])
def test_filtered_in_pieces_is_the_same_bits_as_one_run(make: Callable[[], fwnkf.Filter], engine: str) -> None:
    time, values = samples()
    model = make()
    y, mask = tensors(values)
    whole = model.run(y, mask=mask, engine=engine)
    stamps, mean, cov, summary = collect(model, time, values, engine=engine)
    assert summary.engine == engine
    assert np.array_equal(stamps, time)
    assert np.array_equal(mean, whole.mean[0].numpy())
    assert np.array_equal(cov, whole.cov[0].numpy())
    assert (summary.samples, summary.missing, summary.restarts) == (400, 0, 0)
    weight = mask.double()
    normalised = []
    for t in range(400):
        used = weight[0, t].bool()
        r, S = whole.innovation[0, t][used], whole.innovation_cov[0, t][used][:, used]
        normalised.append(float(r @ torch.linalg.solve(S, r)))
    assert summary.nis == pytest.approx(sum(normalised) / float(weight.sum()), rel=1e-10)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("make", [moving, composed])
@pytest.mark.parametrize("lag", [None, 0, 12, 120])
def test_smoothed_in_pieces_is_the_smoothed_whole(make: Callable[[], fwnkf.Filter], lag: int | None) -> None:
    time, values = samples(250)
    model = make()
    y, mask = tensors(values)
    whole = fwnkf.smooth(model, model.run(y, mask=mask, smoothing=True), lag=lag)
    stamps, mean, cov, summary = collect(model, time, values, smoothing=True, lag=lag)
    assert np.array_equal(stamps, time)
    assert np.allclose(mean, whole.mean[0].numpy(), rtol=0, atol=1e-9)
    assert np.allclose(cov, whole.cov[0].numpy(), rtol=0, atol=1e-9)
    assert summary.samples == 250


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("smoothing", [False, True])
@pytest.mark.parametrize("continuous", [False, True])
def test_missing_samples_are_steps_without_measurement(continuous: bool, smoothing: bool) -> None:
    time, values = samples()
    present = np.ones(400, bool)
    present[[5, 37, 38, 100]] = False
    present[200:290] = False
    model = moving(continuous)
    gone = values.copy()
    gone[~present] = np.nan
    y, mask = tensors(gone)
    track = model.run(y, mask=mask, smoothing=True)
    expected = fwnkf.smooth(model, track).mean if smoothing else track.mean
    stamps, mean, _, summary = collect(model, time[present], values[present], smoothing=smoothing)
    assert np.array_equal(stamps, time[present])
    assert np.allclose(mean, expected[0].numpy()[present], rtol=0, atol=1e-9)
    assert summary.missing == int((~present).sum())


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_irregular_samples_run_with_their_own_steps() -> None:
    time, values = samples()
    time = time + np.random.default_rng(1).uniform(0, 0.8 * STEP, 400)
    model = moving()
    y, mask = tensors(values)
    _, mean, _, summary = collect(model, time, values, stamps=True)
    assert not summary.regular
    steps = np.diff(time, prepend=time[0] - STEP)
    track = model.run(y, mask=mask, dt=torch.from_numpy(steps)[None])
    # the length of the first step is not known: its effect has decayed after 50 steps
    assert np.allclose(mean[50:], track.mean[0].numpy()[50:], atol=1e-6)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_stamps_that_jitter_are_equal_steps_without_missing_ones() -> None:
    time, values = samples()
    late = time + np.where(np.arange(400) % 5 == 2, 0.9 * STEP, 0.0)
    model = moving()
    y, mask = tensors(values)
    _, mean, _, summary = collect(model, late, values)
    assert summary.regular
    assert summary.missing == 0
    assert np.array_equal(mean, model.run(y, mask=mask, engine="loop").mean[0].numpy())


def test_a_stiff_filter_survives_long_steps() -> None:
    """A decay of 450/s over 0.12 s: the exact matrices of such a step cancel, those of its parts do not."""
    F = torch.tensor([[0.0, 1.0], [0.0, -450.0]])
    model = fwnkf.KF(F=F, H=torch.eye(1, 2), Q=torch.diag(torch.tensor([0.0, 1e5])), R=torch.eye(1) * 1e-4,
                     continuous=True, dt=0.0045).double()  # fmt: skip
    time = np.cumsum(np.where(np.arange(200) % 50 == 30, 0.12, 0.005))
    rows: list[tuple[np.ndarray, ...]] = []
    summary = run_long(model, [(time, np.sin(time)[:, None])], lambda *row: rows.append(row))
    assert not summary.regular
    assert summary.flagged == 0
    cov = np.concatenate([row[2] for row in rows])
    assert np.linalg.eigvalsh(cov).min() > 0


def test_a_filter_with_a_fixed_step_names_both_rates() -> None:
    time, values = samples()
    with pytest.raises(DataError, match=r"100 Hz.*50 Hz"):
        collect(moving(continuous=False), 2 * time, values)
    with pytest.raises(DataError, match="no samples"):
        run_long(moving(), [], lambda *row: None)


def test_bursts_of_samples_do_not_fill_the_memory() -> None:
    """Ten samples within 10 ns, then nothing for 5 s: the pauses would be hundreds of millions of steps."""
    time = (5.0 * np.arange(40)[:, None] + 1e-9 * np.arange(10)).ravel()
    with pytest.raises(DataError, match=r"samples stand for .* steps"):
        collect(moving(), time, np.zeros((400, 2)))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_after_a_long_gap_the_filter_starts_anew() -> None:
    time, values = samples()
    time[250:] += LONGEST_GAP + 1
    for smoothing in (False, True):
        _, mean, _, summary = collect(moving(), time, values, smoothing=smoothing)
        again = collect(moving(), time[250:], values[250:], smoothing=smoothing)[1]
        assert np.array_equal(mean[250:], again)
        assert summary.restarts == 1
        assert "2.490 s" in summary.notes[0]


def test_blocks_of_a_preprocessing_stay_aligned() -> None:
    time, values = samples(401)
    model = moving()
    model.system.dt = 4 * STEP
    model.preprocess = Calibration(CalibrationConfig(channels=2, block=4)).double()
    y, mask = tensors(values)
    whole = model.run(y, mask=mask)
    stamps, mean, _, _ = collect(model, time, values)
    assert np.array_equal(stamps, time[3::4][:100])
    assert np.array_equal(mean, whole.mean[0].numpy())


def test_controls_act_from_their_sample_until_the_next_one() -> None:
    model = fwnkf.KF(
        F=torch.eye(1), B=torch.ones(1, 1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1), dt=STEP
    ).double()
    time = STEP * np.arange(200)
    values = np.full((200, 2), np.nan)
    values[:, 0] = np.random.default_rng(2).normal(size=200)
    values[::30, 1] = np.arange(7.0)
    acting = np.concatenate([[0.0], np.repeat(np.arange(7.0), 30)])[:200]
    _, mean, _, _ = collect(model, time, values)
    expected = model.run(torch.from_numpy(values[None, :, :1]), torch.from_numpy(acting[None, :, None]), engine="loop")
    assert np.array_equal(mean, expected.mean[0].numpy())


def test_the_first_steps_of_a_log_are_those_of_a_long_run() -> None:
    model = moving()
    time, values = samples(200)
    time[120:] += LONGEST_GAP + 1
    records = log_records(model, blocks(time, values), 10_000)
    assert [len(record.y) for record in records] == [120, 80]
    y, mask = tensors(values)
    assert torch.equal(torch.cat([record.y for record in records]), y[0])
    assert torch.equal(torch.cat([record.mask for record in records if record.mask is not None]), mask[0])
    assert len(log_records(model, blocks(time, values), 50)) == 1
