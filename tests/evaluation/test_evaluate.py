"""One filter on test records: against the baselines, against scipy, and with steps deleted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import multivariate_normal

from fwnkf.core.layout import Layout
from fwnkf.core.linear import LinearSystem
from fwnkf.data import protocols
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.data.recording import Span
from fwnkf.errors import ConfigError, DataError
from fwnkf.evaluation.baselines import baselines, estimates, mean_state
from fwnkf.evaluation.evaluate import estimate, evaluate, inputs_for, masked_square
from fwnkf.evaluation.rows import by_part, known_steps, row
from fwnkf.filters.base import Filter
from fwnkf.filters.factory import build
from fwnkf.filters.steps import dt_for
from fwnkf.types import Gaussian

SMALL = {"train": 32, "val": 4, "test": 60}


@pytest.fixture(scope="module")
def lorenz() -> Protocol:
    return protocols.simulated("lorenz", "strict", scenario="drift", **SMALL)


def assert_same_row(found: dict, expected: dict, rel: float = 1e-9) -> None:
    """The same names and words, and the same figures to ``rel``, but for the time it took."""
    assert list(found) == list(expected)
    for name in set(expected) - {"seconds"}:
        value = expected[name]
        wanted = value if isinstance(value, str) else pytest.approx(value, rel=rel, abs=0, nan_ok=True)
        assert found[name] == wanted, name


def linear_records(generator: torch.Generator, records: int, steps: int = 30) -> tuple[Records, LinearSystem]:
    """Drawn from a linear system, so that its Kalman filter is right about everything; a third is not measured."""
    F, H = torch.tensor([[0.9, 0.2], [0.0, 0.8]]).double(), torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double()
    Q, R = 0.1 * torch.eye(2).double(), torch.tensor([[0.5, 0.2], [0.2, 0.4]]).double()
    system = LinearSystem.of(F, H, Q, R)

    def draw(cov: torch.Tensor, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, 2, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(cov).mT

    x, states = draw(torch.eye(2).double(), records), []
    for _ in range(steps):
        x = x @ F.mT + draw(Q, records)
        states.append(x)
    truth = torch.stack(states, 1)
    y = truth @ H.mT + draw(R, records, steps)
    mask = torch.rand(y.shape, generator=generator) > 1 / 3
    y = torch.where(mask, y, torch.nan)
    start = Gaussian(torch.zeros(2).double(), torch.eye(2).double())
    spans = tuple(Span(f"made {i} {int(1e9 * truth[i, 0, 0])}", "", 0, steps) for i in range(records))
    layout = Layout.parse([("p", "euclidean", 1), ("v", "euclidean", 1)])
    return Records(
        "made", y, truth, mask, torch.ones(records, steps).double(), None, start, layout, spans, system
    ), system


def own_data(generator: torch.Generator, records: int = 50) -> Protocol:
    tasks = [linear_records(generator, count)[0] for count in (8, 3, records)]
    return Protocol("strict", "tables", 0, Split(*tasks))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_the_row_of_a_filter_is_that_of_the_baselines(lorenz):
    expected = next(line for line in baselines(lorenz, scenario="drift") if line["method"] == "ekf")
    measured = evaluate(build("ekf", system=lorenz.split.test.system), lorenz, "ekf", scenario="drift")
    assert measured["flagged_steps"] == 0
    assert_same_row(measured, expected, 1e-12)
    estimated = next(one for name, one in estimates(lorenz, scenario="drift") if name == "ekf")
    error = estimated.mean - lorenz.split.test.truth
    assert measured["mse"] == pytest.approx(float(error.square().mean()))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_batches_change_nothing(lorenz):
    model = build("ekf", system=lorenz.split.test.system)
    whole, pieces = (evaluate(model, lorenz, "ekf", batch=size) for size in (1000, 7))
    assert_same_row(pieces, whole)


def test_nis_of_each_channel_counts_what_was_measured(generator):
    """Against the same mean over the innovations by hand, a third of which are missing."""
    records = linear_records(generator, 50)[0]
    model = build("ekf", system=records.system)
    estimated = estimate(model, records, batch=20)
    with torch.no_grad():
        track = model.run(**inputs_for(model, records))
    for channel, value in enumerate(estimated.nis_by_channel):
        seen = records.mask[..., channel]
        ratio = track.innovation[..., channel].square() / track.innovation_cov[..., channel, channel]
        assert value == pytest.approx(float(ratio[seen].mean()))


def test_a_filter_that_is_right_has_nis_and_nees_one(generator):
    made = own_data(generator, 400)
    found = evaluate(build("ekf", system=made.split.test.system), made, "kf")
    assert found["nis"] == pytest.approx(1, abs=0.04)
    assert found["nees"] == pytest.approx(1, abs=0.04)
    assert found["coverage95"] == pytest.approx(0.95, abs=0.01)


def test_masked_nis_is_the_density_of_what_was_measured(generator):
    """``-2 log p`` by scipy, of the channels present alone, less its constant."""
    root = torch.randn(20, 3, 3, generator=generator, dtype=torch.float64)
    S, r = root @ root.mT + torch.eye(3), torch.randn(20, 3, generator=generator, dtype=torch.float64)
    present = torch.rand(20, 3, generator=generator) > 0.4
    present[0], present[1] = False, True
    found = masked_square(r.masked_fill(~present, math.nan), S, present)
    for one, (here, cov, value) in enumerate(zip(present, S, r, strict=True)):
        some = here.nonzero().flatten()
        expected = 0.0
        if len(some):
            density = multivariate_normal(cov=cov[some][:, some].numpy())
            expected = -2 * (density.logpdf(value[some].numpy()) - density.logpdf(torch.zeros(len(some)).numpy()))
        assert float(found[one]) == pytest.approx(expected, abs=1e-10)
    bad = torch.stack([torch.eye(2), -torch.eye(2), math.nan * torch.eye(2)])
    everything = torch.ones(3, 2, dtype=torch.bool)
    assert masked_square(torch.ones(3, 2), bad, everything).tolist() == [2.0, math.inf, math.inf]


def test_flagged_steps_are_counted_and_modes_kept(generator):
    made = own_data(generator)
    test = made.split.test
    y = test.y.clone()
    mask = test.mask.clone()
    y[3, 5], mask[3, 5] = math.nan, True
    y[4, 5:8], mask[4, 5:8] = math.inf, True
    made = replace(made, split=made.split._replace(test=replace(test, y=y, mask=mask)))
    model = build("ekf", system=test.system)
    model.train()
    found = evaluate(model, made, "kf")
    assert (found["flagged_steps"], found["failures"]) == (4, 0)
    assert math.isfinite(found["nis"])
    assert model.training


@pytest.mark.parametrize("name", ["rkn", "kf", "bayesian_kalmannet"])
def test_every_kind_of_filter_is_fed_what_it_takes(lorenz, name: str):
    """No dt for one that counts in steps, float32 for one that works in it, the same draws every time."""
    system = lorenz.split.test.system
    assert system is not None
    model: Filter
    if name == "rkn":
        model = build(name, state_dim=3, observation_dim=2, latent_dim=4, hidden=(8,))
    elif name == "kf":
        eye = torch.eye(3)
        model = build(name, F=eye, H=eye[:2], Q=eye, R=eye[:2, :2])
    else:
        model = build(name, system=system, members=3)
    found = [evaluate(model, lorenz, name) for _ in range(2)]
    assert_same_row(found[0], found[1], 0)
    assert math.isnan(found[0]["nis"]) == (name == "rkn")
    given = inputs_for(model, lorenz.split.test)
    assert given["y"].dtype == (torch.float64 if name == "bayesian_kalmannet" else torch.float32)
    assert (given["dt"] is None) == (name != "bayesian_kalmannet")


def test_another_state_is_refused(lorenz):
    eye = torch.eye(2)
    with pytest.raises(ConfigError, match="estimates 2 numbers"):
        evaluate(build("kf", F=eye, H=eye, Q=eye, R=eye), lorenz, "kf")
    with pytest.raises(ConfigError, match="batch = 0"):
        evaluate(build("ekf", system=lorenz.split.test.system), lorenz, "ekf", batch=0)


# ---- truth that is not known everywhere -----------------------------------------------------------------------------


def test_unknown_truth_does_not_count(generator):
    """The row equals that of the same estimates with those steps deleted."""
    made = own_data(generator)
    test = made.split.test
    truth = test.truth.clone()
    truth[:, 3:7, 1] = math.nan  # one number of a state that is not known: the step does not count
    partly = replace(test, truth=truth)
    with torch.no_grad():
        track = build("ekf", system=test.system).run(**{**test.inputs(), "dt": None})
    keep = [t for t in range(30) if not 3 <= t < 7]
    cut = {name: getattr(test, name)[:, keep] for name in ("y", "truth", "mask", "dt")}
    short = replace(test, **cut)
    found = row(made, partly, "kf", track.mean, track.cov, 0.0)
    assert_same_row(found, row(made, short, "kf", track.mean[:, keep], track.cov[:, keep], 0.0))
    parts = by_part(partly, track.mean)
    error = (track.mean - test.truth)[:, keep]
    assert parts["rmse_p"] == pytest.approx(float(error[..., 0].square().mean().sqrt()))
    assert known_steps(test) is None
    assert by_part(partly, math.nan * track.mean)["rmse_v"] == math.inf


def test_baselines_of_own_data(generator):
    made = own_data(generator, 200)
    holes = [replace(task, truth=task.truth.clone()) for task in made.split]
    for task in holes:
        task.truth[:, 10:15] = math.nan
    made = replace(made, split=Split(*holes))
    rows = {one["method"]: one for one in baselines(made)}
    assert list(rows) == ["hold", "mean", "linear_kf"]
    assert rows["linear_kf"]["mse"] < 0.7 * rows["mean"]["mse"]
    assert rows["linear_kf"]["nees"] == pytest.approx(1, abs=0.06)
    known = made.split.train.truth[made.split.train.truth.isfinite().all(-1)]
    error = (known.mean(0) - made.split.test.truth)[made.split.test.truth.isfinite().all(-1)]
    assert rows["mean"]["mse"] == pytest.approx(float(error.square().mean()), rel=1e-12)
    without = replace(made, split=made.split._replace(test=replace(made.split.test, system=None)))
    assert [one["method"] for one in baselines(without)] == ["hold", "mean"]


def test_the_mean_state_goes_the_shortest_way(generator):
    """Angles around ±π: the mean of the numbers is near zero, the mean of the angles is not."""
    task = linear_records(generator, 4)[0]
    angles = math.pi + 0.3 * torch.randn(4, 30, 2, generator=generator, dtype=torch.float64)
    wrapped = torch.atan2(angles.sin(), angles.cos())
    wrapped[0, 0] = math.nan
    layout = Layout.parse([("a", "angle", 1), ("b", "angle", 1)])
    found = mean_state(replace(task, truth=wrapped, layout=layout))
    assert (found % (2 * math.pi)).tolist() == pytest.approx(angles.flatten(0, 1)[1:].mean(0).tolist(), abs=1e-9)
    with pytest.raises(DataError, match="not known at any step"):
        mean_state(replace(task, truth=math.nan * wrapped))


def test_dt_is_left_out_where_every_step_has_the_nominal_length():
    """A system in continuous time then needs one discretisation; the estimates are the same."""
    drift = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    system = LinearSystem.of(drift, eye[:1], eye, eye[:1, :1], continuous=True, dt=0.1)
    model = build("ekf", system=system)
    y = torch.randn(2, 20, 1, dtype=torch.float64)
    dt = torch.full((2, 20), 0.1, dtype=torch.float64)
    dt[:, 0] = 0
    assert dt_for(model, dt) is None
    prior = Gaussian(torch.zeros(2).double(), eye)
    torch.testing.assert_close(model.run(y, prior=prior).mean, model.run(y, dt=dt, prior=prior).mean)
    assert dt_for(model, dt, continued=True) is dt  # the first step of a continued run is a step of length zero
    dt[1, 7] = 0.11
    assert dt_for(model, dt) is dt
