"""A classical linear model from records with truth: what a learned filter starts from and is compared with.

Least squares with a ridge towards "nothing changes": ``x⁺ - x ≈ (F - I) x + B u`` and ``y ≈ H x``; ``Q`` and ``R`` are
the second moments of what is left over. The discrete fit is turned into a continuous system through the matrix
logarithm, so that ``dt`` is honoured: ``dt = 0`` before the first sample predicts nothing, one grid step gives ``F``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.system import LinearSystem, discretize
from ..errors import ConfigError, DataError
from ..shapes import Bool, Float
from .protocols import Records

RIDGE = 1e-6
"""Weight of the ridge as a fraction of the data, all columns scaled to a mean square of one."""
FLOOR = 1e-6
"""The least noise, as a fraction of the mean square step (``Q``) or the variance of the channel (``R``)."""
SLOWEST = 1e-3
"""A fitted eigenvalue on the negative real axis has no real logarithm and becomes this small: forgotten at once."""
DENSITY_FLOOR = 1e-4
"""The least eigenvalue of the scaled noise density, so that it stays definite in float32 and may be learned."""

EXACT_STATES = 16
"""Up to so many states the noise density is solved for exactly."""


class Fit(NamedTuple):
    system: LinearSystem
    notes: tuple[str, ...]


def fit_linear(train: Records) -> LinearSystem:
    """The linear model that explains the training records best, in their dtype, continuous, with ``dt`` their step.

    >>> from fwnkf.data import protocols
    >>> task = protocols.simulated("lorenz", "strict", train=4, val=1, test=1).split.train
    >>> fit_linear(task).F.shape
    torch.Size([3, 3])
    """
    return identify(train).system


def identify(train: Records, channels: Sequence[str] = (), dtype: torch.dtype | None = None) -> Fit:
    """:func:`fit_linear`, with what there is to say about it, under the names of the channels."""
    if not train.layout.flat:
        raise ConfigError("a linear model needs a Euclidean state; this one holds angles or quaternions")
    n, p = train.layout.size, 0 if train.u is None else train.u.shape[-1]
    y, x, dt = train.y.double(), train.truth.double(), train.dt.double()
    step = float(dt[:, 1:].median()) if dt.shape[1] > 1 else 0.0
    u = x.new_zeros(*x.shape[:2], 0) if train.u is None else train.u.double()
    known = x.isfinite().all(-1)
    pairs = known[:, :-1] & known[:, 1:] & u[:, 1:].isfinite().all(-1)
    before, after, push = x[:, :-1][pairs], x[:, 1:][pairs], u[:, 1:][pairs]
    if step <= 0 or len(before) < 2 * (n + p):
        raise DataError(
            f"{train.name}: {len(before)} pairs of neighbouring steps with truth; a linear model of {n} states and "
            f"{p} controls needs {2 * (n + p)} at least"
        )
    notes: list[str] = []
    slopes = _ridge(torch.cat((before, push), -1), after - before)
    F, B = slopes[:, :n] + torch.eye(n).double(), slopes[:, n:]
    drift, B_drift, how = _continuous(F, B, step)
    if how:
        notes.append(how)
    # Q belongs to the F that will be used, also where that is not quite the fitted one
    F, B, _ = discretize(drift, B_drift, torch.zeros(n, n).double(), torch.tensor(step, dtype=torch.float64))
    left = after - before @ F.mT - push @ B.mT
    floor = FLOOR * (after - before).square().mean(0) + FLOOR**2 * before.square().mean(0)
    floor = torch.where(floor > 0, floor, FLOOR**2)
    Q = left.mT @ left / max(1, len(left) - n - p) + floor.diag()
    channels = channels or [f"channel {number}" for number in range(y.shape[-1])]
    H, R, said = _observation(x, y, train.mask & known[..., None] & y.isfinite(), channels)
    matrices = {"F": drift, "H": H, "Q": _density(drift, Q, step), "R": R, **({"B": B_drift} if p else {})}
    matrices = {name: value.to(dtype or train.y.dtype) for name, value in matrices.items()}
    if not all(bool(value.isfinite().all()) for value in matrices.values()) or not all(
        bool((matrices[name].diagonal() > 0).all()) for name in "QR"
    ):
        raise DataError(
            f"{train.name}: the numbers of a linear model do not fit into {matrices['F'].dtype}; "
            "are some columns very large or very small? Use other units, or float64"
        )
    system = LinearSystem.of(**matrices, continuous=True, dt=step, layout=train.layout.describe())
    moved = (after - before).square().mean(0)
    share = 1 - left.square().mean(0) / torch.where(moved > 0, moved, 1.0)
    told = ", ".join(f"{part.name} {float(s):.0%}" for part, s in zip(train.layout.parts, share, strict=False))
    notes.append(
        f"the classical model was fitted by least squares to {len(before):,} steps of the training records alone; "
        f"it explains this much of the step to step change: {told}"
    )
    return Fit(system, (*notes, *said))


def _ridge(inputs: Float[Tensor, "N k"], outputs: Float[Tensor, "N j"], weight: float = RIDGE) -> Float[Tensor, "j k"]:
    """Slopes of least squares without offset, drawn towards zero where the inputs do not tell."""
    scale = inputs.square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = inputs / scale
    gram = scaled.mT @ scaled + weight * max(1, len(inputs)) * torch.eye(inputs.shape[-1]).to(inputs)
    return (torch.linalg.solve(gram, scaled.mT @ outputs) / scale[:, None]).mT


def _observation(
    x: Float[Tensor, "N T n"], y: Float[Tensor, "N T m"], seen: Bool[Tensor, "N T m"], channels: Sequence[str]
) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m m"], list[str]]:
    """``H`` channel by channel, where channel and truth are both there, and ``R``."""
    n, m = x.shape[-1], y.shape[-1]
    H, variance, notes = x.new_zeros(m, n), x.new_zeros(m), []
    residual = torch.full_like(y, torch.nan)
    for channel in range(m):
        here = seen[..., channel]
        inputs, outputs = x[here], y[..., channel][here]
        if len(outputs) <= n:
            notes.append(
                f"{channels[channel]} is seen {len(outputs)} time(s) with a known state: the classical model ignores it"
            )
            some = y[..., channel][y[..., channel].isfinite()]
            variance[channel] = 1.0 if len(some) == 0 else 1e6 * float(some.square().mean()) + 1.0
            continue
        H[channel] = _ridge(inputs, outputs[:, None], RIDGE * 1e-3)[0]
        left = outputs - inputs @ H[channel]
        residual[..., channel][here] = left
        size, spread = float(outputs.square().mean()), float(outputs.var())
        variance[channel] = left.square().sum() / (len(left) - n) + (FLOOR * spread + FLOOR**2 * size or FLOOR**2)
        if spread <= 1e-12 * size:
            notes.append(f"{channels[channel]} never changes: it measures nothing")
        elif float(left.square().mean()) > 0.5 * spread:
            notes.append(
                f"{channels[channel]} is hardly a linear function of the state (what is left over has "
                f"{float(left.square().mean()) / max(spread, 1e-300):.0%} of its variance): is there an offset to take "
                "away, or does it measure something else?"
            )
    together = residual[residual.isfinite().all(-1)]
    R = variance.diag()
    if m > 1 and len(together) > 10 * m:
        scale = together.square().mean(0).sqrt()
        scale = torch.where(scale > 0, scale, 1.0)
        correlation = (together / scale).mT @ (together / scale) / len(together)
        apart = correlation - correlation.diagonal().diag()
        # chance makes correlations of 1/√N; independent channels allow the fastest update, so doubt speaks for them
        if float(apart.abs().max()) > 5 / len(together) ** 0.5:
            std = variance.sqrt()
            R = R + (1 - FLOOR) * apart * std[:, None] * std
    return H, R, notes


# ---- discrete to continuous -----------------------------------------------------------------------------------------


def _continuous(F: Float[Tensor, "n n"], B: Float[Tensor, "n p"], step: float) -> tuple[Tensor, Tensor, str]:
    """Drift and control of ``dx = A x + B u`` whose step is ``F, B``, and what had to be changed to find them."""
    n, p = B.shape
    for candidate, how in (
        (F, ""),
        (
            _without_alternation(F),
            "the fitted transition has states that flip their sign from step to step, which no continuous model has; "
            "they are taken to forget their value at each step",
        ),
        (torch.eye(n).double(), "the fitted transition has no continuous counterpart; a random walk stands in"),
    ):
        if candidate is None:
            continue
        whole = torch.eye(n + p).double()
        whole[:n, :n], whole[:n, n:] = candidate, B
        log = logm(whole)
        if log is not None:
            return log[:n, :n] / step, log[:n, n:] / step, how
    raise AssertionError("the identity has a logarithm")  # pragma: no cover


def logm(matrix: Float[Tensor, "n n"], tolerance: float = 1e-9) -> Float[Tensor, "n n"] | None:
    """The real logarithm by square roots and a series, or None if there is none; float64, checked by ``exp``.

    Unlike the way over eigenvectors, it works for ``[[1, dt], [0, 1]]``, which has only one.
    """
    root, halvings = matrix, 0
    eye = torch.eye(len(matrix)).to(matrix)
    while not float(torch.linalg.matrix_norm(root - eye, 1)) < 0.25:
        found = _square_root(root)
        if found is None or halvings == 60:
            return None
        root, halvings = found, halvings + 1
    # log M = 2 artanh((M - I)(M + I)⁻¹); with a norm below 1/7 twelve terms are exact to rounding
    ratio = torch.linalg.solve(root + eye, root - eye)
    square, power, total = ratio @ ratio, ratio, ratio
    for k in range(3, 25, 2):
        power = power @ square
        total = total + power / k
    log = 2.0 ** (halvings + 1) * total
    back = torch.linalg.matrix_exp(log)
    scale = max(1.0, float(matrix.abs().max()))
    return log if bool(log.isfinite().all()) and float((back - matrix).abs().max()) <= tolerance * scale else None


def _square_root(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n n"] | None:
    """The principal square root (Denman and Beavers), or None where the iteration does not settle."""
    root, inverse = matrix, torch.eye(len(matrix)).to(matrix)
    for _ in range(40):
        a, fault_a = torch.linalg.inv_ex(root)
        b, fault_b = torch.linalg.inv_ex(inverse)
        if bool(fault_a) or bool(fault_b):
            return None
        following = 0.5 * (root + b)
        moved = float((following - root).abs().max())
        root, inverse = following, 0.5 * (inverse + a)
        if not moved < 1e12:  # NaN included
            return None
        if moved <= 1e-14 * max(1.0, float(root.abs().max())):
            break
    return root


def _without_alternation(F: Float[Tensor, "n n"]) -> Float[Tensor, "n n"] | None:
    """``F`` with its eigenvalues on the negative real axis (and those next to zero) made small and positive."""
    values, vectors = torch.linalg.eig(F)
    bad = (values.imag.abs() < 1e-9) & (values.real < SLOWEST) | (values.abs() < SLOWEST)
    changed = torch.where(bad, torch.full_like(values, SLOWEST), values)
    inverse, fault = torch.linalg.inv_ex(vectors)
    if bool(fault):
        return None
    made = (vectors * changed) @ inverse
    return made.real if float(made.imag.abs().max()) < 1e-6 else None


def _density(drift: Float[Tensor, "n n"], Q: Float[Tensor, "n n"], step: float) -> Float[Tensor, "n n"]:
    """A definite density whose noise over one step is ``Q``, or a little more where only an indefinite one would do.

    ``Q = ∫ e^{As} q e^{Aᵀs} ds`` is linear in ``q`` and solved for it.
    """
    n = len(Q)
    std = Q.diagonal().sqrt()
    scale = std[:, None] * std / step
    scaled = torch.diag(1 / std) @ drift @ torch.diag(std) * step
    wanted = Q / (std[:, None] * std)
    if n <= EXACT_STATES:
        eye = torch.eye(n).to(Q)
        both = torch.kron(scaled, eye) + torch.kron(eye, scaled)
        block = torch.zeros(2 * n * n, 2 * n * n).to(Q)
        block[: n * n, : n * n], block[: n * n, n * n :] = both, torch.eye(n * n).to(Q)
        integral = torch.linalg.matrix_exp(block)[: n * n, n * n :]
        density = torch.linalg.solve(integral, wanted.reshape(-1)).reshape(n, n)
    else:  # the n² unknowns are too many: the midpoint rule, with the variances made right afterwards
        back = torch.linalg.matrix_exp(-0.5 * scaled)
        density = back @ wanted @ back.mT
        made = discretize(scaled, scaled[:, :0], density, torch.ones(()).to(Q))[2]
        right = (wanted.diagonal() / made.diagonal()).sqrt()
        density = right[:, None] * density * right
    values, vectors = torch.linalg.eigh(0.5 * (density + density.mT))
    definite = (vectors * values.clamp_min(DENSITY_FLOOR)) @ vectors.mT * scale
    return 0.5 * (definite + definite.mT)
