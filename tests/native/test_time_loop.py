"""The loop over time in C agrees with the plain one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fwnkf
from fwnkf.core.scan import length_of, scan
from fwnkf.core.tree import named_leaves
from fwnkf.errors import ConfigError
from fwnkf.filters import base
from fwnkf.native import compilers, time_loop
from fwnkf.native.compilers import c_compiler
from fwnkf.native.time_loop import scan_native

from ..conformance.cases import CASES
from ..conformance.test_conformance import make_inputs, make_prior
from ..tolerances import assert_same_bits

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc, clang) on this machine")

AGREEMENT = 1e-9
"""Of float64, relative to the largest entry: other orders of summation, through forty steps."""
OPTIMISED = ("kf", "ekf-pendulum", "drift", "phi")
"""Cases that are compiled with the flags of every day; the others without optimisation, which takes a tenth as long."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FWNKF_CACHE", str(tmp_path_factory.getbasetemp() / "native"))


LOOP: dict[str, Any] = {"engine": "loop"}
"""The engine that calls ``scan``, whatever the filter; by :func:`in_c` that is the generated loop."""


def in_c(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let ``engine="loop"`` run the generated loop; the list has the number of steps of each run."""
    made: list[int] = []

    def replaced(body: Any, state: Any, inputs: Any, *, first: Any = None, **_: Any) -> Any:
        made.append(length_of(inputs))
        return scan_native(body, state, inputs, first=first)

    monkeypatch.setattr(base, "scan", replaced)
    return made


def assert_agree(actual: Any, expected: Any) -> None:
    for (name, mine), (_, theirs) in zip(named_leaves(actual), named_leaves(expected), strict=True):
        if theirs is None:
            assert mine is None, name
            continue
        assert mine.shape == theirs.shape, name
        assert mine.dtype == theirs.dtype, name
        if theirs.is_floating_point() and theirs.numel():
            size = theirs.nan_to_num().abs().max().clamp(min=1e-3)
            torch.testing.assert_close(
                mine / size,
                theirs / size,
                rtol=0,
                atol=AGREEMENT,
                equal_nan=True,
                msg=lambda told, name=name: name + told,
            )
        else:
            assert torch.equal(mine, theirs), name


def runs(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, Any]:
    """A case in C and in the plain loop, with missing channels, a NaN that is not masked and irregular steps."""
    case = CASES[name]
    model = case.build(torch.float64).requires_grad_(False)
    inputs = make_inputs(case, torch.float64, steps=40)
    inputs.y[1, 7, 0] = torch.nan
    given = (*inputs, make_prior(model, 3))
    with torch.no_grad():
        expected = model.run(*given, **LOOP, **options)
        made = in_c(monkeypatch)
        actual = model.run(*given, **LOOP, **options)
    assert made == [40]
    return actual, expected


@pytest.mark.parametrize("name", CASES)
def test_every_filter_agrees_with_the_plain_loop(name: str, monkeypatch: pytest.MonkeyPatch):
    if name not in OPTIMISED:
        monkeypatch.setattr(compilers, "LEVELS", ((float("inf"), ("-O0",)),))
    actual, expected = runs(name, monkeypatch)
    assert int(expected.status[1, 7]) & int(fwnkf.Status.NON_FINITE_OBSERVATION)
    assert_agree(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["first_measurement", "before_first_step"])
@pytest.mark.parametrize("name", CASES)
def test_every_filter_agrees_when_optimised(name: str, at: Any, monkeypatch: pytest.MonkeyPatch):
    assert_agree(*runs(name, monkeypatch, prior_at=at))


@pytest.mark.parametrize("name", ["kf-continuous", "ekf-pendulum"])
def test_what_a_smoother_needs_is_recorded(name: str, monkeypatch: pytest.MonkeyPatch):
    assert_agree(*runs(name, monkeypatch, smoothing=True, prior_at="before_first_step"))


@pytest.mark.parametrize("name", ["ekf-pendulum", "drift", "ekf-attitude"])
@torch.no_grad()
def test_the_likelihood_of_a_compiled_run_is_that_of_the_loop(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compilers, "LEVELS", ((float("inf"), ("-O0",)),))
    case = CASES[name]
    model = case.build(torch.float64).requires_grad_(False)
    inputs = make_inputs(case, torch.float64, steps=40)
    compiled, loop = (model.run(*inputs, make_prior(model, 3), engine=engine) for engine in ("native", "loop"))
    assert compiled.log_density is not None
    assert loop.log_density is None
    torch.testing.assert_close(compiled.log_likelihood, loop.log_likelihood, rtol=AGREEMENT, atol=0)


@pytest.mark.parametrize("name", ["ekf-pendulum", "orders", "hypotheses-fallback"])
def test_a_run_that_was_cut_and_continued_has_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch):
    case = CASES[name]
    model = case.build(torch.float64).requires_grad_(False)
    inputs = make_inputs(case, torch.float64, steps=40)
    made, prior = in_c(monkeypatch), make_prior(model, 3)
    with torch.no_grad():
        whole = model.run(*inputs, prior, **LOOP)
        begin = model.run(*inputs.part(0, 13), prior, **LOOP)
        rest = model.run(*inputs.part(13, 40), state=begin.state, **LOOP)
        alone = model.run(*inputs.items(slice(1, 2)), fwnkf.Gaussian(*(part[1:2] for part in prior)), **LOOP)
    assert made == [40, 13, 27, 40]
    for field in ("mean", "cov", "innovation", "status"):
        joined = torch.cat([getattr(begin, field), getattr(rest, field)], 1)
        assert_same_bits(joined, getattr(whole, field), field)
        assert_same_bits(getattr(alone, field), getattr(whole, field)[1:2], field)
    for (key, mine), (_, theirs) in zip(named_leaves(rest.state), named_leaves(whole.state), strict=True):
        assert_same_bits(mine, theirs, key)


def test_rejected_steps_leave_the_state(monkeypatch: pytest.MonkeyPatch):
    """A control that is not a number is rejected by every filter without missing controls."""
    case = CASES["ekf-pendulum"]
    model = case.build(torch.float64).requires_grad_(False)
    y, u, mask, dt = make_inputs(case, torch.float64)
    assert u is not None
    u[0, 4] = torch.nan
    with torch.no_grad():
        expected = model.run(y, u, mask, dt, **LOOP)
        made = in_c(monkeypatch)
        actual = model.run(y, u, mask, dt, **LOOP)
    assert made == [12]
    assert int(expected.status[0, 4]) & int(fwnkf.Status.REJECTED)
    assert_agree(actual, expected)


# ---- the function itself ---------------------------------------------------------------------------------------------


def body(state: Any, inputs: Any) -> Any:
    count, x = state
    y, flag, nothing = inputs
    after = x * 0.5 + torch.where(flag, y, -y)
    total = after.sum(-1) + count.to(after.dtype)
    return (count + 1, after), (total, None, after.new_full((len(after), 2), 3.0), flag, count.int(), nothing)


def first(state: Any, inputs: Any) -> Any:
    after, out = body(state, inputs)
    return (after[0], 2 * after[1]), out


def arguments(steps: int = 9) -> tuple[Any, list[Tensor | None]]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, steps, 3, generator=generator, dtype=torch.float64)
    flag = torch.rand(2, steps, 1, generator=generator) < 0.5
    return (torch.zeros(2, dtype=torch.int64), torch.ones(2, 3, dtype=torch.float64)), [y, flag, None]


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("begin", [None, first])
def test_trees_types_and_lengths(steps: int, begin: Any):
    state, inputs = arguments(steps)
    kept = [item.clone() for item in state]
    actual = scan_native(body, state, inputs, first=begin)
    assert_agree(actual, scan(body, state, inputs, first=begin))
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))


def test_forward_derivatives_are_recorded():
    """Their zero tangents have no memory, and their shapes are found without numbers."""

    def step(state: Tensor, inputs: Any) -> Any:
        def column(direction: Tensor) -> Tensor:
            given = (torch.zeros_like(state),), (direction.expand_as(state),)
            return torch.func.jvp(lambda d: torch.cat((((state + d) ** 2).sin() / 3, state), -1), *given)[1]

        return 0.5 * state + inputs[0], torch.func.vmap(column, out_dims=-1)(torch.eye(2).to(state))

    state, inputs = torch.ones(2, 2, dtype=torch.float64), [torch.rand(2, 5, 2, dtype=torch.float64)]
    assert_agree(scan_native(step, state, inputs), scan(step, state, inputs))


def test_inputs_need_not_be_contiguous():
    state, (y, flag, _) = arguments()
    assert y is not None
    assert flag is not None
    wide = torch.stack((y, -y), -1)[..., 0]
    assert not wide.is_contiguous()
    inputs = [wide, flag[:, :1].expand(2, 9, 1), None]
    assert_agree(scan_native(body, state, inputs), scan(body, state, inputs))


def test_a_value_that_is_always_the_same_takes_no_memory():
    state, inputs = arguments()
    out = scan_native(body, state, inputs)[1]
    assert out[2].stride()[:2] == (0, 0)
    assert out[2].shape == (2, 9, 2)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The C that is compiled from now on."""
    seen: list[str] = []

    def library(text: str) -> Any:
        seen.append(text)
        return compilers.shared_library(text)

    monkeypatch.setattr(time_loop, "shared_library", library)
    return seen


def test_what_is_not_returned_is_not_computed(sources: list[str]):
    def wasteful(state: Tensor, inputs: Any) -> Any:
        (x,) = inputs
        return state + x, (torch.linalg.matrix_exp(x[..., None, None] * torch.eye(8)), state)

    x = torch.rand(1, 5)
    for chosen in (wasteful, lambda s, i: (wasteful(s, i)[0], wasteful(s, i)[1][1])):
        scan_native(chosen, torch.zeros(1), [x])
    assert ["matrix_exponential" in text for text in sources] == [True, False]


def test_a_key_saves_the_trace_and_constants_save_the_compilation(sources: list[str], monkeypatch: pytest.MonkeyPatch):
    traced: list[int] = []

    def scaled(state: Tensor, inputs: Any, constants: Any) -> Any:
        traced.append(1)
        after = state * constants[0] + inputs[0]
        return after, after @ constants[1]

    monkeypatch.setattr(time_loop, "_known", {})
    x, start = torch.rand(2, 6, 3), torch.zeros(2, 3)
    for scale in (0.5, 0.25):
        constants = (torch.tensor(scale), torch.full((3, 3), scale))
        given = scan(lambda s, i, c=constants: scaled(s, i, c), start, [x])
        traced.clear()
        actual = scan_native(scaled, start, [x], constants=constants, key="scaled")
        torch.testing.assert_close(actual, given, rtol=1e-6, atol=1e-6)
        assert bool(traced) == (scale == 0.5)
    assert len(sources) == 1
    doubled = (torch.ones((), dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    scan_native(scaled, start.double(), [x.double()], constants=doubled, key="scaled")
    assert len(sources) == 2  # another precision is another loop


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda s, i: (s + 1 if bool(i[0].sum() > 0) else s, s), "reads the value"),
        (lambda s, i: (torch.cat((s, s), -1), s), "another form of state"),
        (lambda s, i: (s, s.sum()), "axis of records"),
        (lambda s, i: (s, s.to(torch.float16)), "no C for torch.float16"),
        (lambda s, i: (s, s.double()), "two precisions"),
        (lambda s, i: (s, torch.linalg.svdvals(s[..., None])), "no C here"),
    ],
)
def test_what_has_no_c_is_a_config_error(step: Any, told: str):
    with pytest.raises(ConfigError, match=told):
        scan_native(step, torch.zeros(1, 2), [torch.ones(1, 4, 2)])
