"""Motions by regression on states: terms, degree and sparsity chosen on records left out, ``Q`` from the residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.least_squares import Rows, Solution
from ..errors import ConfigError, DataError
from ..shapes import Bool, Float
from ..systems.regression import LEAST_FLOOR, MOST_TERMS, RegressedMotion, RegressedMotionConfig
from ..systems.sensors.regressed import Regressed, RegressedConfig
from .fitting import split_held_out

DEGREES = (1, 2, 3, 4, 5, 6)
"""Degrees that ``degree="auto"`` tries."""
THRESHOLDS = (0.0, 1e-4, 1e-3, 1e-2)
"""Thresholds that ``threshold="auto"`` tries, in shares of the size of a step."""
ROWS_PER_TERM = 10
"""A degree is tried if there are this many rows for each of its terms."""
BLOCKS, SHORTEST = 30, 10
"""Parts of the records left out over which errors are compared, at least, and steps of the shortest part."""
MOST_LAGS = 100
"""Lags at which residuals are looked at."""
WINDOW = 3
"""Lags of a long-run covariance, in multiples of those that are correlated: the weights of these are above 2/3."""
CHUNK = 50_000
"""Rows whose terms are in memory at the same time."""


@dataclass(frozen=True)
class Candidate:
    """A regression that was tried, and its error on the records left out."""

    degree: int
    threshold: float
    terms: int
    """Coefficients that are not zero."""
    error: float
    """Root mean square error of one step on the records left out, relative to the size of a step."""
    chosen: bool = False


@dataclass(frozen=True, eq=False)
class Regression:
    """A motion fitted to states, and what was tried.

    >>> t = torch.arange(100.0, dtype=torch.float64) / 5
    >>> fitted = fit_regression(torch.stack((t.sin(), t.cos()), -1).expand(2, -1, -1), degree=(1, 2))
    >>> fitted.motion.config.degree
    1
    """

    motion: RegressedMotion
    """The motion, in float64."""
    candidates: tuple[Candidate, ...]
    """What was tried, in the order of degrees."""

    def lines(self) -> list[str]:
        """The candidates as a table, and the equations of the one that was chosen.

        Returns:
            Lines of text.
        """
        rows = [f"{'degree':>6} {'threshold':>9} {'terms':>6} {'left-out error of one step':>27}"]
        rows += [
            f"{one.degree:>6} {one.threshold:>9g} {one.terms:>6} {one.error:>26.3g}{'*' if one.chosen else ' '}"
            for one in self.candidates
        ]
        return [*rows, *self.motion.equations()]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report.

        Returns:
            Candidates and equations.
        """
        return {"candidates": [asdict(one) for one in self.candidates], "equations": self.motion.equations()}


class States(NamedTuple):
    """Pairs of states that follow each other, and what acted between them."""

    x: Float[Tensor, "N T n"]
    u: Float[Tensor, "N T p"] | None
    ratio: Float[Tensor, "N S"]
    """Lengths of the steps relative to the nominal one."""
    valid: Bool[Tensor, "N S"]
    """Where both states, the control and the length are known."""
    layout: Layout

    def steps(self) -> Float[Tensor, "N S d"]:
        """The change in a nominal step, zero where it is not known."""
        change = self.layout.boxminus(self.x[:, 1:], self.x[:, :-1]) / self.ratio.unsqueeze(-1)
        return torch.where(self.valid.unsqueeze(-1), change, 0.0)

    def take(self, rows: Tensor) -> States:
        """Some of the records."""
        u = None if self.u is None else self.u[rows]
        return self._replace(x=self.x[rows], u=u, ratio=self.ratio[rows], valid=self.valid[rows])

    def chunks(self) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor]]:
        """State, control, root of the length, and step, of the pairs that are known."""
        x, weight, step = (item[self.valid] for item in (self.x[:, :-1], self.ratio.sqrt(), self.steps()))
        u = None if self.u is None else self.u[:, 1:][self.valid]
        for begin in range(0, len(x), CHUNK):
            some = slice(begin, begin + CHUNK)
            yield x[some], None if u is None else u[some], weight[some], step[some]


def fit_regression(
    states: Float[Tensor, "N T n"],
    u: Float[Tensor, "N T p"] | None = None,
    dt: float | Float[Tensor, "N T"] = 1.0,
    *,
    layout: Layout | None = None,
    degree: int | Sequence[int] | Literal["auto"] = "auto",
    threshold: float | Sequence[float] | Literal["auto"] = 0.0,
    harmonics: int = 0,
    functions: Sequence[str] = (),
    control_products: bool = False,
    held_out: float | Sequence[int] = 0.2,
    noise: Literal["predictive", "residuals"] = "predictive",
) -> Regression:
    """Fit a motion to recorded states by least squares of one step.

    The change of the state in a step is regressed on products of its features, sines and cosines, and functions of the
    user (:class:`~fwnkf.systems.RegressedMotion`). Degree and threshold are those of the least error on records that
    were left out; of those that are not measurably worse, the one with the fewest terms.

    Args:
        states: recorded states, NaN where unknown.
        u: controls; ``u[:, t]`` acts from ``t - 1`` to ``t``.
        dt: length of a step in seconds, or of every step (``dt[:, t]`` leads to ``t``); their median is the nominal
            step.
        layout: parts of the state; by default Euclidean.
        degree: of the products; several, or ``"auto"`` for up to six, to choose from.
        threshold: terms that contribute less than this share of the size of a step are left out (sequentially
            thresholded least squares); several, or ``"auto"``, to choose from.
        harmonics: ``sin k x`` and ``cos k x`` up to this ``k``, of Euclidean components.
        functions: names of functions registered by ``fwnkf.register_feature``.
        control_products: whether controls are factors of the products too.
        held_out: share of the records, or their indices, that choose degree, threshold and the form of ``Q``.
        noise: ``"predictive"``: ``Q`` grows where the coefficients are uncertain and counts the correlation of the
            residuals over time; ``"residuals"``: their covariance, the same everywhere.

    Returns:
        The motion, in float64, and what was tried.

    Raises:
        DataError: too few steps have known states.

    >>> generator = torch.Generator().manual_seed(0)
    >>> states = torch.randn(4, 50, 1, generator=generator, dtype=torch.float64)
    >>> for step in range(1, 50):
    ...     states[:, step] = states[:, step - 1] + 0.1 * (states[:, step - 1] - states[:, step - 1] ** 3)
    >>> fit_regression(states, dt=0.1, threshold=0.01).motion.equations()
    ["x0' = 1 x0 - 1 x0 x0 x0"]
    """
    size = states.shape[-1]
    layout = Layout.euclidean(size) if layout is None else layout
    data, nominal = _pairs(states, u, dt, layout)
    train, left_out = _split(data, held_out)
    base = RegressedMotionConfig(
        state_dim=size,
        control_dim=0 if u is None else u.shape[-1],
        layout=layout.describe(),
        dt=nominal,
        harmonics=harmonics,
        functions=tuple(functions),
        control_products=control_products,
    )
    tried = [
        _Tried(motion, share, solution, *_left_out_errors(motion, solution, left_out))
        for motion, rows in _regressions(base, train, degree)
        for share, solution in _solutions(rows, threshold)
    ]
    best = min(tried, key=lambda one: float(one.errors.mean()))
    chosen = min((one for one in tried if _as_good(one, best)), key=_simplicity)
    step = train.steps()[train.valid].square().mean().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    report = tuple(
        Candidate(one.motion.config.degree, one.threshold, one.terms, float(one.rms / step), one is chosen)
        for one in tried
    )
    return Regression(_finished(chosen, train, left_out, noise), report)


def fit_observation(
    states: Float[Tensor, "N T n"],
    y: Float[Tensor, "N T m"],
    mask: Bool[Tensor, "N T m"] | None = None,
    *,
    layout: Layout | None = None,
    correlated: bool = True,
) -> Regressed:
    """Fit a sensor that is linear in the features of the state, and its noise, where both are recorded.

    Args:
        states: recorded states, NaN where unknown.
        y: measurements, NaN where missing.
        mask: True where a channel was measured.
        layout: parts of the state; by default Euclidean.
        correlated: whether the noise of the channels may be correlated.

    Returns:
        The sensor, in float64.

    Raises:
        DataError: no step has both a known state and a complete measurement.

    >>> x = torch.randn(2, 50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> fit_observation(x, x[..., :1] - x[..., 1:] + 3).H.round(decimals=6)
    tensor([[ 3.,  1., -1.]], dtype=torch.float64)
    """
    layout = Layout.euclidean(states.shape[-1]) if layout is None else layout
    known = states.isfinite().all(-1) & y.isfinite().all(-1)
    if mask is not None:
        known &= mask.all(-1)
    if not bool(known.any()):
        raise DataError("no step has both a known state and a complete measurement; check for missing values")
    features = layout.features(states[known].double())
    solution = Rows.of(torch.cat((torch.ones_like(features[:, :1]), features), -1), y[known].double()).solve()
    options = RegressedConfig(states.shape[-1], y.shape[-1], layout.describe(), correlated)
    sensor = Regressed(options).double()
    sensor.H.copy_(solution.W.mT)
    R = solution.residual_cov
    sensor.R.copy_(R if correlated else R.diagonal().diag())
    return sensor


# ---- candidates -----------------------------------------------------------------------------------------------------


class _Tried(NamedTuple):
    """A regression with its errors on the records left out."""

    motion: RegressedMotion
    threshold: float
    solution: Solution
    errors: Float[Tensor, " N"]
    """Of each record or a part of it, the sum over coordinates of the mean square error relative to that of a step."""
    rms: Tensor

    @property
    def terms(self) -> int:
        return int(self.solution.support.sum())


def _pairs(states: Tensor, u: Tensor | None, dt: float | Tensor, layout: Layout) -> tuple[States, float]:
    """The records in float64, and the nominal step."""
    if states.ndim != 3 or states.shape[-1] != layout.size:
        raise DataError(f"states have shape {list(states.shape)}; wanted [records, steps, {layout.size}]")
    x = states.double()
    if isinstance(dt, Tensor):
        lengths = dt.double().expand(x.shape[:2])[:, 1:]
        usable = lengths.isfinite() & (lengths > 0)
        if not bool(usable.any()):
            raise DataError("dt: no step has a positive length")
        nominal = float(lengths[usable].median())
        ratio = torch.where(usable, lengths / nominal, 1.0)
    else:
        nominal, ratio = dt, x.new_ones(len(x), x.shape[1] - 1)
        usable = ratio > 0
    known = x.isfinite().all(-1)
    valid = known[:, :-1] & known[:, 1:] & usable
    x = torch.where(known.unsqueeze(-1), x, layout.origin(x))
    control = None
    if u is not None:
        control = u.double()
        valid = valid & control[:, 1:].isfinite().all(-1)
        control = torch.where(control.isfinite(), control, 0.0)
    if int(valid.sum()) < 2 * layout.feature_size + 2:
        raise DataError(
            f"{int(valid.sum())} pairs of consecutive states are known, too few to fit a motion of "
            f"{layout.feature_size} features; check for missing values"
        )
    return States(x, control, ratio, valid, layout), nominal


def _split(data: States, held_out: float | Sequence[int]) -> tuple[States, States]:
    """The records to fit and those left out; of a single record, its last part. The same where nothing is left out."""
    kept, tested = split_held_out(len(data.x), held_out)
    if len(tested):
        return data.take(kept), data.take(tested)
    if not isinstance(held_out, int | float) or not held_out:
        return data, data
    early = torch.arange(data.valid.shape[1]) < (1 - held_out) * data.valid.shape[1]
    parts = [data._replace(valid=data.valid & some) for some in (early, ~early)]
    return (parts[0], parts[1]) if all(bool(part.valid.any()) for part in parts) else (data, data)


def _regressions(
    base: RegressedMotionConfig, train: States, degree: int | Sequence[int] | Literal["auto"]
) -> Iterator[tuple[RegressedMotion, Rows]]:
    """A motion for every degree, scaled to the records, with the rows of its regression."""
    count = int(train.valid.sum())
    factors = train.layout.feature_size + (base.control_dim if base.control_products else 0)
    if degree == "auto":
        most = min(MOST_TERMS, count // ROWS_PER_TERM)
        degrees: Sequence[int] = [k for k in DEGREES if k == 1 or math.comb(factors + k, k) <= most]
    else:
        degrees = [degree] if isinstance(degree, int) else list(degree)
    if not degrees:
        raise ConfigError("degree: give at least one")
    for one in degrees:
        motion = RegressedMotion(replace(base, degree=one)).double()
        motion.terms.scale.copy_(_feature_scale(train))
        yield motion, regression_rows(motion, train)


def _feature_scale(data: States) -> Float[Tensor, " f"]:
    """Root mean squares of features and controls."""
    parts = [data.layout.features(data.x[:, :-1][data.valid])]
    if data.u is not None:
        parts.append(data.u[:, 1:][data.valid])
    size = torch.cat([part.square().mean(0).sqrt() for part in parts])
    return torch.where(size > 0, size, 1.0)


def regression_rows(motion: RegressedMotion, data: States) -> Rows:
    """The rows of the regression of steps on terms; process noise grows with the length of a step, so do weights."""
    total: Rows | None = None
    for x, u, weight, step in data.chunks():
        rows = Rows.of(motion.terms(x, u) * weight.unsqueeze(-1), step * weight.unsqueeze(-1))
        total = rows if total is None else total + rows
    assert total is not None  # because some pairs are valid
    return total


def _solutions(rows: Rows, threshold: float | Sequence[float] | Literal["auto"]) -> Iterator[tuple[float, Solution]]:
    chosen = THRESHOLDS if threshold == "auto" else threshold
    for share in [chosen] if isinstance(chosen, int | float) else chosen:
        yield float(share), rows.solve(float(share))


def _residuals(motion: RegressedMotion, W: Tensor, data: States) -> Float[Tensor, "N S d"]:
    """What is left of each step, divided by the root of its length; zero where a state is unknown."""
    pieces = [(step - motion.terms(x, u) @ W) * weight.unsqueeze(-1) for x, u, weight, step in data.chunks()]
    left = data.x.new_zeros(*data.valid.shape, data.layout.tangent_size)
    left[data.valid] = torch.cat(pieces)
    return left


def _left_out_errors(motion: RegressedMotion, solution: Solution, data: States) -> tuple[Tensor, Tensor]:
    """The errors of records, or of their parts where there are few, in units of the steps; the root mean square."""
    left = _residuals(motion, solution.W, data).square()
    size = data.steps()[data.valid].square().mean(0)
    size = torch.where(size > 0, size, 1.0)
    pieces = max(1, min(math.ceil(BLOCKS / len(left)), left.shape[1] // SHORTEST))
    blocks = [block for part in (left / size).tensor_split(pieces, 1) for block in part.sum((1, 2))]
    counts = torch.cat([part.sum(1) for part in data.valid.tensor_split(pieces, 1)])
    return (torch.stack(blocks) / counts)[counts > 0], left[data.valid].mean().sqrt()


def _simplicity(one: _Tried) -> tuple[int, int, float]:
    return one.terms, one.motion.config.degree, float(one.errors.mean())


def _as_good(one: _Tried, best: _Tried) -> bool:
    """Whether the errors are not larger by more than one standard error of the paired difference over blocks."""
    apart = one.errors - best.errors
    if len(apart) < 2:
        return one is best
    return float(apart.mean()) <= float(apart.std() / math.sqrt(len(apart)))


# ---- process noise --------------------------------------------------------------------------------------------------


@torch.no_grad()
def _finished(one: _Tried, train: States, left_out: States, noise: str) -> RegressedMotion:
    """The motion with its coefficients, its process noise, and the states as a prior."""
    motion, W = one.motion, one.solution.W
    residuals = _residuals(motion, W, train)
    count = int(train.valid.sum())
    Q = residuals[train.valid].mT @ residuals[train.valid] / count
    floor, root = 1.0, None
    if noise == "predictive":
        variance = Q.diagonal().clamp_min(torch.finfo(Q.dtype).tiny)
        leverage = _leverages(motion, one.solution.root, train).mean()
        root = one.solution.root / leverage.sqrt()
        squares = (_residuals(motion, W, left_out)[left_out.valid].square() / variance).mean(-1)
        if left_out is train:  # residuals of the rows that were fitted are smaller by the share of the coefficients
            squares = squares * count / max(count - int(one.solution.support.any(-1).sum()), 1)
        floor, level = _share(squares, _leverages(motion, root, left_out), float(leverage))
        Q = level * long_run_covariance(residuals, count)
    elif noise != "residuals":
        raise ConfigError(f"noise = {noise!r}: expected 'predictive' or 'residuals'")
    states = train.x[:, :-1][train.valid]
    rounding = (torch.finfo(Q.dtype).eps * train.layout.magnitude(states).square().mean(0).sqrt()).square()
    final = RegressedMotion(replace(motion.config, floor=floor)).double()
    final.terms.scale.copy_(motion.terms.scale)
    final.W.copy_(W.mT)
    final.Q.assign(0.5 * (Q + Q.mT) + rounding.diag())
    if floor < 1 and root is not None:
        final.L.copy_(root * (1 - floor) ** 0.5)
    mean, cov = state_moments(states, train.layout)
    final.initial_mean.copy_(mean)
    final.initial_cov.copy_(cov)
    return final


def _leverages(motion: RegressedMotion, root: Tensor, data: States) -> Float[Tensor, " K"]:
    """``φᵀ L Lᵀ φ`` of all pairs: how little the coefficients are determined at each state."""
    return torch.cat([(motion.terms(x, u) @ root).square().sum(-1) for x, u, _, _ in data.chunks()])


def _share(squares: Float[Tensor, " K"], leverage: Float[Tensor, " K"], least: float) -> tuple[float, float]:
    """The share of the variance that is the same everywhere, the rest in proportion to the leverage, and its level.

    Where the model is right, the rest is ``1 / (1 + 1/least)``, with ``least`` the mean variance of a prediction by the
    uncertainty of coefficients, in units of the residuals; it is never less. Where terms are missing, residuals are
    larger where states are rare, so that it is larger. The likelihood of the squared residuals decides.
    """
    lowest = min(least / (1 + least), 1 - LEAST_FLOOR)
    shares = [lowest, *(share for share in torch.linspace(0.02, 1 - LEAST_FLOOR, 50).tolist() if share > lowest)]
    found = []
    for share in shares:
        shape = (1 - share) + share * leverage
        level = (squares / shape).mean()
        found.append((float(level.clamp_min(torch.finfo(level.dtype).tiny).log() + shape.log().mean()), share, level))
    _, share, level = min(found, key=lambda item: item[0])
    return max(1 - share, LEAST_FLOOR), float(level)


def long_run_covariance(residuals: Float[Tensor, "N S d"], count: int) -> Float[Tensor, "d d"]:
    """The covariance of white noise that does over many steps what these residuals do.

    ``Σ_k w_k Γ_k`` over the autocovariances, beyond the lag where the correlation ends, with the weights of Bartlett
    (Newey and West), by which it is positive semidefinite. What a model lacks depends on the state, which changes
    slowly: such residuals add up, and ``Γ_0`` alone would make a filter overconfident.

    Args:
        residuals: residuals of consecutive steps, zero where unknown.
        count: how many are known.

    Returns:
        The covariance of one step.

    >>> slow = torch.ones(1, 100, 1, dtype=torch.float64)
    >>> bool(long_run_covariance(slow, 100) > 20)
    True
    """

    def lagged(k: int) -> Tensor:
        return torch.einsum("nti,ntj->ij", residuals[:, k:], residuals[:, : residuals.shape[1] - k]) / count

    first, longest = lagged(0), max(residuals.shape[1] // 2, 1)
    scale = first.diagonal().clamp_min(torch.finfo(first.dtype).tiny)
    limit = 2 / math.sqrt(count)
    correlated = [float((lagged(k).diagonal() / scale).mean()) > limit for k in range(1, min(longest, MOST_LAGS))]
    last = 0  # the last lag before two in a row that cannot be told from none
    while any(correlated[last : last + 2]):
        last += 1
    reach = min(WINDOW * last, longest - 1)
    total = first
    for k in range(1, reach + 1):
        one = lagged(k)
        total = total + (1 - k / (reach + 1)) * (one + one.mT)
    return total


def state_moments(x: Float[Tensor, "K n"], layout: Layout) -> tuple[Tensor, Tensor]:
    """Mean and covariance of states on their manifold."""
    mean = x[0]
    for _ in range(1 if layout.flat else 10):
        mean = layout.boxplus(mean, layout.boxminus(x, mean.expand_as(x)).mean(0))
    apart = layout.boxminus(x, mean.expand_as(x))
    return mean, apart.mT @ apart / len(apart)
