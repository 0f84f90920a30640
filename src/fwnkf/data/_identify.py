"""Identification of a linear model from records with ground truth, as the initial model and baseline of a filter.

Ridge regression of ``x⁺ - x ≈ (F - I) x + B u`` and ``y ≈ H x``; ``Q`` and ``R`` are the second moments of the
residuals. The discrete model is converted to a continuous one with the matrix logarithm, so that any ``dt`` can be
used: ``dt = 0`` before the first sample leaves the state unchanged, one step of the grid gives ``F``.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.integrate import discretize
from ..core.linear import LinearSystem
from ..errors import ConfigError, DataError
from ..extras import need
from ..shapes import Bool, Float
from .protocols import Records

RIDGE = 1e-6
"""Weight of the regularization relative to the data, all columns scaled to unit mean square."""
FLOOR = 1e-6
"""Lower bound of the noise, relative to the mean square step (``Q``) or, squared, the mean square value (``R``)."""
LEAST_EIGENVALUE = 1e-3
"""Replaces eigenvalues of ``F`` on the negative real axis, which have no real logarithm."""
DENSITY_FLOOR = 1e-4
"""Lower bound of the eigenvalues of the scaled noise density, which keeps it positive definite in float32."""
EXACT_STATES = 16
"""Largest number of states for which the noise density is solved exactly."""


class Fit(NamedTuple):
    """A model, and remarks on its quality for the user."""

    system: LinearSystem
    notes: tuple[str, ...]


def fit_linear(train: Records) -> LinearSystem:
    """The continuous linear model with the least squared error on the training records, in their dtype.

    Args:
        train: records with true states.

    Returns:
        The system, with its noise.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=4, val=1, test=1).split.train
    >>> fit_linear(records).F.shape
    torch.Size([3, 3])
    """
    return identify(train).system


def identify(train: Records, channels: Sequence[str] = (), dtype: torch.dtype | None = None) -> Fit:
    """:func:`fit_linear`, with channels by name in the system and in the remarks."""
    if not train.layout.flat:
        raise ConfigError("a linear model needs a Euclidean state; this one contains angles or quaternions")
    n, p = train.layout.size, 0 if train.u is None else train.u.shape[-1]
    y, x, dt = train.y.double(), train.truth.double(), train.dt.double()
    step = float(dt[:, 1:].median()) if dt.shape[1] > 1 else 0.0
    u = x.new_zeros(*x.shape[:2], 0) if train.u is None else train.u.double()
    known = x.isfinite().all(-1)
    pairs = known[:, :-1] & known[:, 1:] & u[:, 1:].isfinite().all(-1)
    before, after, control = x[:, :-1][pairs], x[:, 1:][pairs], u[:, 1:][pairs]
    if step <= 0 or len(before) < 2 * (n + p):
        raise DataError(
            f"{train.name}: {len(before)} pairs of consecutive steps with ground truth; a linear model of {n} states "
            f"and {p} controls needs at least {2 * (n + p)}"
        )
    notes: list[str] = []
    slopes = _ridge(torch.cat((before, control), -1), after - before)
    F, B = slopes[:, :n] + torch.eye(n).double(), slopes[:, n:]
    drift, B_drift, remark = _continuous(F, B, step)
    if remark:
        notes.append(remark)
    # Q is computed for the F that will be used, which may differ from the fitted one
    F, B, _ = discretize(drift, B_drift, torch.zeros(n, n).double(), torch.tensor(step, dtype=torch.float64))
    residual = after - before @ F.mT - control @ B.mT
    floor = FLOOR * (after - before).square().mean(0) + FLOOR**2 * before.square().mean(0)
    floor = torch.where(floor > 0, floor, FLOOR**2)
    Q = residual.mT @ residual / max(1, len(residual) - n - p) + floor.diag()
    names = channels or [f"channel {number}" for number in range(y.shape[-1])]
    H, R, channel_notes = _observation(x, y, train.mask & known[..., None] & y.isfinite(), names)
    matrices = {"F": drift, "H": H, "Q": _density(drift, Q, step), "R": R, **({"B": B_drift} if p else {})}
    matrices = {name: value.to(dtype or train.y.dtype) for name, value in matrices.items()}
    if not all(bool(value.isfinite().all()) for value in matrices.values()) or not all(
        bool((matrices[name].diagonal() > 0).all()) for name in "QR"
    ):
        raise DataError(
            f"{train.name}: the linear model exceeds the range of {matrices['F'].dtype}; "
            "scale very large or very small columns, or use float64"
        )
    system = LinearSystem.of(
        **matrices, continuous=True, dt=step, layout=train.layout.describe(), channels=tuple(channels)
    )
    change = (after - before).square().mean(0)
    explained = 1 - residual.square().mean(0) / torch.where(change > 0, change, 1.0)
    shares = ", ".join(f"{part.name} {float(r):.0%}" for part, r in zip(train.layout.parts, explained, strict=False))
    notes.append(
        f"the linear model was fitted to {len(before):,} steps of the training records; explained variance of the "
        f"change per step: {shares}"
    )
    return Fit(system, (*notes, *channel_notes))


class Regression(NamedTuple):
    """``x_t = Σ F_i x_{t-i} + B u_t + w`` of one step, with ``w ~ N(0, Q)``."""

    F: Float[Tensor, "k n n"]
    B: Float[Tensor, "n p"]
    Q: Float[Tensor, "n n"]


def fit_steps(train: Records, order: int = 1) -> Regression:
    """The discrete linear model of an order with the least squared error on the training records, in their dtype.

    Angles are plain numbers here, but changes between steps are taken along the shortest arc: an angle that passes ±π
    does not jump.

    Args:
        train: records with true states.
        order: number of past states that the next one depends on.

    Returns:
        Coefficients and the covariances of what they leave over.

    >>> from fwnkf.data import protocols
    >>> records = protocols.simulated("lorenz", "strict", train=4, val=1, test=1).split.train
    >>> fit_steps(records, order=2).F.shape
    torch.Size([2, 3, 3])
    """
    n, layout = train.layout.size, train.layout
    if layout.tangent_size != n:
        raise ConfigError("a linear model needs a state of numbers and angles; this one contains rotations")
    x = train.truth.double()
    u = x.new_zeros(*x.shape[:2], 0) if train.u is None else train.u.double()
    change = layout.boxminus(x[:, 1:], x[:, :-1])
    # x_t - x_{t-1} from x_{t-1}, the changes before it, and the control
    inputs = [x[:, order - 1 : -1], *(change[:, order - 1 - i : -i] for i in range(1, order)), u[:, order:]]
    rows, target = torch.cat(inputs, -1), change[:, order - 1 :]
    regular = (train.dt[:, 1:] > 0).unfold(1, order, 1).all(-1)
    known = rows.isfinite().all(-1) & target.isfinite().all(-1) & regular
    rows, target = rows[known], target[known]
    if len(rows) < 2 * rows.shape[-1]:
        raise DataError(
            f"{train.name}: {len(rows)} runs of {order + 1} consecutive steps with ground truth; a linear model of "
            f"order {order} with {rows.shape[-1]} inputs needs at least {2 * rows.shape[-1]}"
        )
    slopes = _ridge(rows, target)
    residual = target - rows @ slopes.mT
    Q = residual.mT @ residual / max(1, len(residual) - rows.shape[-1])
    floor = FLOOR * target.square().mean(0) + FLOOR**2 * rows[:, :n].square().mean(0)
    Q = Q + torch.where(floor > 0, floor, FLOOR**2).diag()
    on_state, *on_changes = slopes[:, : n * order].split(n, -1)
    coefficients = torch.zeros(order + 1, n, n).to(x)
    coefficients[0] = torch.eye(n).to(x) + on_state
    for i, slope in enumerate(on_changes):  # of x_{t-1-i} - x_{t-2-i}
        coefficients[i] += slope
        coefficients[i + 1] -= slope
    return Regression(*(item.to(train.y.dtype) for item in (coefficients[:order], slopes[:, n * order :], Q)))


def _ridge(inputs: Float[Tensor, "N k"], outputs: Float[Tensor, "N j"], weight: float = RIDGE) -> Float[Tensor, "j k"]:
    """Coefficients of a ridge regression without offset."""
    scale = inputs.square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = inputs / scale
    gram = scaled.mT @ scaled + weight * max(1, len(inputs)) * torch.eye(inputs.shape[-1]).to(inputs)
    return (torch.linalg.solve(gram, scaled.mT @ outputs) / scale[:, None]).mT


def _observation(
    x: Float[Tensor, "N T n"], y: Float[Tensor, "N T m"], seen: Bool[Tensor, "N T m"], channels: Sequence[str]
) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m m"], list[str]]:
    """``H`` channel by channel, from the steps with measurement and ground truth; ``R``; and remarks."""
    n, m = x.shape[-1], y.shape[-1]
    H, variance, notes = x.new_zeros(m, n), x.new_zeros(m), []
    residual = torch.full_like(y, torch.nan)
    for channel in range(m):
        here = seen[..., channel]
        inputs, outputs = x[here], y[..., channel][here]
        if len(outputs) <= n:
            notes.append(
                f"{channels[channel]} has {len(outputs)} measurement(s) with ground truth: the linear model ignores it"
            )
            finite = y[..., channel][y[..., channel].isfinite()]
            variance[channel] = 1.0 if len(finite) == 0 else 1e6 * float(finite.square().mean()) + 1.0
            continue
        H[channel] = _ridge(inputs, outputs[:, None], RIDGE * 1e-3)[0]
        error = outputs - inputs @ H[channel]
        residual[..., channel][here] = error
        size, spread = float(outputs.square().mean()), float(outputs.var())
        # the floor is one of rounding: a share of the spread would drown the noise of a wide-ranging position
        variance[channel] = error.square().sum() / (len(error) - n) + (FLOOR**2 * (spread + size) or FLOOR**2)
        if spread <= 1e-12 * size:
            notes.append(f"{channels[channel]} is constant and carries no information")
        elif float(error.square().mean()) > 0.5 * spread:
            notes.append(
                f"{channels[channel]} is not a linear function of the state (unexplained variance "
                f"{float(error.square().mean()) / max(spread, 1e-300):.0%}); check for an offset or a missing state"
            )
    complete = residual[residual.isfinite().all(-1)]
    R = variance.diag()
    if m > 1 and len(complete) > 10 * m:
        correlation = _white_correlation(residual, complete)
        cross = correlation - correlation.diagonal().diag()
        # correlations of 1/√N are chance, and independent channels have a faster update: keep significant ones only
        if float(cross.abs().max()) > 5 / len(complete) ** 0.5:
            std = variance.sqrt()
            R = R + (1 - FLOOR) * cross * std[:, None] * std
    return H, R, notes


def _white_correlation(residual: Float[Tensor, "N T m"], complete: Float[Tensor, "K m"]) -> Float[Tensor, "m m"]:
    """The correlation of the channels at most frequencies: the median over the bins of their spectra.

    Two channels that see one tone, or drift together, are correlated over time, but their white noise need not be.
    Records with missing values have no spectrum; without any other the correlation over time is given.
    """
    whole = residual[residual.isfinite().all(-1).all(-1)]
    if len(whole) == 0:
        scale = complete.square().mean(0).sqrt()
        scaled = complete / torch.where(scale > 0, scale, 1.0)
        return scaled.mT @ scaled / len(complete)
    lines = torch.fft.rfft(whole, dim=1)[:, 1:]
    cross = torch.einsum("nfi,nfj->fij", lines, lines.conj()).real
    power = cross.diagonal(dim1=-2, dim2=-1)
    power = torch.where(power > 0, power, 1.0)
    return (cross / (power[:, :, None] * power[:, None, :]).sqrt()).median(0).values


# ---- discrete to continuous -----------------------------------------------------------------------------------------


def _continuous(F: Float[Tensor, "n n"], B: Float[Tensor, "n p"], step: float) -> tuple[Tensor, Tensor, str]:
    """Drift and control of ``dx = A x + B u`` whose discretization is ``F, B``, and a remark if ``F`` was changed."""
    n, p = B.shape
    for candidate, remark in (
        (F, ""),
        (
            _without_alternation(F),
            "the fitted transition has states that change sign at each step, which no continuous model has; "
            "they are replaced by states that decay within one step",
        ),
        (torch.eye(n).double(), "the fitted transition has no continuous equivalent; a random walk is used"),
    ):
        if candidate is None:
            continue
        augmented = torch.eye(n + p).double()
        augmented[:n, :n], augmented[:n, n:] = candidate, B
        log = logm(augmented)
        if log is not None:
            return log[:n, :n] / step, log[:n, n:] / step, remark
    raise AssertionError("the identity has a logarithm")  # pragma: no cover


def logm(matrix: Float[Tensor, "n n"], tolerance: float = 1e-9) -> Float[Tensor, "n n"] | None:
    """The real logarithm of a float64 matrix, or None if there is none; scipy's result is checked by ``exp``."""
    # scipy warns about a singular matrix (UserWarning); of low accuracy, checked below, older versions print a warning
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", UserWarning)
        linalg = need("scipy.linalg", extra="data")
        try:
            log = torch.from_numpy(linalg.logm(matrix.numpy()))
        except (ValueError, linalg.LinAlgError, UserWarning):  # NaN or infinite, or singular
            return None
    if log.is_complex() or not bool(log.isfinite().all()):
        return None
    scale = max(1.0, float(matrix.abs().max()))
    return log if float((torch.linalg.matrix_exp(log) - matrix).abs().max()) <= tolerance * scale else None


def _without_alternation(F: Float[Tensor, "n n"]) -> Float[Tensor, "n n"] | None:
    """``F`` with its negative real eigenvalues, and those close to zero, replaced by a small positive one."""
    values, vectors = torch.linalg.eig(F)
    bad = (values.imag.abs() < 1e-9) & (values.real < LEAST_EIGENVALUE) | (values.abs() < LEAST_EIGENVALUE)
    changed = torch.where(bad, torch.full_like(values, LEAST_EIGENVALUE), values)
    inverse, singular = torch.linalg.inv_ex(vectors)
    if bool(singular):
        return None
    product = (vectors * changed) @ inverse
    return product.real if float(product.imag.abs().max()) < 1e-6 else None


def _density(drift: Float[Tensor, "n n"], Q: Float[Tensor, "n n"], step: float) -> Float[Tensor, "n n"]:
    """A positive definite density ``q`` whose noise over one step is ``Q``, or slightly larger if none exists.

    ``Q = ∫ e^{As} q e^{Aᵀs} ds`` is linear in ``q`` and solved for it.
    """
    n = len(Q)
    std = Q.diagonal().sqrt()
    scale = std[:, None] * std / step
    scaled = torch.diag(1 / std) @ drift @ torch.diag(std) * step
    target = Q / (std[:, None] * std)
    if n <= EXACT_STATES:
        eye = torch.eye(n).to(Q)
        both = torch.kron(scaled, eye) + torch.kron(eye, scaled)
        block = torch.zeros(2 * n * n, 2 * n * n).to(Q)
        block[: n * n, : n * n], block[: n * n, n * n :] = both, torch.eye(n * n).to(Q)
        integral = torch.linalg.matrix_exp(block)[: n * n, n * n :]
        density = torch.linalg.solve(integral, target.reshape(-1)).reshape(n, n)
    else:  # too many unknowns: midpoint rule, with the variances corrected afterwards
        back = torch.linalg.matrix_exp(-0.5 * scaled)
        density = back @ target @ back.mT
        step_cov = discretize(scaled, scaled[:, :0], density, torch.ones(()).to(Q))[2]
        correction = (target.diagonal() / step_cov.diagonal()).sqrt()
        density = correction[:, None] * density * correction
    values, vectors = torch.linalg.eigh(0.5 * (density + density.mT))
    definite = (vectors * values.clamp_min(DENSITY_FLOOR)) @ vectors.mT * scale
    return 0.5 * (definite + definite.mT)
