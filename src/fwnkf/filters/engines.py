"""The engines of the loop over time: which one serves a run, and filters with a linear model on them.

- ``"loop"``: PyTorch, step by step. Everything runs on it, on any device and with gradients; the others agree with it.
- ``"scan"``: a linear model over all steps at once, in batched PyTorch with gradients (:mod:`fwnkf.core.parallel`).
- ``"native"``: compiled code on the CPU, without gradients. A linear model has a kernel of its own
  (:mod:`fwnkf.native.kalman`); the step of any other filter is traced to C (:mod:`fwnkf.native.time_loop`).

``"auto"`` chooses from the filter and the shapes alone, never from values or from what was compiled before, so that the
same call gives the same bits on the same machine.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor

from ..core import parallel
from ..core.gaussian import solve_rows
from ..core.integrate import discretize
from ..core.linear_run import LinearRun, LinearTrack
from ..core.parallel_smoothing import smooth_scan
from ..core.preprocess import Inputs
from ..core.smoothing import LinearStep, LinearSteps, Measurement
from ..core.trajectory import Trajectory
from ..core.tree import tree_leaves, tree_map
from ..errors import ConfigError, NumericalFailureError
from ..native import kalman
from ..native.compilers import library_compiler
from ..native.identity import key_of
from ..shapes import Bool, Float
from ..types import Gaussian, Status, StepOutput
from .outputs import covariance_factor

Filter = Any
"""A :class:`fwnkf.Filter`, which imports this module."""
Result = TypeVar("Result")
Engine = Literal["auto", "loop", "scan", "native"]
OUTPUTS = StepOutput._fields
"""What a run can return for every step."""

FEW_LENGTHS = 32
"""Lengths of steps above which their matrices are evaluated as series."""
LINEAR_STEPS = 200
"""Steps of a record from which on a linear model is not run by the loop."""
TRACED_STEPS = 3_000
"""Steps of a record from which on a step is traced and compiled, which takes seconds."""
TRACED_RECORDS = 32
"""Records up to which compiled code, one record after the other, is faster than PyTorch with all side by side."""


class EngineError(ConfigError):
    """An engine cannot run this filter on these inputs; another one can."""


def check(engine: str, outputs: Sequence[str] | None) -> None:
    """Raise ConfigError for a name that there is not."""
    if engine not in get_args(Engine):
        raise ConfigError(f"engine = {engine!r}; there are: {', '.join(get_args(Engine))}")
    unknown = sorted(set(outputs or ()) - set(OUTPUTS))
    if unknown:
        raise ConfigError(f"outputs: {', '.join(unknown)} unknown; there are: {', '.join(OUTPUTS)}")


def needs_gradients(model: Filter, *trees: Any) -> bool:
    """Whether a result is to be differentiated: gradients are on, and a parameter or an input asks for them."""
    if not torch.is_grad_enabled():
        return False
    leaves = [*model.parameters(), *tree_leaves(trees)]
    return any(leaf.requires_grad for leaf in leaves)


def is_transformed(*trees: Any) -> bool:
    """Whether the numbers are not there: inside ``torch.func``, while tracing or compiling, or on the meta device."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return any(type(leaf) not in (Tensor, torch.nn.Parameter) or leaf.is_meta for leaf in tree_leaves(trees))


def compiles() -> bool:
    """Whether this machine has a C compiler."""
    try:
        library_compiler()
    except ConfigError:
        return False
    return True


def compiles_for(y: Tensor) -> bool:
    """Whether compiled code runs on measurements of this device and dtype, and this machine has a compiler."""
    return y.device.type == "cpu" and y.dtype in (torch.float32, torch.float64) and compiles()


def is_linear(model: Filter, prepared: Any) -> bool:
    """Whether a filter is the exact Kalman filter of the linear model that it states."""
    return _stated(model, prepared) is not None


def _stated(model: Filter, prepared: Any) -> Any:
    """The linear model whose exact Kalman filter a filter is, a :class:`fwnkf.filters.base.LinearModel`, or None."""
    if model.preprocess is not None or getattr(model.config, "solve", "auto") in ("square_root", "sequential"):
        return None
    stated = model.linear_model(prepared)
    return stated if stated.kind == "constant" else None


def choose(
    model: Filter, prepared: Any, state: Any, inputs: Inputs, steps: int, smoothing: bool = False
) -> tuple[Engine, ...]:
    """The engines for a run in the order in which they are tried; the last one always serves."""
    tensors = (prepared, state, inputs)
    if steps < LINEAR_STEPS or is_transformed(*tensors):
        return ("loop",)
    gradients = needs_gradients(model, *tensors)
    native = not gradients and compiles_for(inputs.y)
    if is_linear(model, prepared):
        return ("native", "scan", "loop") if native else ("scan", "loop")
    if native and not smoothing and innermost(model, prepared) is not None:
        return ("native", "loop")
    if native and steps >= TRACED_STEPS and len(inputs.y) <= TRACED_RECORDS:
        return ("native", "loop")
    return ("loop",)


def innermost(model: Filter, prepared: Any) -> Filter | None:
    """The linear filter from whose innovations the estimates and levels of a filter follow; None for others.

    In float64 alone: whether a covariance is within the rounding of a state depends on the level and the estimate.
    """
    plain: Filter | None = getattr(model, "innermost", lambda: None)()
    return plain if plain is not None and plain.dtype == torch.float64 and is_linear(plain, prepared) else None


# ---- linear models ---------------------------------------------------------------------------------------------------


def linear_run(
    model: Filter,
    prepared: Any,
    state: Any,
    inputs: Inputs,
    predicts_first: bool,
    *,
    compiled: bool,
    tabulated: bool = False,
) -> LinearRun | None:
    """The linear model of a filter over recordings; None if it has none, or one with a constant term.

    ``compiled`` leaves what controls add to compiled code, and the matrices of steps of any length too, unless they are
    to be ``tabulated``.
    """
    stated = _stated(model, prepared)
    if stated is None:
        return None
    y, weight, u, dt = inputs
    belief = model.joint_belief(state)
    kind, lengths, continuous = None, None, None
    if dt is not None:
        assert model.system is not None
        if not predicts_first:  # the first step has no length
            dt = torch.cat((torch.full_like(dt[:, :1], model.system.dt), dt[:, 1:]), 1)
        if compiled and not tabulated and stated.continuous is not None:
            continuous, lengths = stated.continuous, dt / model.system.dt
        else:
            different = dt.reshape(-1)[:1]
            if not bool((dt == different).all()):  # else one kind of step for all, and nothing to sort
                different, kind = torch.unique(dt, return_inverse=True)
            if stated.continuous is not None and len(different) > FEW_LENGTHS:
                F, B, Q = kalman.tabulated(stated.continuous, different / model.system.dt)
                stated = stated._replace(F=F, B=B, Q=Q)
            else:
                stated = model.linear_model(prepared, different)
    F, B, H, Q, R = stated[1:6]
    if F is None or B is None or H is None or Q is None or R is None or not _through_origin(model):
        return None
    if F.ndim == 2:
        F, B, Q = F[None], B[None], Q[None]
    run = LinearRun(F, Q.expand_as(F), H, R, y, weight, belief.mean, belief.cov, kind, predicts_first=predicts_first)
    if u is None:
        return run._replace(continuous=continuous, dt=lengths)
    if compiled:
        return run._replace(B=B, u=u, continuous=continuous, dt=lengths)
    by = B[0] if kind is None else B[kind]
    return _without_rejected(run._replace(shift=(by * u.unsqueeze(-2)).sum(-1)), u)


def _rejected(u: Float[Tensor, "B T p"], predicts_first: bool) -> Bool[Tensor, "B T"]:
    """The steps that move by a control that is not finite."""
    rejected = ~u.isfinite().all(-1)
    rejected[:, 0] &= predicts_first
    return rejected


def _without_rejected(run: LinearRun, u: Tensor) -> LinearRun:
    """Steps whose control is not finite neither move nor measure anything."""
    rejected = _rejected(u, run.predicts_first)
    assert run.shift is not None
    if not bool(rejected.any()):
        return run
    eye = torch.eye(run.F.shape[-1]).to(run.F)[None]
    kind = torch.zeros_like(rejected, dtype=torch.int64) if run.kind is None else run.kind
    return run._replace(
        F=torch.cat((run.F, eye)),
        Q=torch.cat((run.Q, torch.zeros_like(eye))),
        kind=torch.where(rejected, len(run.F), kind),
        weight=torch.where(rejected.unsqueeze(-1), 0.0, run.weight),
        shift=torch.where(rejected.unsqueeze(-1), 0.0, run.shift),
    )


@torch.no_grad()
def _through_origin(model: Filter) -> bool:
    """Whether zero moves to zero and measures zero, so that the matrices are all there is."""
    system = model.system
    assert system is not None
    zero = system.layout.origin(model._like()).unsqueeze(0)
    return not bool(system.transition(zero, None, None).any()) and not bool(system.observe(zero).any())


def log_likelihood(
    model: Filter, prepared: Any, state: Any, inputs: Inputs, predicts_first: bool
) -> Float[Tensor, " B"] | None:
    """The log-likelihood of a linear model with gradients by compiled code; None where it cannot be had."""
    tensors = (prepared, state, inputs)
    given = [item for item in (inputs.y, inputs.u, inputs.dt) if item is not None]
    if is_transformed(*tensors) or any(item.requires_grad for item in given) or not compiles_for(inputs.y):
        return None
    run = linear_run(model, prepared, state, inputs, predicts_first, compiled=True, tabulated=True)
    if run is None or run.F.shape[-1] > kalman.LARGEST:
        return None
    try:
        return kalman.log_likelihood(run)
    except NumericalFailureError:
        return None


class LinearRecord(NamedTuple):
    """What :func:`fwnkf.smooth` needs of a run of a linear model: the model, and the moments of all coordinates."""

    run: LinearRun
    filtered: dict[str, Tensor]
    extra: int
    """Coordinates beyond those of the state."""
    engine: Engine
    log_weight: None = None

    def smoothed(self, following: Any) -> kalman.Smoothed:
        """The smoothed moments of a recording; of a part of one, given what the part after it left."""
        if self.engine == "native":
            return kalman.kalman_smoother(self.run, self.filtered, following)
        out, done = self.filtered, torch.ones_like(self.filtered["status"], dtype=torch.bool)
        track = LinearTrack(**{name: out.get(name, done) for name in LinearTrack._fields})
        mean, cov, cross = smooth_scan(self.run, track)
        return kalman.Smoothed(mean, cov, torch.cat((torch.zeros_like(cov[:, :1]), cross), 1), [])

    def steps(self) -> LinearSteps:
        """The same in the form in which a filter records it step by step."""
        run, out = self.run, self.filtered
        lead = run.y.shape[:2]
        if run.continuous is not None and run.dt is not None:
            F, _, Q = discretize(*run.continuous[:3], run.dt)
            Q = Q if run.continuous.factor is None else Q * run.continuous.factor
        else:
            kind = torch.zeros(lead, dtype=torch.int64, device=run.y.device) if run.kind is None else run.kind
            F, Q = run.F[kind], run.Q[kind]
        if not run.predicts_first:
            F = torch.cat((torch.eye(F.shape[-1]).to(F).expand_as(F[:, :1]), F[:, 1:]), 1)
            Q = torch.cat((torch.zeros_like(Q[:, :1]), Q[:, 1:]), 1)
        ok = (out["status"] & int(Status.FACTORIZATION_FAILED)) == 0
        noise = tree_map(lambda item: item.expand(*lead, *item.shape), run.R)
        measurement = Measurement(out["innovation"], run.H.expand(*lead, *run.H.shape), noise, run.weight, ok)
        mean, extra = out["mean"].tensor_split([out["mean"].shape[-1] - self.extra], -1)
        correction = out["mean"] - out["prior_mean"]
        step = LinearStep(F, Q, measurement, correction, mean, extra if self.extra else None)
        return LinearSteps(run.cov, step)


def run_linear(
    model: Filter,
    prepared: Any,
    state: Any,
    inputs: Inputs,
    predicts_first: bool,
    engine: Engine,
    outputs: Sequence[str] | None,
    smoothing: bool,
) -> Trajectory | None:
    """A filter with a linear model over recordings; None where ``"native"`` has to trace the step instead."""
    run = linear_run(model, prepared, state, inputs, predicts_first, compiled=engine == "native")
    if run is None:
        if engine == "scan":
            raise EngineError(
                f"engine='scan' is for filters with a linear model, which {model.name!r} with these options is not; "
                "leave engine out"
            )
        return None
    n, size = model.layout.size, run.F.shape[-1]
    wanted = set(OUTPUTS if outputs is None or smoothing else outputs)
    if "shaped_innovation" in wanted:  # which is the innovation: nothing shapes it in a linear filter
        wanted.add("innovation")
    if engine == "native":
        check_native(model, prepared, state, inputs)
        names = [*wanted - {"shaped_innovation", "status"}, "log_density"]
        with_errors = functools.partial(kalman.kalman_filter, run, names, size if smoothing else n, n)
        found, mean, cov = served(with_errors)
    else:
        found, mean, cov = _scanned(run, size if smoothing else n)
    linear = LinearRecord(run, dict(found), size - n, engine) if smoothing else None
    if smoothing:  # the record has all coordinates
        found |= {name: found[name][..., :n] for name in ("mean", "prior_mean")}
        found |= {name: found[name][..., :n, :n] for name in ("cov", "prior_cov")}
    if model.covariance_scale is not None:
        factor = covariance_factor(model.covariance_scale)
        found |= {name: found[name] * factor for name in ("cov", "prior_cov") if name in found}
    if "innovation" in found:
        found["shaped_innovation"] = found["innovation"]
    out = selected(StepOutput(*(found.get(name) for name in OUTPUTS)), outputs)  # type: ignore[arg-type]
    if inputs.u is not None and engine == "scan":
        rejected = _rejected(inputs.u, predicts_first)
        out = out._replace(status=torch.where(rejected, int(Status.REJECTED), out.status))
    after = model.with_joint_belief(state, Gaussian(mean, cov))
    return Trajectory(
        **out._asdict(), state=after, linear=linear, weight=inputs.weight, log_density=found["log_density"]
    )  # fmt: skip


def _scanned(run: LinearRun, width: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """A linear model over all steps at once: outputs over the first ``width`` coordinates, and the last belief."""
    track = parallel.filter_scan(run)
    if not bool(track.ok.all()):
        raise EngineError("engine='scan' cannot skip an update, and an innovation covariance is not positive definite")
    failed = ~torch.stack([item.isfinite().flatten(2).all(-1) for item in (track.mean, track.cov)]).all(0)
    if bool(failed.any()):
        raise EngineError("engine='scan' cannot leave a step out, and a result is not finite: use another engine")
    found = track._asdict()
    del found["ok"]
    found["status"] = ~found.pop("precise") * int(Status.PRECISION_LOST)
    last = track.mean[:, -1], track.cov[:, -1]
    found |= {name: found[name][..., :width] for name in ("mean", "prior_mean")}
    found |= {name: found[name][..., :width, :width] for name in ("cov", "prior_cov")}
    return found, *last


def selected(out: StepOutput, outputs: Sequence[str] | None) -> StepOutput:
    """The outputs that are wanted, and the status; None instead of the others."""
    if outputs is None:
        return out
    kept = {name: item if name in outputs or name == "status" else None for name, item in out._asdict().items()}
    return StepOutput(**kept)  # type: ignore[arg-type]


def log_density(out: StepOutput, weight: Float[Tensor, "B m"]) -> Float[Tensor, " B"] | None:
    """The logarithm of the likelihood of a step; None where innovations are not wanted, or not those of channels."""
    if out.innovation is None or out.innovation_cov is None or weight.shape != out.innovation.shape:
        return None
    # by the elimination that updates are made of, most of which the C of the step then has already
    row = (out.innovation * weight).unsqueeze(-2)
    solved, ok, pivots = solve_rows(row, out.innovation_cov, weight)
    square = torch.where(ok, (solved * row).sum((-2, -1)), row.square().sum((-2, -1)))
    log_det = torch.where(ok.unsqueeze(-1), pivots, 1.0).log().sum(-1)
    return -0.5 * (square + log_det + weight.sum(-1) * math.log(2 * math.pi))


# ---- compiled steps --------------------------------------------------------------------------------------------------


def check_native(model: Filter, *trees: Any) -> None:
    """Raise :class:`EngineError` where compiled code cannot run: gradients, another device, no numbers."""
    if is_transformed(*trees):
        raise EngineError("engine='native' needs numbers: leave it out inside torch.func, torch.compile or tracing")
    if needs_gradients(model, *trees):
        raise EngineError("engine='native' computes no gradients: call it under torch.no_grad(), or leave engine out")
    if any(leaf.device.type != "cpu" for leaf in tree_leaves(trees)):
        raise EngineError(f"engine='native' is for the CPU, and filter {model.name!r} is on {model.device}")


def run_traced(body: Any, state: Any, inputs: Inputs, first: Any, key: Any, constants: Any = ()) -> tuple[Any, Any]:
    """:func:`fwnkf.core.scan.scan` by compiled code."""
    from ..native.time_loop import scan_native

    with torch.no_grad():
        call = functools.partial(scan_native, body, state, inputs, first=first, constants=constants, key=key)
        return served(call)


def identity(model: Filter, prepared: Any, *options: Any) -> tuple[Any, ...]:
    """What a compiled step of a filter depends on besides shapes: the filter, all numbers, and what is returned."""
    digest = hashlib.sha256()
    for leaf in tree_leaves(prepared):  # a caller may give values of its own
        digest.update(leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return (key_of(model), digest.digest(), *map(str, options))


def served(call: Callable[[], Result]) -> Result:
    """The result of compiled code; raises :class:`EngineError` where there is none for a step or no compiler."""
    try:
        return call()
    except ConfigError as error:
        raise EngineError(f"engine='native': {error}") from error
