"""Filters trained together against the same filters trained one by one."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.filters.stacked import FilterStack
from fwnkf.training.config import Experiment
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import fit
from tasks.paper import stacked
from tasks.paper.stacked import Cache, Plateau, fit_together

LEARNED = {"equations": False, "options": {"encoder": {"units": 16}, "transition": {"rank": 1}, "phi": {}}}
"""A filter whose transition is learned."""


def experiment(name: str, seed: int, weight: float, data: str = "lorenz", **options) -> Experiment:
    text = {
        "name": f"{name}-{seed}-{weight}",
        "seed": seed,
        "system": {"name": data},
        "data": {"name": "simulated", "steps": 25, "train": 12, "val": 6, "test": 4, "dtype": "float64"},
        "filter": {"name": name, **options},
        "loss": [{"kind": "state", "reduction": "mean"}, {"kind": "spectral", "weight": weight}],
        "optimizer": {"learning_rate": 1e-3, "weight_decay": 1e-3, "clip": 0.5},
        "trainer": {"steps": 4, "batch_size": 5, "validate_every": 2, "loggers": []},
    }
    return parse_experiment(text, name)


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("fwnkf", "lorenz", LEARNED),
        ("recursive_kalmannet", "pendulum", {}),
        ("fwnkf_public_code", "lorenz", {"equations": False, "options": {"units": 16}}),
    ],
)
def test_members_train_as_single_runs_do(tmp_path, name, data, options):
    experiments = [experiment(name, seed, weight, data, **options) for seed, weight in ((3, 0.0), (3, 0.1), (4, 0.1))]
    members = fit_together(experiments)
    for one, member in zip(experiments[::2], members[::2], strict=True):  # with another loss and another seed
        single = fit(one, tmp_path / one.name)
        assert member.best_step == single.record["best_step"]
        assert member.best == pytest.approx(single.record["best"], rel=1e-7)
        wanted = single.model.state_dict()
        for key, value in member.model.state_dict().items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-6, atol=1e-8)
    assert len({member.history[-1]["val_mse"] for member in members}) == len(members)


def test_a_member_that_fails_keeps_its_best_filter_and_does_not_touch_the_others(monkeypatch):
    experiments = [experiment("fwnkf", seed, 0.0, **LEARNED) for seed in (1, 2)]
    alone = fit_together(experiments[:1])[0]
    prepare = stacked.prepare_filter

    def broken(one, records, say):
        model = prepare(one, records, say)
        if one.seed == 2:
            with torch.no_grad():
                next(model.parameters()).fill_(math.nan)
        return model

    monkeypatch.setattr(stacked, "prepare_filter", broken)
    sound, failed = fit_together(experiments)
    assert failed.failed_at == 0
    assert failed.best_step == -1
    assert sound.failed_at is None
    assert sound.best == pytest.approx(alone.best, rel=1e-9)
    for key, value in sound.model.state_dict().items():
        torch.testing.assert_close(value, alone.model.state_dict()[key], rtol=1e-7, atol=1e-10)


def test_a_member_whose_loss_is_not_finite_goes_on_from_its_best_parameters_with_a_lower_rate(monkeypatch):
    values = experiment("fwnkf", 3, 0.0, **LEARNED).as_dict()
    values["trainer"] |= {"steps": 9, "validate_every": 2}
    one = parse_experiment(values, "again")
    rule = Plateau(patience=99, falls=0, warmup=1, restarts=2)
    objective, advance, lost, taken = stacked.Objective, stacked.Run.advance, {5, 8}, []

    class Lost(objective):
        """A loss that is infinite at some steps."""

        def __call__(self, batches, step):
            return super().__call__(batches, step) * (math.inf if step in lost else 1.0)

    def noted(run, loss):
        before = {name: value.detach().clone() for name, value in run.parameters.items()}
        advance(run, loss)
        taken.append((before, {name: value.detach().clone() for name, value in run.parameters.items()}, run.rate))

    monkeypatch.setattr(stacked, "Objective", Lost)
    monkeypatch.setattr(stacked.Run, "advance", noted)
    (member,) = fit_together([one], rates=[1e-2], rules=[rule])
    assert (member.restarts, member.failed_at, member.steps) == (2, None, 9)
    assert [rate for *_, rate in taken] == pytest.approx([1e-2] * 5 + [2e-3] * 3 + [4e-4])
    best = next(entry["step"] for entry in member.history if entry["val_mse"] == min(
        entry["val_mse"] for entry in member.history if entry["step"] <= 4))  # fmt: skip
    wanted = taken[best][0]  # before the step after that validation
    assert all(torch.equal(value, wanted[name]) for name, value in taken[5][1].items())
    # without more returns the training ends at the step
    taken.clear()
    lost.add(6)
    (member,) = fit_together([one], rates=[1e-2], rules=[rule])
    assert (member.restarts, member.failed_at, member.steps) == (2, 8, 8)


def test_the_group_gives_the_same_bits_again():
    experiments = [experiment("fwnkf", seed, 0.1, **LEARNED) for seed in (1, 2)]
    first, second = fit_together(experiments), fit_together(experiments)
    for one, other in zip(first, second, strict=True):
        assert one.history == other.history
        assert all(torch.equal(value, other.model.state_dict()[key]) for key, value in one.model.state_dict().items())


def test_only_seeds_and_weights_may_differ():
    one, other = experiment("fwnkf", 1, 0.0), experiment("kalmannet", 1, 0.0)
    with pytest.raises(ConfigError, match="differ in more than seed, steps and weights"):
        fit_together([one, other])
    compiled = parse_experiment({**one.as_dict(), "trainer": {**one.as_dict()["trainer"], "compile": True}}, "compiled")
    with pytest.raises(ConfigError, match=r"trainer\.compile = True"):
        fit_together([compiled])
    watched = parse_experiment({**one.as_dict(), "trainer": {**one.as_dict()["trainer"], "monitor": "val_nll"}}, "nll")
    with pytest.raises(ConfigError, match=r"trainer\.monitor = 'val_nll'"):
        fit_together([watched])


def test_a_stack_needs_one_config():
    eye = torch.eye(2)
    system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye)
    with pytest.raises(ConfigError, match="another config"):
        FilterStack([fwnkf.build("kalmannet", system=system), fwnkf.build("kalmannet", system=system, in_mult=3)])


def test_a_likelihood_trains_in_a_group_as_alone(tmp_path):
    experiments = [
        parse_experiment({**experiment("recursive_kalmannet", seed, 0.0, "pendulum").as_dict(),
                          "loss": [{"kind": "posterior_nll", "from_step": 1}]}, f"nll-{seed}")
        for seed in (3, 4)
    ]  # fmt: skip
    for one, member in zip(experiments, fit_together(experiments), strict=True):
        single = fit(one, tmp_path / one.name)
        assert member.best == pytest.approx(single.record["best"], rel=1e-7)
        for key, value in member.model.state_dict().items():
            torch.testing.assert_close(value, single.model.state_dict()[key], rtol=1e-6, atol=1e-8)


def test_own_rates_scale_the_steps_of_the_optimizer():
    values = experiment("fwnkf", 3, 0.0, **LEARNED).as_dict()
    values["optimizer"] |= {"schedule": "constant", "warmup": 0.0, "learning_rate": 3e-3}
    values["trainer"] |= {"steps": 4}
    one = parse_experiment(values, "constant")
    (usual,) = fit_together([one])
    now = Plateau(patience=9, warmup=1)
    own, slower = fit_together([one, one], rates=[3e-3, 1e-3], rules=[now, now])
    assert [entry["val_mse"] for entry in own.history] == pytest.approx(
        [entry["val_mse"] for entry in usual.history], rel=1e-6
    )
    assert slower.history[-1]["val_mse"] != pytest.approx(own.history[-1]["val_mse"], rel=1e-3)


def test_a_rate_falls_and_a_member_ends_when_its_validation_no_longer_improves():
    values = experiment("fwnkf", 3, 0.0, **LEARNED).as_dict()
    values["trainer"] |= {"steps": 40, "validate_every": 2}
    one = parse_experiment(values, "long")
    # no error is below a hundredth of the first one, so that patience runs out at once and after one fall
    early = Plateau(patience=2, falls=1, gain=0.99, warmup=1)
    late = Plateau(patience=4, falls=1, gain=0.99, warmup=1)
    bounded = dataclasses.replace(one, trainer=dataclasses.replace(one.trainer, steps=6))
    rules = [early, late, Plateau(patience=99, warmup=1)]
    short, long, cut = fit_together([one, one, bounded], rates=[1e-3] * 3, rules=rules)
    assert (short.converged, short.steps) == (True, 2 * (1 + 2 + 2))
    assert (long.converged, long.steps) == (True, 2 * (1 + 4 + 4))
    assert (cut.converged, cut.steps) == (False, 6)
    assert short.history[-1]["step"] == short.steps
    # equal until the first rate falls
    assert short.history[:3] == long.history[:3]


@pytest.mark.parametrize("optimizer", ["adamw", "adabelief"])
def test_members_that_wait_for_a_slot_train_as_in_one_of_their_own(optimizer):
    experiments = []
    for seed, steps in ((1, 4), (2, 7), (3, 12), (4, 4)):
        values = experiment("fwnkf", seed, 0.1 * (seed % 2), **LEARNED).as_dict()
        values["trainer"] |= {"steps": steps}
        values["optimizer"] |= {"name": optimizer}
        experiments.append(parse_experiment(values, f"seed-{seed}"))
    rules = [*[Plateau(patience=99, warmup=2)] * 3, Plateau(patience=1, gain=0.99, warmup=2)]
    rates, cache = [1e-3, 2e-3, 1e-3, 1e-3], Cache()
    for own in (fit_together(experiments, rates=rates, rules=rules, average=3, slots=[2], cache=cache),
                fit_together(experiments, rates=rates, rules=rules, average=3, slots=[1, 3], cache=cache)):  # fmt: skip
        for number, waited in enumerate(own):
            (alone,) = fit_together([experiments[number]], rates=[rates[number]], rules=[rules[number]], average=3)
            assert (waited.steps, waited.best_step, waited.converged) == (alone.steps, alone.best_step, alone.converged)
            errors = [[entry["val_mse"] for entry in member.history] for member in (waited, alone)]
            assert errors[0] == pytest.approx(errors[1], rel=1e-9)
            for key, value in waited.model.state_dict().items():
                torch.testing.assert_close(value, alone.model.state_dict()[key], rtol=1e-7, atol=1e-10)
    assert [member.steps for member in own[:3]] == [4, 7, 12]


@pytest.mark.parametrize(("name", "optimizer"), [("fwnkf", "adamw"), ("bayesian_kalmannet", "adabelief")])
def test_a_group_that_was_stopped_goes_on_with_the_same_bits(name, optimizer, tmp_path):
    experiments = []
    options = LEARNED if name == "fwnkf" else {"options": {"members": 2}}  # the ensemble draws random numbers
    for seed, steps in ((1, 4), (2, 8), (3, 12), (4, 12)):
        values = experiment(name, seed, 0.1 * (seed % 2), **options).as_dict()
        values["trainer"] |= {"steps": steps, "save_seconds": 0.0}
        values["optimizer"] |= {"name": optimizer}
        experiments.append(parse_experiment(values, f"seed-{seed}"))
    rules = [*[Plateau(patience=99, warmup=2)] * 3, Plateau(patience=1, falls=1, gain=0.5, warmup=2)]
    settings = {"rates": [1e-3, 2e-3, 1e-3, 1e-3], "rules": rules, "average": 3, "slots": [2, 3]}

    def trained(state, stop=""):
        torch.manual_seed(0)

        def say(text):
            if stop and stop in text:
                raise KeyboardInterrupt

        return fit_together(experiments, **settings, state=state, say=say)

    wanted = trained(tmp_path / "whole")
    state = tmp_path / "stopped"
    for stop in ("pass 6,", "pass 10,"):  # with filters that wait, and after they moved to fewer slots
        with pytest.raises(KeyboardInterrupt):
            trained(state, stop)
    said = []
    found = fit_together(experiments, **settings, state=state, say=said.append)
    assert "goes on at pass 8" in said[0]
    # what has ended is not trained again
    again = fit_together(experiments, **settings, state=state)
    for members in (found, again):
        for one, other in zip(members, wanted, strict=True):
            assert (one.history, one.best_step, one.steps) == (other.history, other.best_step, other.steps)
            assert (one.converged, one.best, one.rate) == (other.converged, other.best, other.rate)
            for key, value in one.model.state_dict().items():
                assert torch.equal(value, other.model.state_dict()[key])
    # that of another training is not used
    said.clear()
    fit_together(experiments[:2], rates=[1e-3] * 2, rules=rules[:2], state=state, say=said.append)
    assert "another training" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("fwnkf", LEARNED), ("kalmannet", {"equations": False})])
def test_compiled_steps_train_as_the_loop_does(name, options):
    experiments = [experiment(name, seed, 0.1, **options) for seed in (1, 2)]
    looped = fit_together(experiments)
    compiled = fit_together(experiments, compiled=True)
    for one, other in zip(looped, compiled, strict=True):
        assert [entry["val_mse"] for entry in one.history] == pytest.approx(
            [entry["val_mse"] for entry in other.history], rel=1e-9
        )


def test_averaged_parameters_are_those_of_the_steps_and_do_not_change_the_training():
    values = experiment("fwnkf", 3, 0.0, **LEARNED).as_dict()
    values["trainer"] |= {"steps": 6, "validate_every": 1}
    one = parse_experiment(values, "averaged")
    parameters, advance = [], stacked.Run.advance

    class Noted(stacked.Run):
        def advance(self, loss: torch.Tensor) -> None:
            advance(self, loss)
            parameters.append({name: value.detach().clone() for name, value in self.parameters.items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacked, "Run", Noted)
        (averaged,) = fit_together([one], rates=[1e-3], average=4)
    (usual,) = fit_together([one], rates=[1e-3])
    # weights 1, 10/11, 10/12, … of the newest parameters, and never less than a quarter
    for name in averaged.model.state_dict():
        if name not in parameters[0]:
            continue
        mean = parameters[0][name]
        for step in range(1, averaged.best_step):
            weight = max(0.25, 10 / (10 + step))
            mean = (1 - weight) * mean + weight * parameters[step][name]
        torch.testing.assert_close(averaged.model.state_dict()[name], mean, rtol=1e-10, atol=1e-12)
    assert averaged.best_step > 1
    assert averaged.history[0] == usual.history[0]
    assert averaged.history[-1]["val_mse"] != usual.history[-1]["val_mse"]
