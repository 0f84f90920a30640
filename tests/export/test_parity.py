"""How a comparison of an exported filter is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fwnkf
from fwnkf.cli.export import _lines
from fwnkf.core.preprocess import Calibration, CalibrationConfig
from fwnkf.errors import ConfigError, DataError, ShapeError
from fwnkf.export import reference
from fwnkf.export.parity import ROUNDINGS, Eager, compare, compare_double, compare_eager, write_report
from fwnkf.export.reference import Record
from fwnkf.export.trace import trace

from ..conformance.cases import CASES

pytestmark = pytest.mark.export


class Wrong(Eager):
    """The filter with a mean that is off by a thousandth."""

    def values(self) -> dict[str, Any]:
        found = super().values()
        return found | {"mean": 1.001 * found["mean"]}


def test_single_precision_is_no_excuse_for_a_wrong_export():
    program = trace(CASES["kf"].build(torch.float32))
    assert compare_eager(Eager(program), 20)["largest"] == 0.0
    parity = compare_eager(Wrong(program), 20)
    assert not parity["ok"]
    assert parity["limit"] == 1e-5
    assert 0 < parity["rounding"] < 1e-6
    assert parity["largest"] == pytest.approx(1e-3, rel=0.01)


class Astray(Eager):
    """The filter with a state that is off by a thousandth, and right outputs."""

    def values(self) -> dict[str, Any]:
        found = super().values()
        return found | {"state.mean": 1.001 * found["state.mean"]}


def test_the_outputs_are_judged_and_the_state_is_reported():
    parity = compare_double(Astray(trace(CASES["kf"].build(torch.float32))), 20)
    assert parity["ok"]
    assert parity["largest"] < 1e-6
    assert parity["largest_of_state"] == pytest.approx(1e-3, rel=0.01)
    facts: dict[str, Any] = {"files": [], "bytes": {}, "parity": parity}
    assert "the internal state differs by 1.0e-03 (state.mean)" in _lines(facts, Path())[-1]


def recorded(case: str, steps: int, generator: torch.Generator) -> Record:
    sizes = CASES[case]
    y = torch.randn(steps, sizes.observation_dim, generator=generator)
    mask = torch.rand(y.shape, generator=generator) > 0.3
    u = torch.randn(steps, sizes.control_dim, generator=generator) if sizes.control_dim else None
    dt = 0.05 + 0.1 * torch.rand(steps, generator=generator) if sizes.uses_dt else None
    return Record(y.masked_fill(~mask, torch.nan), mask, u, dt)


@pytest.mark.parametrize("case", ["kf", "ekf-pendulum", "locally-linear"])
def test_a_recording_is_replayed_as_the_filter_runs_over_it(case: str, generator: torch.Generator):
    model = CASES[case].build(torch.float32)
    exact = CASES[case].build(torch.float32).double()
    records = [recorded(case, steps, generator) for steps in (12, 9)]
    records[1] = records[1]._replace(
        prior=fwnkf.Gaussian(torch.ones(exact.layout.size), torch.eye(exact.layout.tangent_size))
    )
    found = list(reference.replay(trace(model), 100, records))
    assert [sample.fresh for sample in found] == [t in (0, 12) for t in range(21)]
    for record, part in zip(records, (found[:12], found[12:]), strict=True):
        y, u, dt = (None if item is None else item.double()[None] for item in (record.y, record.u, record.dt))
        prior = None if record.prior is None else fwnkf.Gaussian(*(part.double() for part in record.prior))
        track = exact.run(y, u, record.mask[None], dt, prior=prior)
        torch.testing.assert_close(torch.stack([sample.out.mean[0] for sample in part]), track.mean[0])
        torch.testing.assert_close(torch.stack([sample.out.cov[0] for sample in part]), track.cov[0])
    assert len(list(reference.replay(trace(model), 14, records))) == 14
    parity = compare_double(Eager(trace(model)), 100, records)
    assert (parity["steps"], parity["ok"]) == (21, True)


def test_without_a_prior_a_recording_starts_as_a_run_does(generator: torch.Generator):
    walk = fwnkf.System.of(lambda x: x, lambda x: x, Q=[0.01], R=[1.0], initial_mean=[2.0], initial_std=[0.5])
    model = fwnkf.EKF(walk)
    assert model.initial_steps == 1
    y = torch.randn(6, 1, generator=generator)
    found = torch.stack([sample.out.mean[0] for sample in reference.replay(trace(model), 10, [Record(y)])])
    torch.testing.assert_close(found, model.double().run(y.double()[None]).mean[0])


def test_blocks_of_a_preprocessing_are_steps(generator: torch.Generator):
    model = CASES["ekf-pendulum"].build(torch.float32)
    model.preprocess = Calibration(CalibrationConfig(channels=2, block=4), model.system)
    y = torch.randn(11, 2, generator=generator)
    found = list(reference.replay(trace(model), 100, [Record(y, u=torch.zeros(11, 1))]))
    assert len(found) == 2
    assert torch.equal(found[1].inputs["y"][0].float(), y[4:8])
    with pytest.raises(DataError, match="there is no step to compare"):
        compare_double(Eager(trace(model)), 100, [Record(y[:3], u=torch.zeros(3, 1))])


def test_a_recording_that_does_not_fit_is_refused():
    program = trace(CASES["kf"].build(torch.float32))
    with pytest.raises(ConfigError, match="control inputs, and the recording has none"):
        list(reference.replay(program, 5, [Record(torch.zeros(5, 2))]))
    with pytest.raises(ShapeError, match=r"y of the recording has the shape \[5, 3\]; wanted \[5, 2\]"):
        list(reference.replay(program, 5, [Record(torch.zeros(5, 3), u=torch.zeros(5, 1))]))


def test_the_limit_is_what_single_precision_loses_a_few_times():
    program = trace(CASES["rotation"].build(torch.float32))  # ill-conditioned with its random parameters
    rounding = compare(Eager(program), reference.run(program, 60))["largest"]
    assert rounding > 1e-5
    parity = compare_eager(Wrong(program), 60)
    assert (parity["rounding"], parity["limit"]) == (rounding, ROUNDINGS * rounding)
    assert parity["ok"] == (parity["largest"] <= ROUNDINGS * rounding)


def test_an_export_that_misses_says_how_far_single_precision_is():
    program = trace(CASES["rotation"].build(torch.float32))
    parity = compare_double(Eager(program), 60)
    assert not parity["ok"]
    assert (parity["rounding"], parity["limit"]) == (parity["largest"], 1e-4)  # it is the filter itself
    assert "rounding" not in compare_double(Eager(trace(CASES["kf"].build(torch.float32))), 20)


def test_the_report_is_strict_json_beside_the_files(tmp_path: Path):
    parity = {"largest": float("inf"), "ok": False}
    facts = write_report(tmp_path, {"filter": "kf", "files": [str(tmp_path / "a.c")], "parity": parity})
    assert facts["files"] == [str(tmp_path / "a.c"), str(tmp_path / "report.json")]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert found["parity"]["ok"] is False
    assert str(tmp_path) not in str(found)


def test_the_command_says_how_far_single_precision_is():
    parity = {"ok": True, "steps": 10, "largest": 2e-5, "relative_error": {"mean": 2e-5}, "limit": 6e-5}
    parity |= {"reference": "float32", "statuses_that_differ": 0, "largest_of_state": 0.0}
    facts: dict[str, Any] = {"files": [], "bytes": {}, "parity": parity}
    assert len(_lines(facts, Path())) == 3
    lines = _lines(facts | {"parity": parity | {"rounding": 3e-5}}, Path())
    assert "differs from float64 by 3.0e-05" in lines[-1]
    assert "--precision double" in lines[-1]
    assert "--solve square_root" in lines[-1]
