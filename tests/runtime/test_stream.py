"""A stream of live measurements: the same bits as a run, late measurements, snapshots, gaps, gate and health."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.stats import chi2

import fwnkf
from fwnkf.core.tree import named_leaves
from fwnkf.data import protocols
from fwnkf.errors import CheckpointError, ConfigError, DataError, ShapeError
from fwnkf.runtime.health import Reason
from fwnkf.runtime.stepper import MOST_STEPS

from ..conformance.cases import CASES, Case
from ..shell import shell
from ..tolerances import assert_close, assert_same_bits

STEP = 0.05


@pytest.fixture(params=list(CASES))
def case(request) -> Case:
    return CASES[request.param]


def open_stream(case: Case, dtype=torch.float32, **options) -> fwnkf.Stream:
    return fwnkf.Stream(case.build(dtype), step=STEP, **options)


def live(case: Case, steps: int, seed: int = 0) -> list[dict]:
    """Calls of ``Stream.step`` with irregular times and missing values; times of a fixed step lie on its grid."""
    generator = np.random.default_rng(seed)
    y = np.cumsum(0.3 * generator.standard_normal((steps, case.observation_dim)), 0) * 0.3
    y[generator.random(y.shape) < 0.2] = np.nan
    gaps = STEP * generator.integers(1, 3, steps)
    if case.uses_dt:
        gaps = gaps * generator.uniform(0.5, 1.0, steps)
    times = 100.0 + np.cumsum(gaps)
    controls = 0.3 * generator.standard_normal((steps, case.control_dim))
    return [
        {"y": row, "t": float(t), "u": u if case.control_dim else None}
        for row, t, u in zip(y, times, controls, strict=True)
    ]


def assert_same_estimate(mine: fwnkf.runtime.estimate.Estimate, theirs: fwnkf.runtime.estimate.Estimate) -> None:
    for name in ("mean", "cov", "innovation"):
        assert_same_bits(torch.as_tensor(getattr(mine, name)), torch.as_tensor(getattr(theirs, name)), name)
    assert (mine.time, mine.health, mine.reason) == (theirs.time, theirs.health, theirs.reason)


def test_innovations_come_with_the_deviations_that_nis_is_made_of():
    eye = torch.eye(1, dtype=torch.float64)
    stream = fwnkf.Stream(fwnkf.KF(F=eye, H=eye, Q=0.01 * eye, R=eye).double())
    for value in (1.0, 0.2, -0.5):
        estimate = stream.step(value)
        assert estimate.innovation_std.shape == (1,)
        assert estimate.nis == pytest.approx((estimate.innovation[0] / estimate.innovation_std[0]) ** 2, rel=1e-12)


# ---- the same bits -------------------------------------------------------------------------------------------------


def test_a_stream_equals_a_run(case: Case):
    model, calls = case.build(torch.float32), live(case, 8)
    stream = open_stream(case)
    estimates = [stream.step(call["y"], u=call["u"]) for call in calls]
    y = torch.as_tensor(np.stack([call["y"] for call in calls]), dtype=torch.float32)[None]
    u = (
        torch.as_tensor(np.stack([call["u"] for call in calls]), dtype=torch.float32)[None]
        if case.control_dim
        else None
    )
    with torch.no_grad():
        track = model.run(y, u, ~y.isnan())
    for k, estimate in enumerate(estimates):
        assert_same_bits(torch.as_tensor(estimate.mean), track.mean[0, k], "mean")
        assert_same_bits(torch.as_tensor(estimate.cov), track.cov[0, k], "cov")


def test_times_are_the_steps_of_a_run_and_a_batch_its_rows():
    """Four streams of an EKF in one batch, irregular in time, from a prior at the first measurement."""
    case = CASES["ekf-pendulum"]
    model, generator = case.build(torch.float64), np.random.default_rng(1)
    y, u = generator.standard_normal((4, 9, 2)), generator.standard_normal((4, 9, 1))
    y[1, 3] = np.nan
    times = 5.0 + np.cumsum(generator.uniform(0.02, 0.1, 9))
    prior = fwnkf.Gaussian(torch.full((4, 2), 0.3).double(), 0.5 * torch.eye(2).double())
    stream = fwnkf.Stream(model, streams=4, prior=(prior.mean.numpy(), prior.cov.numpy()))
    estimates = [stream.step(y[:, k], t=times[k], u=u[:, k]) for k in range(9)]
    dt = torch.as_tensor(np.diff(times, prepend=times[0])).expand(4, -1)
    whole = torch.as_tensor(y)
    with torch.no_grad():
        track = model.run(whole, torch.as_tensor(u), ~whole.isnan(), dt, prior)
    assert_same_bits(torch.as_tensor(np.stack([e.mean for e in estimates], 1)), track.mean, "mean")
    assert_same_bits(torch.as_tensor(np.stack([e.cov for e in estimates], 1)), track.cov, "cov")
    assert estimates[-1].health == "ok"
    assert estimates[3].nis.shape == (4,)
    assert math.isnan(estimates[3].nis[1])


def test_an_initial_belief_from_several_steps_is_that_of_the_run():
    """Estimated again with every further sample, at last from as many as the run takes."""

    class Averaging(fwnkf.LinearSystem):
        initial_steps = 5

        def initial_belief(self, y, weight, u):
            mean = (y * weight).sum(1) / weight.sum(1).clamp_min(1)
            return fwnkf.Gaussian(mean, torch.eye(2).expand(len(y), 2, 2).to(y))

    eye = torch.eye(2)
    model = fwnkf.EKF(Averaging.of(F=eye, H=eye, Q=0.1 * eye, R=eye))
    y = torch.randn(1, 9, 2, generator=torch.Generator().manual_seed(0))
    track = model.run(y)
    stream = fwnkf.Stream(model)
    for k in range(9):
        estimate = stream.step(y[0, k].numpy())
        if k in (3, 7):
            stream = fwnkf.Stream.restore(model, stream.snapshot())
        if k >= 4:
            assert_same_bits(torch.as_tensor(estimate.mean), track.mean[0, k], "mean")
    first = fwnkf.Stream(model).step(y[0, 0].numpy())
    assert_same_bits(torch.as_tensor(first.mean), model.run(y[:, :1]).mean[0, 0], "mean")


def check_shuffled(case: Case, steps: int, seed: int, **options) -> None:
    """In order of arrival, each up to half a second late, against in order of time."""
    calls, generator = live(case, steps, seed), np.random.default_rng(seed + 1)
    arrival = np.argsort([call["t"] + 0.499 * generator.random() for call in calls])
    assert (arrival != np.arange(steps)).any()
    ordered, shuffled = (open_stream(case, history=0.5, **options) for _ in range(2))
    for k in range(steps):
        expected = ordered.step(**calls[k])
        estimate = shuffled.step(**calls[arrival[k]])
    assert shuffled.late == 0
    assert_same_estimate(estimate, expected)
    for (name, mine), (_, theirs) in zip(
        named_leaves(shuffled._done[-1][0].filter), named_leaves(ordered._done[-1][0].filter), strict=True
    ):
        assert_same_bits(mine, theirs, name)


@pytest.mark.parametrize("name", ["kf", "kf-continuous", "ekf-attitude", "kalmannet", "rkn", "lines", "everything"])
def test_measurements_in_another_order_end_in_the_same_bits(name: str):
    check_shuffled(CASES[name], 15, seed=0, **({} if name == "rkn" else {"gate": 0.5, "recover_after": 3}))


@pytest.mark.slow
def test_measurements_of_every_filter_in_another_order_end_in_the_same_bits(case: Case):
    gate = {} if case.filter == "rkn" else {"gate": 0.9, "recover_after": 3}
    for seed in range(10):
        check_shuffled(case, 100, seed, **gate)


def check_snapshots(case: Case, steps: int, cuts: int, seed: int, **options) -> list[tuple[bytes, int]]:
    """Cut, save, restore on a filter that was built anew, go on. Returns the snapshots."""
    calls, generator = live(case, steps, seed), np.random.default_rng(seed)
    saved = []
    where = generator.choice(np.arange(1, steps), cuts, replace=cuts >= steps)
    whole = open_stream(case, history=0.2, **options)
    for k, call in enumerate(calls):
        saved += [(whole.snapshot(), k)] * int((where == k).sum())
        expected = whole.step(**call)
    for data, cut in saved:
        stream = fwnkf.Stream.restore(case.build(torch.float32), data)
        for call in calls[cut:]:
            estimate = stream.step(**call)
        assert_same_estimate(estimate, expected)
    return saved


def test_a_restored_stream_goes_on_with_the_same_bits(case: Case):
    check_snapshots(case, 10, 2, seed=0, **({} if case.filter == "rkn" else {"gate": 0.8, "recover_after": 2}))


CONTINUE = """
import sys, torch, numpy as np, fwnkf
from tests.conformance.cases import CASES
from tests.runtime.test_stream import live
name, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
case = CASES[name]
model, calls = case.build(torch.float32), live(case, steps, 0)
for number, cut in enumerate(np.load(folder + "/cuts.npy")):
    stream = fwnkf.Stream.restore(model, open(f"{folder}/{number}", "rb").read())
    for call in calls[cut:]:
        estimate = stream.step(**call)
    np.savez(f"{folder}/{number}.npz", mean=estimate.mean, cov=estimate.cov)
"""


def in_another_process(name: str, steps: int, cuts: int, folder: Path) -> None:
    case = CASES[name]
    calls, whole = live(case, steps, 0), open_stream(case, history=0.2)
    where = np.sort(np.random.default_rng(0).integers(1, steps, cuts))
    number = 0
    for k, call in enumerate(calls):
        for _ in range(int((where == k).sum())):
            (folder / str(number)).write_bytes(whole.snapshot())
            number += 1
        expected = whole.step(**call)
    np.save(folder / "cuts.npy", where)
    root = Path(__file__).parents[2]
    (folder / "continue.py").write_text(CONTINUE, encoding="utf-8")
    done = shell(f"python {folder}/continue.py {name} {steps} {folder}", root, seconds=900)
    assert done.code == 0, done.err
    for number in range(cuts):
        with np.load(folder / f"{number}.npz") as data:
            assert_same_bits(torch.as_tensor(data["mean"]), torch.as_tensor(expected.mean), f"cut {where[number]}")
            assert_same_bits(torch.as_tensor(data["cov"]), torch.as_tensor(expected.cov), f"cut {where[number]}")


@pytest.mark.process
def test_another_process_goes_on_with_the_same_bits(tmp_path):
    in_another_process("everything", 12, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_200_cuts_of_every_filter_in_another_process(name: str, tmp_path):
    in_another_process(name, 40, 200, tmp_path)


# ---- sensors, gaps -------------------------------------------------------------------------------------------------


def tracker(**options) -> fwnkf.Filter:
    """Position and velocity in continuous time; the position by two sensors."""
    return fwnkf.KF(
        F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(),
        Q=torch.tensor([[0.0, 0.0], [0.0, 0.5]]).double(),
        H=torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(),
        R=torch.diag(torch.tensor([0.04, 0.25])).double(),
        continuous=True,
        dt=0.1,
        channels=("gps", "beacon"),
        **options,
    )


def test_sensors_at_the_same_time_may_come_one_after_the_other():
    together, apart = fwnkf.Stream(tracker()), fwnkf.Stream(tracker())
    for t, gps, beacon in ((0.0, 0.1, 0.3), (0.1, 0.2, None), (0.25, 0.2, 0.4)):
        whole = {"gps": gps} if beacon is None else {"gps": gps, "beacon": beacon}
        expected = together.step(whole, t=t)
        for name in reversed(whole):
            estimate = apart.step({name: whole[name]}, t=t)
        assert_same_estimate(estimate, expected)
    again = apart.step({"gps": 5.0}, t=0.25)
    assert again.reasons == Reason.DUPLICATE
    assert_same_bits(torch.as_tensor(again.mean), torch.as_tensor(expected.mean), "a second value is not used")


def test_a_gap_is_predicted_over_its_length():
    """Against the matrix exponential and a numerical integral of the process noise."""
    model = tracker()
    stream = fwnkf.Stream(model, prior=([1.0, 2.0], [[0.5, 0.1], [0.1, 0.3]]))
    before = stream.step([1.1, 1.3], t=10.0)
    after = stream.step(None, t=13.7)
    F, gap = expm(np.array([[0.0, 1.0], [0.0, 0.0]]) * 3.7), 3.7
    Q = 0.5 * np.array([[gap**3 / 3, gap**2 / 2], [gap**2 / 2, gap]])
    assert_close(after.mean, F @ before.mean, "algebra")
    assert_close(after.cov, F @ before.cov @ F.T + Q, "algebra")
    assert np.allclose(after.std, np.sqrt(np.diag(after.cov)))


def test_a_gap_may_be_divided_and_of_a_fixed_step_is_divided():
    divided = fwnkf.Stream(tracker(), longest_step=0.5)
    whole = fwnkf.Stream(tracker())
    for t in (0.0, 0.3, 3.0):
        left, right = divided.step([0.4, 0.5], t=t), whole.step([0.4, 0.5], t=t)
    assert_close(left.mean, right.mean, "algebra")  # exact for a linear system
    case = CASES["kf"]
    model, (a, b, c) = case.build(torch.float64), (live(case, 3)[k]["y"] for k in range(3))
    stream = fwnkf.Stream(model, step=0.1)
    for y, t in ((a, 7.0), (b, 7.102), (c, 7.49)):  # the last one five steps after the first
        estimate = stream.step(y, t=t, u=[0.2])
    rows = torch.as_tensor(np.stack([a, b, *[np.full(2, np.nan)] * 3, c]))[None]
    track = model.run(rows, torch.full((1, 6, 1), 0.2, dtype=torch.float64), ~rows.isnan())
    assert_same_bits(torch.as_tensor(estimate.mean), track.mean[0, -1], "mean")


def test_measurements_beyond_the_history_are_late():
    stream = fwnkf.Stream(tracker(), history=0.5)
    for k in range(20):
        expected = stream.step([0.1, 0.2], t=0.1 * k)
    estimate = stream.step([9.0, 9.0], t=1.0)
    assert stream.late == 1
    assert estimate.reasons == Reason.LATE
    assert estimate.health == "degraded"
    assert "older than the history" in estimate.reason
    assert_same_bits(torch.as_tensor(estimate.mean), torch.as_tensor(expected.mean), "mean")


def test_memory_is_bounded_by_the_history():
    stream = fwnkf.Stream(tracker(), history=0.5)
    for k in range(200):
        stream.step([0.1, 0.2], t=0.1 * k)
    assert len(stream._samples) == len(stream._done) <= 7
    assert len(stream.snapshot()) < 20_000


# ---- gate and health -----------------------------------------------------------------------------------------------


def walk(steps: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    velocity = np.cumsum(math.sqrt(0.5 * 0.1) * generator.standard_normal(steps))
    return np.cumsum(0.1 * velocity)


def measured(truth: np.ndarray, seed: int = 1) -> np.ndarray:
    return truth[:, None] + np.random.default_rng(seed).standard_normal((len(truth), 2)) * [0.2, 0.5]


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_the_gate_rejects_the_stated_share_of_correct_measurements():
    stream = fwnkf.Stream(tracker(), gate=0.95, sensors={"both": [0, 1]})
    assert_close(stream._stepper.watch.limits.numpy()[1:], chi2.ppf(0.95, [1, 2]), "algebra")
    reasons = [stream.step(y, t=0.1 * k).reasons for k, y in enumerate(measured(walk(1000)))]
    share = np.mean([Reason.GATED in reason for reason in reasons])
    assert 0.035 < share < 0.07  # rejecting the largest innovations leaves a filter a little behind


def test_an_outlier_of_one_sensor_is_rejected_and_the_other_is_used():
    gated, masked = fwnkf.Stream(tracker(), gate=0.9999), fwnkf.Stream(tracker())
    for k, y in enumerate(measured(walk(60))):
        outlier = k in (30, 41)
        expected = masked.step(y, t=0.1 * k, mask=[not outlier, True])
        estimate = gated.step([y[0] + 50.0 * outlier, y[1]], t=0.1 * k)
        assert_same_bits(torch.as_tensor(estimate.mean), torch.as_tensor(expected.mean), "mean")
        assert (Reason.GATED in estimate.reasons) == outlier
        assert estimate.health == ("degraded" if outlier else "ok")


def test_a_real_jump_is_believed_after_a_while():
    truth = walk(200)
    truth[100:] += 300.0
    stream, errors, reasons = fwnkf.Stream(tracker(), gate=0.9999, recover_after=5), [], []
    for k, y in enumerate(measured(truth)):
        estimate = stream.step(y, t=0.1 * k)
        errors.append(abs(estimate.mean[0] - truth[k]))
        reasons.append(estimate.reasons)
    assert all(Reason.GATED in reason for reason in reasons[100:104])
    assert Reason.RECOVERED in reasons[104]
    assert max(errors[:100]) < 1.5
    assert max(errors[104:]) < 1.5
    assert not any(reasons[130:])
    assert estimate.health == "ok"


def test_streams_of_a_batch_are_gated_and_recover_one_by_one():
    truth = np.stack([walk(80, seed) for seed in range(3)])
    truth[1, 40:] += 100.0
    y = np.stack([measured(row, 5 + k) for k, row in enumerate(truth)], 1)
    batch = fwnkf.Stream(tracker(), streams=3, gate=0.99999, recover_after=4)
    singles = [fwnkf.Stream(tracker(), gate=0.99999, recover_after=4) for _ in range(3)]
    for k in range(80):
        together = batch.step(y[k], t=0.1 * k)
        alone = [stream.step(y[k, i], t=0.1 * k) for i, stream in enumerate(singles)]
        assert_close(together.mean, np.stack([item.mean for item in alone]), "batch")
        assert together.reasons == [item.reasons for item in alone]
    assert np.abs(together.mean[:, 0] - truth[:, -1]).max() < 1.5


def simulated(name: str, count: int) -> tuple[fwnkf.System, dict]:
    records = protocols.simulated(name, "strict", train=1, val=1, test=count).split.test
    return records.system, records.inputs()


def healths(model: fwnkf.Filter, inputs: dict, steps: int) -> list[list[Reason]]:
    stream = fwnkf.Stream(model, streams=len(inputs["y"]), prior=inputs["prior"])
    found = []
    for k in range(steps):
        u = None if inputs["u"] is None else inputs["u"][:, k].numpy()
        estimate = stream.step(inputs["y"][:, k].numpy(), u=u, mask=inputs["mask"][:, k].numpy())
        found.append(estimate.reasons)
    return found


@pytest.mark.parametrize("name", ["kalmannet", "recursive_kalmannet", "bayesian_kalmannet"])
def test_an_untrained_gain_network_is_seen_to_diverge_although_no_step_fails(name: str):
    """On the Lorenz system, which forgets nothing of a wrong start; a pendulum with friction does."""
    system, inputs = simulated("lorenz", 8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fwnkf.build(name, system=system)
    found = healths(model, inputs, 50)
    for stream in range(8):
        reasons = [step[stream] for step in found]
        assert any(reason >= Reason.NOT_FINITE for reason in reasons)
        assert not any(Reason.FACTORIZATION_FAILED in reason for reason in reasons)


@pytest.mark.parametrize("system", ["lorenz", "pendulum"])
def test_a_filter_that_tracks_is_not_called_diverged(system: str):
    system, inputs = simulated(system, 64)
    found = healths(fwnkf.EKF(system), inputs, 100)
    assert not any(reason >= Reason.NOT_FINITE for reasons in found for reason in reasons)


def test_a_sensor_at_rest_is_no_reason_for_alarm():
    """Quantised values that do not change have neither spread nor change."""
    stream = fwnkf.Stream(tracker())
    assert all(stream.step([0.1, 0.2], t=0.1 * k).health == "ok" for k in range(100))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_filter_of_white_noise_without_signal_is_healthy():
    """Nothing to track: no prediction is better than the mean, and none is worse than the last measurement."""
    generator = np.random.default_rng(0)
    eye = torch.eye(1).double()
    for q in (1e-6, 100.0):
        stream = fwnkf.Stream(fwnkf.KF(F=eye, H=eye, Q=q * eye, R=eye))
        bad = sum(stream.step(value).health != "ok" for value in generator.standard_normal(300))
        assert bad == 0, q


def test_too_small_noise_degrades_and_values_that_are_not_finite_are_named():
    eye = torch.eye(1).double()
    stream = fwnkf.Stream(fwnkf.KF(F=eye, H=eye, Q=0.01 * eye, R=1e-2 * eye), stale_after=2.5)
    for value in np.random.default_rng(0).standard_normal(100):
        estimate = stream.step(value)
    assert estimate.reasons == Reason.INCONSISTENT
    assert estimate.health == "degraded"
    estimate = stream.step(np.inf)
    assert Reason.NON_FINITE_OBSERVATION in estimate.reasons
    assert np.isfinite(estimate.mean).all()
    for _ in range(3):
        estimate = stream.step(None)
    assert Reason.STALE in estimate.reasons
    assert "no measurement for too long" in estimate.reason


def test_a_filter_whose_results_are_not_finite_has_diverged():
    eye = torch.eye(1)
    stream = fwnkf.Stream(fwnkf.KF(F=1e30 * eye, H=eye, Q=eye, R=eye))
    for _ in range(5):
        estimate = stream.step(None)
    assert estimate.health == "diverged"
    assert Reason.NOT_FINITE in estimate.reasons
    stream.reset(prior=([0.5], [[0.1]]))
    assert stream.step(0.5).health == "ok"


# ---- usage errors --------------------------------------------------------------------------------------------------


def test_usage_errors_say_what_to_do():
    stream = fwnkf.Stream(tracker())
    with pytest.raises(ShapeError, match=r"y has shape \(3,\), wanted \(2,\)"):
        stream.step([1.0, 2.0, 3.0], t=0.0)
    with pytest.raises(ConfigError, match="no sensor 'lidar'; this stream has gps, beacon"):
        stream.step({"lidar": 1.0}, t=0.0)
    stream.step([0.0, 0.0], t=0.0)
    with pytest.raises(ConfigError, match="of every measurement or of none"):
        stream.step([0.0, 0.0])
    with pytest.raises(DataError, match="must be a finite number"):
        stream.step([0.0, 0.0], t=math.nan)
    with pytest.raises(ConfigError, match="not a probability"):
        fwnkf.Stream(tracker(), gate=99.0)
    with pytest.raises(ConfigError, match="has no gate"):
        fwnkf.Stream(CASES["rkn"].build(torch.float32), gate=0.99)
    with pytest.raises(ConfigError, match="has no time step"):
        fwnkf.Stream(CASES["rkn"].build(torch.float32)).step([0.0, 0.0], t=1.0)
    with pytest.raises(ConfigError, match="exactly one sensor"):
        fwnkf.Stream(tracker(), sensors={"gps": [0, 0]})
    with pytest.raises(ConfigError, match=r"would take 200,000 steps of 0\.01 s without measurement; .* in 1,000 s"):
        fwnkf.Stream(CASES["kf"].build(torch.float32), step=0.01, longest_gap=0.02 * MOST_STEPS)


def test_other_bytes_are_no_snapshot():
    stream = fwnkf.Stream(tracker())
    stream.step([0.0, 0.0], t=0.0)
    stream.step([0.0, 0.0], t=0.1)
    data = stream.snapshot()
    with pytest.raises(CheckpointError, match="not a snapshot"):
        fwnkf.Stream.restore(tracker(), b"nothing")
    with pytest.raises(CheckpointError, match="of filter 'kf'"):
        fwnkf.Stream.restore(CASES["ekf-pendulum"].build(torch.float64), data)
    with pytest.raises(CheckpointError):
        fwnkf.Stream.restore(CASES["kf"].build(torch.float32), data)
    with pytest.raises(CheckpointError):
        fwnkf.Stream.restore(tracker(), fwnkf.dump_state(tracker(), tracker().init(1)))
