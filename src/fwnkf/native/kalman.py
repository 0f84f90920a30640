"""The Kalman filter of a linear model as compiled code: filter, smoother, and gradient of the likelihood.

``kalman.c`` is compiled once for every number of states and channels. A model that falls apart into blocks without
correlation, such as one of several channels each with noise of its own, is run as several small ones.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import FullNoise, dense
from ..core.integrate import discretize
from ..core.linear_run import Continuous, LinearRun
from ..errors import ConfigError, NumericalFailureError
from ..shapes import Bool, Float
from ..types import Status
from .compilers import shared_library

SOURCE = Path(__file__).with_suffix(".c")
OPTIMISATION = ("-O2", "-ftree-vectorize", "-fpeel-loops", "-ffp-contract=fast")
"""Flags of the compiler: products are written in vectors, so that more takes seconds to compile and gains nothing."""
SERIES_NORM = 0.5
"""Norm of the drift over a step up to which a series is exact to rounding, as in ``kalman.c``."""
LARGEST = 64
"""States up to which there is compiled code: larger matrices are better multiplied by PyTorch."""

COUNTS = (
    "records",
    "steps",
    "kinds",
    "channels",
    "width",
    "controls",
    "terms",
    "entries",
    "reported",
    "predicts_first",
    "shared",
)
INPUTS = (
    "F",
    "Q",
    "B",
    "H",
    "R",
    "factor",
    "y",
    "weight",
    "u",
    "dt",
    "index",
    "forced",
    "series",
    "longest",
    "entry",
    "channel",
    "state",
)
OUTPUTS = ("mean", "cov", "prior_mean", "prior_cov", "innovation", "innovation_cov", "log_density", "status")


def _structure(real: Any) -> type[ctypes.Structure]:
    fields = [(name, ctypes.c_int64) for name in COUNTS] + [(name, ctypes.c_void_p) for name in INPUTS]
    fields += [("norm", real)] + [(name, ctypes.c_void_p) for name in ("start_mean", "start_cov", *OUTPUTS)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


STRUCTURES = {torch.float64: _structure(ctypes.c_double), torch.float32: _structure(ctypes.c_float)}


@functools.cache
def _library(states: int, channels: int, dtype: torch.dtype) -> Any:
    defines = f"#define N {states}\n#define M {channels}\n" + ("#define SINGLE\n" if dtype == torch.float32 else "")
    library = shared_library(defines + SOURCE.read_text(encoding="utf-8"), OPTIMISATION)
    for name in ("kalman_filter", "kalman_smoother", "kalman_gradient"):
        getattr(library, name).restype = ctypes.c_int64
    return library


class Block(NamedTuple):
    """A part of a model that is correlated with nothing else: its states and its channels."""

    states: list[int]
    channels: list[int]


def blocks_of(patterns: Sequence[Bool[Tensor, "D D"]], H: Bool[Tensor, "m D"], R: Bool[Tensor, "m m"]) -> list[Block]:
    """The independent parts of a model, from where its matrices over the states, ``H`` and ``R`` are not zero.

    >>> eye = torch.eye(2, dtype=torch.bool)
    >>> blocks_of([eye], eye, eye)
    [Block(states=[0], channels=[0]), Block(states=[1], channels=[1])]
    """
    m, D = H.shape
    link = torch.zeros(D + m, D + m, dtype=torch.bool)
    for pattern in patterns:
        link[:D, :D] |= pattern
    link[D:, :D], link[D:, D:] = H, R
    neighbours = [row.nonzero().flatten().tolist() for row in link | link.mT]
    found, seen = [], set()
    for first in range(D + m):
        if first in seen:
            continue
        reached, waiting = {first}, [first]
        while waiting:
            new = set(neighbours[waiting.pop()]) - reached
            reached |= new
            waiting += new
        seen |= reached
        states, channels = [i for i in sorted(reached) if i < D], [i - D for i in sorted(reached) if i >= D]
        found.append(Block(states, channels))
    return found


class Series(NamedTuple):
    """Matrices of steps of any length as series in the length: ``F - I``, ``B``, ``Q`` of ``h`` units of time."""

    F: Float[Tensor, "k D D"]
    Q: Float[Tensor, "k D D"]
    B: Float[Tensor, "k D p"]
    norm: float
    """Of the drift over one unit."""


def series(A: Float[Tensor, "D D"], B: Float[Tensor, "D p"], density: Float[Tensor, "D D"]) -> Series:
    """The series of :func:`fwnkf.core.integrate.discretize` for steps of any length, in the unit of the matrices.

    ``F - I = Σ (A h)ᵏ / k!``, ``B = Σ Aᵏ⁻¹ B hᵏ / k!`` and ``Q = Σ Mₖ hᵏ`` with ``Mₖ₊₁ = (A Mₖ + Mₖ Aᵀ) / (k + 1)``.
    """
    terms = 2 * max(8, A.shape[-1])  # a chain of n integrators drives its last state by the term 2 n - 1
    power, gamma, covariance = torch.eye(len(A)).to(A), B, density
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for k in range(1, terms + 1):
        power = power @ A / k
        rows.append((power, gamma, covariance))
        gamma = A @ gamma / (k + 1)
        moved = A @ covariance
        covariance = (moved + moved.mT) / (k + 1)
    used = 1 + max((k for k, items in enumerate(rows) if any(bool(item.any()) for item in items)), default=0)
    stacked = [torch.stack(items).contiguous() for items in zip(*rows[:used], strict=True)]
    size = A.detach().abs()
    norm = min(float(size.sum(-1).max()), float(size.sum(-2).max())) if used == terms else 0.0
    return Series(stacked[0], stacked[2], stacked[1], norm)


def longest(terms: Float[Tensor, "k e"]) -> Float[Tensor, " k"]:
    """Lengths up to which the first one, two, … terms of series are exact to rounding.

    >>> longest(torch.tensor([[1.0], [0.5]])).tolist()  # h + h² / 2
    [2.9802322387695312e-08, inf]
    """
    size, order = terms.detach().abs(), torch.arange(len(terms), device=terms.device).unsqueeze(-1)
    first = torch.where(size > 0, order, len(terms)).amin(0)  # the term that a series begins with
    begins = size.gather(0, first.clamp(max=len(terms) - 1).unsqueeze(0))
    # |later| hʲ ≤ |first| hⁱ ε / 8 holds for all shorter steps too
    reach = (torch.finfo(size.dtype).eps / 8 * begins / size) ** (1.0 / (order - first).clamp(min=1))
    reach = torch.where(size > 0, torch.where(order > first, reach, 0.0), torch.inf)
    after = reach.amin(1).flip(0).cummin(0).values.flip(0)[1:] if terms.numel() else size.new_zeros(len(terms) - 1)
    return torch.cat((after, after.new_full((1,), torch.inf)))


def tabulated(
    continuous: Continuous, lengths: Float[Tensor, " k"]
) -> tuple[Float[Tensor, "k D D"], Float[Tensor, "k D p"], Float[Tensor, "k D D"]]:
    """``F``, ``B`` and ``Q`` of steps of many lengths: as series, or by doubling where steps are too long for them."""
    A, B, density, factor = continuous
    known = series(A, B, density)
    if known.norm * float(lengths.max()) > SERIES_NORM:
        F, Gamma, Q = discretize(A, B, density, lengths)
    else:
        powers = lengths.unsqueeze(-1) ** torch.arange(1, len(known.F) + 1, device=A.device)
        F, Gamma, Q = (torch.tensordot(powers, item, 1) for item in (known.F, known.B, known.Q))
        F = F + torch.eye(len(A), dtype=A.dtype, device=A.device)
    return F, Gamma, Q if factor is None else Q * factor


class Part:
    """A block of a model with its own copies of everything, as compiled code takes it."""

    def __init__(self, run: LinearRun, block: Block, R: Tensor, lengths: Series | None, shared: bool) -> None:
        dtype = run.y.dtype
        self.library = _library(len(block.states), len(block.channels), dtype)
        self.block, self.size = block, len(block.states)
        at, seen = torch.tensor(block.states), torch.tensor(block.channels)
        continuous = run.continuous if lengths is not None else None
        F, Q, B = (run.F, run.Q, run.B) if lengths is None else (lengths.F, lengths.Q, lengths.B)
        factor = None if continuous is None or continuous.factor is None else continuous.factor[at][:, at]
        self.start_mean, self.start_cov = run.mean[:, at].contiguous(), run.cov[:, at][:, :, at].contiguous()
        controls = 0 if run.u is None or B is None else run.u.shape[-1]
        self.held: dict[str, Tensor | None] = {
            "F": F[:, at][:, :, at],
            "Q": Q[:, at][:, :, at],
            "B": None if B is None or not controls else B[:, at],
            "H": run.H[seen][:, at],
            "R": R[seen][:, seen],
            "factor": factor,
            "y": run.y,
            "weight": run.weight,
            "u": run.u if controls else None,
            "dt": run.dt if lengths is not None else None,
            "index": run.kind if lengths is None else None,
            "forced": None,
            "series": None,
            "longest": None,
            "entry": None,
            "channel": seen.to(torch.int32),
            "state": at.to(torch.int32),
        }
        entries = 0
        if lengths is not None:
            terms = torch.cat([item.flatten(1) for item in (self.held["F"], self.held["Q"])], 1)  # type: ignore[union-attr]
            entry = (terms != 0).any(0).nonzero().flatten()
            every = torch.cat((terms[:, entry], lengths.B[:, at].flatten(1)), 1)
            self.held |= {"series": terms[:, entry], "longest": longest(every), "entry": entry.to(torch.int32)}
            entries = len(entry)
        self.held = {name: None if item is None else item.detach().contiguous() for name, item in self.held.items()}
        records, steps, channels = run.y.shape
        self.arguments = STRUCTURES[dtype](
            records=records, steps=steps, kinds=len(F), channels=channels, controls=controls, terms=len(F),
            entries=entries, predicts_first=int(run.predicts_first), shared=int(shared),
            norm=0.0 if lengths is None else lengths.norm,
        )  # fmt: skip
        for name, item in (*self.held.items(), ("start_mean", self.start_mean), ("start_cov", self.start_cov)):
            setattr(self.arguments, name, None if item is None else item.data_ptr())
        self.begin: tuple[Tensor, Tensor] | None = None
        self.status = torch.zeros(records, steps, dtype=torch.int64)
        self.log_density = torch.zeros(records, steps, dtype=dtype)

    def filter(self, outputs: dict[str, Tensor], width: int, reported: int, forced: Tensor | None = None) -> None:
        """Filter the recordings; ``forced`` are failures of other blocks in the same steps, and what this one made of
        its start is made anew."""
        if self.begin is None:
            self.begin = self.start_mean.clone(), self.start_cov.clone()
        else:
            self.start_mean.copy_(self.begin[0])
            self.start_cov.copy_(self.begin[1])
        self.status.zero_()
        own = {**outputs, "status": self.status}
        if "log_density" in outputs:
            self.log_density.zero_()
            own["log_density"] = self.log_density
        self.arguments.forced = None if forced is None else forced.data_ptr()
        self.call("kalman_filter", own, width, reported)

    def call(self, function: str, outputs: dict[str, Tensor], width: int, reported: int, *others: Any) -> int:
        """Call a function of the library; it writes into the outputs."""
        for name in OUTPUTS:
            setattr(self.arguments, name, outputs[name].data_ptr() if name in outputs else None)
        self.arguments.width, self.arguments.reported = width, reported
        pointers = [ctypes.c_void_p(item.data_ptr()) if isinstance(item, Tensor) else item for item in others]
        return int(getattr(self.library, function)(ctypes.byref(self.arguments), *pointers))


class Filtered(NamedTuple):
    """The outputs that were wanted, by the names of :class:`LinearTrack` and ``status``, and the belief at the end."""

    outputs: dict[str, Tensor]
    mean: Float[Tensor, "B D"]
    cov: Float[Tensor, "B D D"]


def kalman_filter(
    run: LinearRun, wanted: Sequence[str], width: int, reported: int, *, whole: bool = False, share: bool = True
) -> Filtered:
    """Filter recordings by compiled code.

    Args:
        run: the model and the recordings, on the CPU and without gradients.
        wanted: names of the outputs.
        width: number of coordinates, from the first, of which means and covariances are returned.
        reported: number of coordinates whose digits are examined beside their size.
        whole: run the model as one, also where it has independent parts.
        share: compute covariances once for records that have the same.

    Returns:
        What was wanted, and the belief after the last step.

    Raises:
        ConfigError: there is no compiler, or the model is too large.
    """
    records, steps, channels = run.y.shape
    R = dense(run.R)
    lengths = _series_of(run)
    alike = [run.cov, run.weight] if run.kind is None else [run.cov, run.weight, run.kind]
    shared = share and records > 1 and run.dt is None and all(bool((item == item[0]).all()) for item in alike)
    blocks = [_everything(run)] if whole else _blocks(run, R)
    if max(len(block.states) for block in blocks) > LARGEST:
        raise ConfigError(f"compiled code is for at most {LARGEST} states that depend on each other")
    lead = (1 if shared else records, steps)
    shapes = {
        "mean": (records, steps, width),
        "cov": (*lead, width, width),
        "prior_mean": (records, steps, width),
        "prior_cov": (*lead, width, width),
        "innovation": (records, steps, channels),
        "innovation_cov": (*lead, channels, channels),
        "log_density": (records, steps),
    }
    outputs: dict[str, Tensor] = {}
    for name in wanted:
        make = torch.zeros if name.endswith("cov") and len(blocks) > 1 else torch.empty
        outputs[name] = make(shapes[name], dtype=run.y.dtype)
    parts = [Part(run, block, R, lengths, shared) for block in blocks]
    for part in parts:
        part.filter(outputs, width, reported)
    if shared and any(bool((part.status & int(Status.REJECTED)).any()) for part in parts):
        # a step that is rejected leaves its record a covariance of its own
        return kalman_filter(run, wanted, width, reported, whole=whole, share=False)
    failures = int(Status.REJECTED | Status.FACTORIZATION_FAILED)
    while True:  # a step that fails for one block fails for all
        status = functools.reduce(torch.bitwise_or, [part.status for part in parts])
        apart = [part for part in parts if bool(((part.status ^ status) & failures).any())]
        if not apart:
            break
        for part in apart:
            part.filter(outputs, width, reported, forced=status)
    outputs["status"] = status
    if "log_density" in outputs:
        outputs["log_density"] = functools.reduce(torch.add, [part.log_density for part in parts])
    mean, cov = run.mean.clone(), torch.zeros_like(run.cov)
    for part in parts:
        at = torch.tensor(part.block.states)
        mean[:, at] = part.start_mean
        cov[:, at[:, None], at] = part.start_cov
    expanded = {name: item.expand(records, *item.shape[1:]) for name, item in outputs.items()}
    return Filtered(expanded, mean, cov)


def _series_of(run: LinearRun) -> Series | None:
    """The series of the matrices, where steps have lengths of their own."""
    return None if run.continuous is None or run.dt is None else series(*run.continuous[:3])


def _everything(run: LinearRun) -> Block:
    """The model as one block."""
    return Block(list(range(run.F.shape[-1])), list(range(run.H.shape[-2])))


def _blocks(run: LinearRun, R: Tensor) -> list[Block]:
    matrices = [run.F, run.Q, run.cov]
    if run.continuous is not None:
        matrices += [run.continuous.A, run.continuous.density]
    patterns = [(item != 0).reshape(-1, *item.shape[-2:]).any(0) for item in matrices]
    found = blocks_of(patterns, run.H != 0, R != 0)
    # states that nothing measures, and channels that measure no state, go with another block
    alone = [block for block in found if not block.states or not block.channels]
    whole = [block for block in found if block.states and block.channels]
    if not whole:
        return [_everything(run)]
    first = whole[0]
    for block in alone:
        first = Block(sorted(first.states + block.states), sorted(first.channels + block.channels))
    return [first, *whole[1:]]


class Smoothed(NamedTuple):
    """Smoothed moments over all coordinates, and what the part of the recording before this one needs of it."""

    mean: Float[Tensor, "B T D"]
    cov: Float[Tensor, "B T D D"]
    cross_cov: Float[Tensor, "B T D D"]
    """The covariance of the step before each with it; the first is that of the belief before the run."""
    following: list[Tensor]
    """Of every block."""


def kalman_smoother(run: LinearRun, filtered: dict[str, Tensor], following: list[Tensor] | None = None) -> Smoothed:
    """Smooth recordings, or a part of them, by compiled code.

    Args:
        run: the model and the recordings that were filtered.
        filtered: the outputs of :func:`kalman_filter` over all coordinates.
        following: what the part after this one returned; None for the last.

    Returns:
        The smoothed moments.
    """
    (records, steps, _), size = run.y.shape, run.F.shape[-1]
    R = dense(run.R)
    lengths = _series_of(run)
    names = ("mean", "cov", "prior_mean", "prior_cov")
    known = _with_last_belief(run, {name: filtered[name] for name in names}, filtered["status"])
    shape = (records, steps, size, size)
    mean, cov, cross = torch.empty_like(known["mean"]), run.y.new_zeros(shape), run.y.new_zeros(shape)
    left = []
    for number, block in enumerate(_blocks(run, R)):
        part = Part(run, block, R, lengths, shared=False)
        at = torch.tensor(block.states)
        own = {name: (item[..., at] if name.endswith("mean") else item[..., at[:, None], at]).contiguous()
               for name, item in known.items()}  # fmt: skip
        own["status"] = filtered["status"].contiguous()
        count = part.size
        after = run.y.new_zeros(records, 2 * count + 4 * count * count) if following is None else following[number]
        inside = run.y.new_zeros(records, steps, count, count)
        part.call("kalman_smoother", own, count, count, int(following is not None), after, inside)
        left.append(after)
        mean[..., at] = own["mean"]
        cov[..., at[:, None], at], cross[..., at[:, None], at] = own["cov"], inside
    return Smoothed(mean, cov, cross, left)


def _with_last_belief(run: LinearRun, known: dict[str, Tensor], status: Tensor) -> dict[str, Tensor]:
    """The moments with those of the step before where a step was rejected."""
    rejected = (status & int(Status.REJECTED)).nonzero().tolist()
    if not rejected:
        return known
    known = {name: item.clone() for name, item in known.items()}
    for record, step in rejected:
        before = run.mean[record], run.cov[record]
        if step:
            before = known["mean"][record, step - 1], known["cov"][record, step - 1]
        for name in ("mean", "prior_mean"):
            known[name][record, step] = before[0]
        for name in ("cov", "prior_cov"):
            known[name][record, step] = before[1]
    return known


class _LogLikelihood(torch.autograd.Function):
    """The log-likelihood of each record as a function of all matrices and the first belief."""

    @staticmethod
    def forward(ctx: Any, run: LinearRun, *tensors: Tensor) -> Tensor:
        F, Q, B, H, R, mean, cov = (item.detach() for item in tensors)
        run = run._replace(F=F, Q=Q, B=B, H=H, R=FullNoise(R), mean=mean, cov=cov)
        names, size = ("mean", "cov", "prior_mean", "prior_cov", "log_density"), F.shape[-1]
        found = kalman_filter(run, names, size, 0, whole=True).outputs
        if bool((found["status"] & ~int(Status.PRECISION_LOST)).any()):
            raise NumericalFailureError(
                "the likelihood has no gradient here: an innovation covariance is not positive definite, or a control "
                "or a result is not finite"
            )
        ctx.run, ctx.found = run, found
        return found["log_density"].sum(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor | None, ...]:
        run: LinearRun = ctx.run
        assert run.B is not None
        part = Part(run, _everything(run), dense(run.R), None, shared=False)
        matrices = [torch.zeros_like(item, memory_format=torch.contiguous_format)
                    for item in (run.F, run.Q, run.B, run.H, dense(run.R), run.mean, run.cov)]  # fmt: skip
        outputs = {name: ctx.found[name].contiguous() for name in ("mean", "cov", "prior_mean", "prior_cov")}
        part.call("kalman_gradient", outputs, part.size, 0, scales[0].contiguous(), *matrices)
        return None, *matrices


def log_likelihood(run: LinearRun) -> Float[Tensor, " B"]:
    """The log-likelihood of each record, differentiable in the matrices and the first belief.

    One pass forwards and one backwards, both compiled; second derivatives are not computed.

    Args:
        run: the model with a table of matrices (no ``dt``), and the recordings, on the CPU.

    Returns:
        One number for each record.

    Raises:
        ConfigError: there is no compiler, or the model is too large.
        NumericalFailureError: a step fails, so that the likelihood has no gradient.
    """
    B = run.F.new_zeros(*run.F.shape[:-1], 0) if run.B is None else run.B
    tensors = (run.F, run.Q, B, run.H, dense(run.R), run.mean, run.cov)
    bare = run._replace(F=run.F.detach(), Q=run.Q.detach(), B=None, H=run.H.detach(), R=None,  # type: ignore[arg-type]
                        mean=run.mean.detach(), cov=run.cov.detach())  # fmt: skip
    found: Tensor = _LogLikelihood.apply(bare, *tensors)
    return found
