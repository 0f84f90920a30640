"""Properties that every filter must have. Add a new filter to ``cases.py`` to test it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import fwnkf
from fwnkf import checkpoint
from fwnkf.core.gaussian import dense
from fwnkf.core.tree import named_leaves, tree_map, tree_unflatten
from fwnkf.errors import ConfigError, ShapeError
from fwnkf.filters.factory import options_of
from fwnkf.registry import FILTERS

from ..tolerances import assert_close, assert_same_bits
from .cases import CASES, Case

BOTH = [torch.float32, torch.float64]


CONSTANT = {
    *("kf", "kf-full-noise", "kf-continuous", "kf-sequential", "kf-square-root", "kf-cholesky"),
    *("arkf", "lines-linear"),
}
"""Cases that state constant matrices."""
LINEAR_GAUSSIAN = CONSTANT - {"arkf", "kf-full-noise", "kf-square-root", "kf-cholesky"}
"""Those of them with a system and independent channels."""


@pytest.fixture(params=list(CASES))
def case(request) -> Case:
    return replace(CASES[request.param], name=request.param)


class Inputs(NamedTuple):
    y: Tensor
    u: Tensor | None
    mask: Tensor | None
    dt: Tensor | None

    def at(self, t: int) -> Inputs:
        return Inputs(*(None if item is None else item[:, t] for item in self))

    def part(self, start: int, stop: int) -> Inputs:
        return Inputs(*(None if item is None else item[:, start:stop] for item in self))

    def items(self, rows: slice) -> Inputs:
        return Inputs(*(None if item is None else item[rows] for item in self))


def make_inputs(case: Case, dtype: torch.dtype, batch: int = 3, steps: int = 12, seed: int = 0) -> Inputs:
    """Smooth random measurements with missing channels, missing steps, and a complete step."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    y = noise(batch, steps, case.observation_dim)
    for t in range(1, steps):
        y[:, t] = 0.9 * y[:, t - 1] + 0.3 * y[:, t]
    mask = torch.rand(batch, steps, case.observation_dim, generator=generator) < 0.7
    mask[:, 0] = True
    mask[0, min(2, steps - 1)] = False
    u = 0.3 * noise(batch, steps, case.control_dim) if case.control_dim else None
    dt = 0.02 + 0.08 * torch.rand(batch, steps, generator=generator).to(dtype) if case.uses_dt else None
    return Inputs(y, u, mask, dt)


def make_prior(model: fwnkf.Filter, batch: int, seed: int = 3) -> fwnkf.Gaussian:
    """A different belief for every item, away from the origin of the manifold."""
    generator = torch.Generator().manual_seed(seed)
    like, d = torch.zeros((), dtype=model.dtype, device=model.device), model.layout.tangent_size
    moved = 0.5 * torch.randn(batch, d, generator=generator).to(like)
    root = 0.2 * torch.randn(batch, d, d, generator=generator).to(like)
    origin = model.layout.origin(like).expand(batch, -1)
    return fwnkf.Gaussian(model.layout.boxplus(origin, moved), root @ root.mT + 0.2 * torch.eye(d).to(like))


def tensors(tree: Any) -> list[tuple[str, Tensor]]:
    """Every tensor with its name; a trajectory that was not recorded for smoothing has none in ``linear``."""
    return [(name, leaf) for name, leaf in named_leaves(tree) if leaf is not None]


def floats(tree: Any) -> list[tuple[str, Tensor]]:
    return [(name, leaf) for name, leaf in tensors(tree) if leaf.is_floating_point()]


def assert_same_tree(actual: Any, expected: Any) -> None:
    for (name, mine), (other, theirs) in zip(tensors(actual), tensors(expected), strict=True):
        assert name == other
        assert_same_bits(mine, theirs, name)


# ---- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior_at", ["first_measurement", "before_first_step"])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.every_case)], ids=str)
def test_steps_equal_the_run(case: Case, dtype: torch.dtype, prior_at: Any):
    model, inputs = case.build(dtype), make_inputs(case, dtype)
    prior = make_prior(model, 3)
    whole = model.run(*inputs, prior, prior_at=prior_at)
    state, outputs = model.init(3, prior), []
    for t in range(12):
        y, u, mask, dt = inputs.at(t)
        if t == 0 and prior_at == "first_measurement":
            state, out = model.update(state, y, mask, u=u, dt=dt)
        else:
            state, out = model.step(state, y, u, mask, dt)
        outputs.append(out)
    assert_same_tree(state, whole.state)
    for field in fwnkf.StepOutput._fields:
        stacked = torch.stack([getattr(out, field) for out in outputs], 1)
        assert_same_bits(stacked, getattr(whole, field), field)


def test_a_step_with_prepared_equals_the_step(case: Case):
    """As in streaming: ``prepare`` is called once."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    with torch.no_grad():
        state = model.init(3)
        assert_same_tree(model.step(state, *inputs.at(0), prepared=model.prepare()), model.step(state, *inputs.at(0)))


def test_a_step_is_a_prediction_and_an_update(case: Case):
    """To the bit, for every filter whose prediction does not read the measurement."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    if model.preprocess is not None:
        with pytest.raises(ConfigError, match="call step instead of predict"):
            model.predict(model.init(3), inputs.at(0).u)
        return
    if model.predicts_from_measurement:
        pytest.skip("its encoder reads the measurement before the prediction, as the paper has it")
    state = model.init(3, make_prior(model, 3))
    for t in range(4):
        y, u, mask, dt = inputs.at(t)
        after, out = model.step(state, y, u, mask, dt)
        ahead = model.predict(state, u, dt)
        again, same = model.update(ahead, y, mask)
        assert_same_tree(again, after)
        assert_same_tree(same, out)
        state = after


def test_sensors_one_after_the_other_are_all_at_once(case: Case):
    """Independent channels: the order does not matter, nor whether they are conditioned on together."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    if model.system is None or case.name not in LINEAR_GAUSSIAN:
        pytest.skip("not the exact posterior of a linear model, which alone does not depend on the order")
    sensors = model.system.sensor_channels
    assert len(sensors) == 2
    state, first = model.init(3, make_prior(model, 3)), inputs.at(0)
    _, together = model.update(state, first.y, first.mask)
    for order in (list(sensors), list(reversed(sensors))):
        apart = state
        for name in order:
            place = sensors[name]
            apart, out = model.update(apart, first.y[:, place], first.mask[:, place], name)
        assert_close(out.mean, together.mean, "rounding")
        assert_close(out.cov, together.cov, "rounding")


def test_the_linear_model_is_what_the_filter_computes_with(case: Case):
    """Where a filter states constant matrices, they give its predictions and innovations over all coordinates."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    stated = model.linear_model()
    assert stated.kind == ("constant" if case.name in CONSTANT else "state_dependent")
    if stated.kind == "state_dependent":
        assert stated.F is None
        return
    prior = make_prior(model, 3)
    state = model.init(3, prior)
    cov = model.joint_covariance(state)
    y, u, mask, _ = inputs.at(0)
    _, out = model.step(state, y, u, mask)
    assert stated.F is not None and stated.H is not None and stated.Q is not None and stated.R is not None  # noqa: PT018
    after = stated.F @ cov @ stated.F.mT + stated.Q
    d = model.layout.tangent_size
    assert_close(out.prior_cov, after[..., :d, :d], "rounding")
    assert_close(out.innovation_cov, stated.H @ after @ stated.H.mT + dense(stated.R), "rounding")


def test_an_update_is_a_step_of_zero_length(case: Case):
    """Control and ``dt`` have no effect on the belief before the measurement, which is the prior to the bit."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    if not case.prior_matters:
        pytest.skip("the filter starts from a belief of its own")
    prior = make_prior(model, 3)
    state = model.init(3, prior)
    first = inputs.at(0)
    _, out = model.update(state, first.y, first.mask, u=first.u, dt=first.dt)
    assert_close(out.prior_mean, prior.mean, "rounding")
    if case.filter != "bayesian_kalmannet":  # its covariance is the spread of members, which start together
        scale = torch.ones(()) if model.covariance_scale is None else model.covariance_scale.sqrt()
        assert_close(out.prior_cov, prior.cov * (scale.unsqueeze(-1) * scale), "rounding")
    if case.uses_dt:
        _, step = model.step(state, *first._replace(dt=torch.zeros_like(first.dt)))
        assert_close(out.mean, step.mean, "rounding")
        assert_close(out.cov, step.cov, "rounding")


def test_runs_continued_equal_one_run(case: Case):
    """Three in a row: one step, ten, and the last."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    prior = make_prior(model, 3)
    whole = model.run(*inputs, prior)
    parts = [model.run(*inputs.part(0, 1), prior)]
    for start, stop in ((1, 11), (11, 12)):
        parts.append(model.run(*inputs.part(start, stop), state=parts[-1].state))
    assert_same_tree(parts[-1].state, whole.state)
    for field in fwnkf.StepOutput._fields:
        joined = torch.cat([getattr(part, field) for part in parts], 1)
        assert_same_bits(joined, getattr(whole, field), field)


# ---- batch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_a_batch_equals_its_items(case: Case, dtype: torch.dtype):
    model, inputs = case.build(dtype), make_inputs(case, dtype, batch=2)
    prior = make_prior(model, 2)
    whole = model.run(*inputs, prior)
    singles = [
        model.run(*inputs.items(slice(i, i + 1)), fwnkf.Gaussian(*(part[i : i + 1] for part in prior)))
        for i in range(2)
    ]
    for field in fwnkf.StepOutput._fields:
        together, separate = getattr(whole, field), torch.cat([getattr(single, field) for single in singles])
        if field == "status":
            assert torch.equal(together, separate)
        else:
            assert_close(together, separate, "batch")


def test_a_prior_without_batch_is_shared(case: Case):
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    shared = fwnkf.Gaussian(*(part[0] for part in make_prior(model, 1)))
    repeated = fwnkf.Gaussian(shared.mean.repeat(3, 1), shared.cov.repeat(3, 1, 1))
    track = model.run(*inputs, shared)
    assert_same_tree(track, model.run(*inputs, repeated))
    other = fwnkf.Gaussian(
        model.layout.boxplus(shared.mean, torch.ones(model.layout.tangent_size).double()), shared.cov
    )
    differs = not torch.equal(track.mean, model.run(*inputs, other).mean)
    assert differs == case.prior_matters


# ---- masks ---------------------------------------------------------------------------------------------------------


def test_masked_values_have_no_effect(case: Case):
    """NaN, infinities and a huge number under the mask, or zeros: the same bits in every output and in the state."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    prior = make_prior(model, 3)
    which = torch.randint(4, inputs.y.shape, generator=torch.Generator().manual_seed(4))
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e9])[which]
    assert len(which[~inputs.mask].unique()) == 4
    clean, dirty = (
        model.run(*inputs._replace(y=torch.where(inputs.mask, inputs.y, value)), prior)
        for value in (torch.zeros(()), bad)
    )
    assert_same_tree(dirty, clean)
    for name, leaf in floats(clean):
        assert bool(leaf.isfinite().all()), name
    assert not clean.status.any()


def test_masked_values_have_no_gradient(case: Case):
    """The gradient with respect to a masked NaN is zero, that of everything else finite and not all zero."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    y = torch.where(inputs.mask, inputs.y, torch.nan).requires_grad_()
    trajectory = model.run(*inputs._replace(y=y), make_prior(model, 3))
    (trajectory.mean.square().sum() + trajectory.cov.square().sum()).backward()
    assert not y.grad[~inputs.mask].any()
    assert bool(y.grad.isfinite().all())
    assert bool((y.grad[inputs.mask] != 0).any())
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_without_measurements_a_step_only_predicts(case: Case, dtype: torch.dtype):
    """From the middle of a trajectory: the posterior equals the prior, the innovation is zero."""
    model, inputs = case.build(dtype), make_inputs(case, dtype)
    state = model.run(*inputs.part(0, 6), make_prior(model, 3)).state
    all_masked = torch.zeros_like(inputs.mask[:, 6:])
    trajectory = model.run(*inputs.part(6, 12)._replace(mask=all_masked), state=state)
    assert_close(trajectory.mean, trajectory.prior_mean, "rounding")
    assert_close(trajectory.cov, trajectory.prior_cov, "rounding")
    assert not trajectory.innovation.any()
    assert not trajectory.shaped_innovation.any()
    assert not trajectory.status.any()


def test_measurements_change_the_estimate(case: Case):
    """The test above must not pass because no step ever updates."""
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    trajectory = model.run(*inputs._replace(mask=None), make_prior(model, 3))
    assert (trajectory.mean - trajectory.prior_mean).abs().max() > 1e-3
    assert bool(trajectory.innovation.any())
    dim = case.innovation_dim or case.observation_dim
    assert trajectory.innovation.shape == (3, 12, dim)
    assert trajectory.innovation_cov.shape == (3, 12, dim, dim)


def test_a_value_that_is_not_finite_is_treated_as_missing_and_sets_the_status(case: Case):
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    prior = make_prior(model, 3)
    broken = inputs.y.clone()
    broken[0, 1, 0], broken[2, 7, -1] = torch.nan, -torch.inf
    present = torch.ones_like(inputs.mask)
    present[0, 1, 0] = present[2, 7, -1] = False
    expected = model.run(*inputs._replace(mask=present), prior)
    status = torch.zeros(3, 12, dtype=torch.int64)
    status[0, 1] = status[2, 7] = int(fwnkf.Status.NON_FINITE_OBSERVATION)
    for mask in (None, torch.ones_like(present)):
        trajectory = model.run(*inputs._replace(y=broken, mask=mask), prior)
        assert torch.equal(trajectory.status, status)
        assert_same_tree(trajectory._replace(status=status), expected._replace(status=status))


# ---- purity --------------------------------------------------------------------------------------------------------


def test_inputs_are_not_modified(case: Case):
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    prior = make_prior(model, 3)
    parameters = {name: value.clone() for name, value in model.state_dict().items()}
    state = model.run(*inputs.part(0, 4), prior).state
    kept_inputs = [None if x is None else x.clone() for x in inputs]
    kept_prior, kept_state = tree_map(torch.clone, prior), tree_map(torch.clone, state)
    model.step(state, *inputs.at(4))
    model.run(*inputs.part(5, 12), state=state)
    model.run(*inputs, prior)
    for mine, theirs in zip(inputs, kept_inputs, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert_same_bits(mine, theirs)
    assert_same_tree(prior, kept_prior)
    assert_same_tree(state, kept_state)
    for name, value in model.state_dict().items():
        assert_same_bits(value, parameters[name], name)


def test_a_step_is_pure(case: Case):
    """The same state twice, with other steps in between, gives the same bits."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    state = model.run(*inputs.part(0, 4), make_prior(model, 3)).state
    first = model.step(state, *inputs.at(4))
    model.step(first[0], *inputs.at(5))
    model.step(model.init(3), *inputs.at(6))
    assert_same_tree(model.step(state, *inputs.at(4)), first)


def test_two_runs_give_the_same_bits(case: Case):
    """Also two filters built alike, and independent of torch's global generator."""
    inputs = make_inputs(case, torch.float32)
    model, twin = case.build(torch.float32), case.build(torch.float32)
    first = model.run(*inputs)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert_same_tree(model.run(*inputs), first)
        assert_same_tree(twin.run(*inputs), first)


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_dtypes_come_from_the_filter(case: Case, dtype: torch.dtype):
    model, inputs = case.build(dtype), make_inputs(case, dtype)
    assert (model.dtype, model.device) == (dtype, torch.device("cpu"))
    trajectory = model.run(*inputs)
    for name, leaf in tensors(trajectory):
        wanted = torch.int64 if name == "status" else dtype
        assert leaf.dtype == wanted or not leaf.is_floating_point(), name
    assert trajectory.status.dtype == torch.int64
    for name, leaf in named_leaves(model.init(2)):
        assert leaf.dtype == dtype or not leaf.is_floating_point(), name
        assert leaf.shape[0] == 2, name


def test_float32_and_float64_agree(case: Case):
    """With a loose tolerance, to detect a constant or a buffer of the wrong precision."""
    if not case.same_in_both_dtypes:
        pytest.skip("the two have different samples")
    narrow, wide = (case.build(dtype).run(*make_inputs(case, dtype)) for dtype in BOTH)
    for field in fwnkf.StepOutput._fields[:-1]:
        torch.testing.assert_close(getattr(narrow, field).double(), getattr(wide, field), rtol=1e-2, atol=1e-3)


def test_a_filter_can_be_converted_to_double(case: Case):
    """``filter.double()`` converts every tensor of the filter."""
    model = case.build(torch.float32).double()
    trajectory = model.run(*make_inputs(case, torch.float64))
    assert trajectory.mean.dtype == trajectory.cov.dtype == torch.float64


# ---- gradients -----------------------------------------------------------------------------------------------------


class Step(nn.Module):
    """A step as a module, so that parameters and the state's tensors can be arguments of a function."""

    def __init__(self, model: fwnkf.Filter, state: Any, inputs: Inputs) -> None:
        super().__init__()
        self.model, self.template, self.inputs = model, state, inputs

    def forward(self, leaves: list[Tensor], y: Tensor) -> list[tuple[str, Tensor]]:
        state = tree_unflatten(self.template, iter(leaves))
        next_state, out = self.model.step(state, y, *self.inputs[1:])
        return [*floats(out), *((f"next {name}", leaf) for name, leaf in floats(next_state))]


def check_gradients(model: fwnkf.Filter, inputs: Inputs, state: Any, h: float = 1e-6) -> None:
    """Every output with respect to every input: y, every tensor of the state, every parameter.

    As the fast mode of gradcheck, by random projections, but faster and with the names of a wrong gradient.
    """
    step = Step(model, state, inputs)
    leaves = dict(named_leaves(state))
    moving = [name for name, leaf in leaves.items() if leaf.is_floating_point() and leaf.numel()]
    parameters = dict(model.named_parameters())
    # a mean is perturbed along its manifold, because functions are not defined off the sphere of unit quaternions
    on_manifold = {name for name in moving if leaves[name].shape[-1:] == (model.layout.size,) and not model.layout.flat}
    zero_perturbation = {
        name: leaves[name].new_zeros(*leaves[name].shape[:-1], model.layout.tangent_size) for name in on_manifold
    }
    arguments = {
        "y": inputs.y,
        **{f"state {name}": zero_perturbation.get(name, leaves[name]) for name in moving},
        **parameters,
    }
    arguments = {name: value.detach().clone().requires_grad_() for name, value in arguments.items()}
    generator = torch.Generator().manual_seed(11)

    def like(x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return noise / noise.norm()

    def function(values: dict[str, Tensor]) -> dict[str, Tensor]:
        full = {name: values.get(f"state {name}", leaf) for name, leaf in leaves.items()}
        full.update({name: model.layout.boxplus(leaves[name], full[name]) for name in on_manifold})
        weights = {f"model.{name}": values[name] for name in parameters}
        return dict(torch.func.functional_call(step, weights, (list(full.values()), values["y"])))

    outputs = {name: value for name, value in function(arguments).items() if value.requires_grad}
    weights = {name: like(value) for name, value in outputs.items()}
    directions = {name: like(value) for name, value in arguments.items()}
    for name in directions:
        if name.endswith("cov"):  # a perturbation of a covariance must be symmetric
            directions[name] = (directions[name] + directions[name].mT) / 2
    perturbed: dict[str, list[dict[str, Tensor]]] = {}
    with torch.no_grad():
        for name, value in arguments.items():
            moved = [{**arguments, name: value + sign * h * directions[name]} for sign in (1, -1)]
            perturbed[name] = [function(values) for values in moved]
    for out, value in outputs.items():
        scalar = (value * weights[out]).sum()
        gradients = torch.autograd.grad(scalar, list(arguments.values()), retain_graph=True, allow_unused=True)
        for (name, direction), gradient in zip(directions.items(), gradients, strict=True):
            analytic = 0.0 if gradient is None else float((gradient * direction).sum())
            forward, backward = (float((run[out] * weights[out]).sum()) for run in perturbed[name])
            numeric = (forward - backward) / (2 * h)
            assert abs(analytic - numeric) <= 1e-5 + 1e-3 * abs(numeric), f"∂({out})/∂({name}): {analytic} vs {numeric}"


def test_the_gradient_of_a_step_is_correct(case: Case, monkeypatch: pytest.MonkeyPatch):
    """From the middle of a trajectory, where no vector has length zero; with a channel missing and with none.

    A gradient that a filter stops on purpose is let through, so that all others are checked.
    """
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64, batch=2)
    if case.detaches:
        monkeypatch.setattr(model, case.detaches, lambda value: value)
    with torch.no_grad():
        state = model.run(*inputs.part(0, 8), make_prior(model, 2)).state
    for mask in (torch.ones_like(inputs.mask[:, 8]), torch.arange(case.observation_dim).expand(2, -1) > 0):
        check_gradients(model, inputs.at(8)._replace(mask=mask), state)


def test_truncation_cuts_the_gradient_exactly(case: Case):
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64)
    prior = make_prior(model, 3)

    def gradient(**options: int) -> Tensor:
        y = inputs.y.clone().requires_grad_()
        trajectory = model.run(y, inputs.u, None, inputs.dt, prior, **options)
        trajectory.mean[:, -1].square().sum().backward()
        return y.grad

    cut, whole = gradient(truncate=5), gradient()  # blocks 0-4, 5-9, 10-11
    assert not cut[:, :10].any()
    assert bool(cut[:, 10:].any())
    assert bool(whole[:, :10].any())
    assert bool(whole[:, 4].any())


def test_recomputation_gives_the_same_gradient(case: Case):
    model, inputs = case.build(torch.float64), make_inputs(case, torch.float64, steps=4)
    prior = make_prior(model, 3)

    def gradients(**options: int) -> list[Tensor]:
        y = inputs.y.clone().requires_grad_()
        trajectory = model.run(y, *inputs[1:], prior, **options)
        wanted = [y, *model.parameters()]
        loss = trajectory.mean.square().sum() + trajectory.cov.square().sum()
        computed = torch.autograd.grad(loss, wanted, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, computed, strict=True)]

    for mine, theirs in zip(gradients(checkpoint=2), gradients(), strict=True):
        assert_close(mine, theirs, "algebra")


# ---- covariances ---------------------------------------------------------------------------------------------------


@pytest.mark.unchecked("hundreds of steps, whose shapes others check")
@pytest.mark.parametrize("steps", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_covariances_stay_symmetric_and_positive_in_float32(case: Case, steps: int):
    """With missing samples, dropouts and outliers a thousand times as large; for longer: benchmarks/stability.py."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32, batch=2, steps=steps)
    generator = torch.Generator().manual_seed(5)
    outlier = torch.rand(inputs.y.shape, generator=generator) < max(0.01, 5 / steps)  # a few in each channel
    y = torch.where(outlier, 1e3 * inputs.y, inputs.y)
    mask = inputs.mask.clone()
    mask[0, 3 * steps // 10 : 4 * steps // 10] = False
    mask[1, 6 * steps // 10 : 7 * steps // 10, 0] = False
    with torch.no_grad():
        trajectory = model.run(y, inputs.u, mask, inputs.dt, make_prior(model, 2)).raise_for_status()
    for name in ("cov", "prior_cov", "innovation_cov"):
        cov = getattr(trajectory, name)
        assert bool(cov.isfinite().all()), name
        eigenvalues = torch.linalg.eigvalsh(cov.double())
        largest = eigenvalues[..., -1]
        assert bool((eigenvalues[..., 0] >= -1e-6 * largest).all()), name
        assert bool((cov == cov.mT).all()), name  # to the last bit
        assert bool((largest[:, 1:] > 0).all()), name  # the members of an ensemble start at the same point
    assert bool(trajectory.mean.isfinite().all())


# ---- stopping and continuing ---------------------------------------------------------------------------------------


def test_a_run_continued_from_a_saved_state_equals_one_run(case: Case):
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    prior = make_prior(model, 3)
    whole = model.run(*inputs, prior)
    first = model.run(*inputs.part(0, 5), prior)
    data = checkpoint.dump_state(model, first.state)
    assert isinstance(data, bytes)
    elsewhere = case.build(torch.float32)
    state = checkpoint.load_state(elsewhere, data)
    assert type(state) is type(first.state)
    assert_same_tree(state, first.state)
    second = elsewhere.run(*inputs.part(5, 12), state=state)
    assert_same_tree(second.state, whole.state)
    for field in fwnkf.StepOutput._fields:
        assert_same_bits(getattr(second, field), getattr(whole, field)[:, 5:], field)


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_a_loaded_filter_equals_the_saved_filter(case: Case, dtype: torch.dtype, tmp_path):
    model, inputs = case.build(dtype), make_inputs(case, dtype)
    checkpoint.save(model, tmp_path / "filter")
    loaded = checkpoint.load(tmp_path / "filter").eval()
    assert type(loaded) is type(model)
    # what tensors start at is left out of files, which have the tensors
    assert options_of(loaded.config, saved=True) == options_of(model.config, saved=True)
    assert_same_tree(loaded.run(*inputs), model.run(*inputs))
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name, parameter in loaded.named_parameters() if parameter.requires_grad} == names


# ---- export --------------------------------------------------------------------------------------------------------


class Flat(nn.Module):
    """A step on flat tuples of tensors, the form of an exported program."""

    def __init__(self, model: fwnkf.Filter, state: Any) -> None:
        super().__init__()
        self.model, self.template = model, state

    def forward(
        self, leaves: tuple[Tensor, ...], y: Tensor, mask: Tensor, u: Tensor | None = None, dt: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        state, out = self.model.step(tree_unflatten(self.template, iter(leaves)), y, u, mask, dt)
        return tuple(leaf for _, leaf in named_leaves((state, out)))


FIRST = {case.filter: name for name, case in reversed(CASES.items())}
EXPORTED = {*FIRST.values(), "ekf-attitude", "kf-square-root", "lines"}
"""The first case of each filter, and forms with operations of their own; all others are exported by hand."""


@pytest.mark.export
@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=() if name in EXPORTED else pytest.mark.slow) for name in CASES],
    indirect=True,
)
def test_an_exported_step_equals_the_step(case: Case):
    """Exported on one step, compared on ten others, each continued from the exported state."""
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32, batch=2)
    with torch.no_grad():
        state = model.init(2, make_prior(model, 2))
        flat = Flat(model, state)
        leaves = tuple(leaf for _, leaf in named_leaves(state))
        first = inputs.at(0)
        arguments = (leaves, first.y, first.mask, first.u, first.dt)
        traced = make_fx(flat)(*arguments) if case.traced_first else flat
        program = torch.export.export(traced, arguments).module()
        for t in range(1, 11):
            now = inputs.at(t)
            expected = flat(leaves, now.y, now.mask, now.u, now.dt)
            outputs = program(leaves, now.y, now.mask, now.u, now.dt)
            for mine, theirs in zip(outputs, expected, strict=True):
                if theirs.is_floating_point():
                    assert_close(mine, theirs, "export")
                else:
                    assert torch.equal(mine, theirs)
            leaves = tuple(outputs[: len(leaves)])


# ---- invalid inputs ------------------------------------------------------------------------------------------------


@pytest.mark.unchecked("the type checker refuses them first")
def test_invalid_inputs_raise_errors_that_name_the_shape(case: Case):
    model, inputs = case.build(torch.float32), make_inputs(case, torch.float32)
    m, name = case.observation_dim, case.filter
    state = model.init(3)
    now = inputs.at(0)
    with pytest.raises(ShapeError, match=rf"filter '{name}': y has shape \(3, {m + 1}\), wanted \[B, {m}\]"):
        model.step(state, torch.zeros(3, m + 1), now.u, None, now.dt)
    with pytest.raises(ShapeError, match=rf"y has shape \(3, 12\), wanted \[B, T, {m}\]"):
        model.run(torch.zeros(3, 12))
    with pytest.raises(ShapeError, match=r"torch.float32.*torch.float64.*filter.to"):
        model.step(state, now.y.double())
    with pytest.raises(ShapeError, match=r"mask is torch.float32 .*wanted torch.bool"):
        model.step(state, now.y, mask=torch.ones(3, m))
    with pytest.raises(ShapeError, match=rf"mask is torch.bool \(2, {m}\)"):
        model.step(state, now.y, mask=torch.ones(2, m, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"dt has shape \(3, 1\).*seconds"):
        model.step(state, now.y, dt=torch.ones(3, 1))
    wanted = rf"\(3, {case.control_dim}\)" if case.control_dim else "no control"
    with pytest.raises(ShapeError, match=rf"u has shape \(3, {case.control_dim + 1}\).*{wanted}"):
        model.step(state, now.y, u=torch.ones(3, case.control_dim + 1))
    with pytest.raises(ShapeError, match=r"prior of filter.*mean \(3, 17\)"):
        model.init(3, fwnkf.Gaussian(torch.zeros(3, 17), torch.eye(model.layout.tangent_size)))
    with pytest.raises(ShapeError, match="one batch axis"):
        model.init((2, 3))
    fitting = make_prior(model, 2)
    with pytest.raises(ShapeError, match=r"prior of filter.*wanted \[3, "):
        model.init(3, fitting)
    with pytest.raises(ShapeError, match=r"is torch.float32.*prior is torch.float64"):
        model.init(2, fwnkf.Gaussian(*(part.double() for part in fitting)))
    with pytest.raises(ShapeError, match=r"dt is torch.float64, but y is torch.float32"):
        model.step(state, now.y, dt=torch.ones(3).double())
    if now.u is not None:
        with pytest.raises(ShapeError, match=r"u is torch.float64, but y is torch.float32"):
            model.step(state, now.y, now.u.double())
    with pytest.raises(ConfigError, match="no steps"):
        model.run(torch.zeros(3, 0, m))


def test_every_filter_of_the_package_has_a_case():
    assert {name for name in FILTERS if FILTERS[name].__module__.startswith("fwnkf.")} == {
        case.filter for case in CASES.values()
    }


def test_every_case_builds_the_filter_it_names():
    for label, case in CASES.items():
        model = case.build(torch.float32)
        assert model.name == case.filter, label
        assert model.observation_dim == case.observation_dim, label
        assert model.control_dim == case.control_dim, label
