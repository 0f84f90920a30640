"""Float32 against float64 on ill-conditioned systems: the Joseph form, scalar updates, and the factors U D Uᵀ.

    python benchmarks/conditioning.py [--systems 1000] [--markdown FILE]

Random systems of 4 states and 2 channels with random dynamics and measurements run for 20 steps from a prior that is up
to 1e14 times wider than the measurement noise (variances; 1e6 over 1e-8 at the end of the range). All forms get the
same float32 numbers. The reference is the factored form in float64, compared with 60-digit arithmetic on some systems.

Errors are the largest over steps: of the mean, relative to its largest value; of the standard deviations, relative to
each of them. "silent" counts systems with an error of a standard deviation above one percent and no status.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import mpmath
import torch
from tables import write
from torch import Tensor

from fwnkf.core.forms import covariance_form, measured_precisely, resolved
from fwnkf.core.gaussian import DiagonalNoise, SolveForm, matvec

STATES, CHANNELS, STEPS = 4, 2, 20
NOISE = 1e-8
DECADES = ((2, 6), (6, 10), (10, 12), (12, 14))
FORMS: tuple[SolveForm, ...] = ("cholesky", "unrolled", "sequential", "square_root")
CHECKED = 10
"""Systems of each range that are also computed with 60 digits."""


class Systems(NamedTuple):
    F: Tensor
    H: Tensor
    Q: Tensor
    R: Tensor
    P: Tensor
    y: Tensor

    def to(self, dtype: torch.dtype) -> Systems:
        return Systems(*(item.to(dtype) for item in self))


class Result(NamedTuple):
    mean: Tensor
    std: Tensor
    failed: Tensor
    imprecise: Tensor


def draw(count: int, low: float, high: float, generator: torch.Generator) -> Systems:
    """Systems whose prior is 10^low to 10^high times wider than the noise in one direction, in others less."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rotation = torch.linalg.qr(normal(count, STATES, STATES))[0]
    F = 0.98 * (torch.eye(STATES, dtype=torch.float64) + 0.1 * (rotation - rotation.mT))
    H = normal(count, CHANNELS, STATES)
    share = torch.rand(count, STATES, generator=generator, dtype=torch.float64)
    share[:, 0] = 1.0
    top = low + (high - low) * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    P = NOISE * 10 ** (top * share)
    Q = 1e-2 * NOISE * torch.ones_like(P)
    R = torch.full((count, CHANNELS), NOISE, dtype=torch.float64)
    x, rows = P.sqrt() * normal(count, STATES), []
    for _ in range(STEPS):
        x = matvec(F, x) + Q.sqrt() * normal(count, STATES)
        rows.append(matvec(H, x) + R.sqrt() * normal(count, CHANNELS))
    systems = Systems(F, H, torch.diag_embed(Q), R, torch.diag_embed(P), torch.stack(rows, 1))
    return systems.to(torch.float32)  # what every form gets


def run(systems: Systems, solve: SolveForm, dtype: torch.dtype) -> Result:
    F, H, Q, R, P, y = systems.to(dtype)
    form = covariance_form(solve)
    carried, mean, noise = form.start(P), torch.zeros_like(P[..., 0]), DiagonalNoise(R)
    weight = torch.ones_like(R)
    failed = torch.zeros(len(F), dtype=torch.bool)
    imprecise, means, stds = failed.clone(), [], []
    for t in range(STEPS):
        before = carried
        mean, carried = matvec(F, mean), form.propagate(carried, F, Q)
        predicted = form.predicts_precisely(before, F, carried)
        update = form.condition(carried, y[:, t] - matvec(H, mean), H, noise, weight)
        mean, carried = mean + update.correction, update.cov
        cov = form.covariance(carried)
        precise = predicted & measured_precisely(update.precise, y[:, t], noise, weight) & resolved(mean.abs(), cov)
        failed, imprecise = failed | ~update.ok, imprecise | ~precise
        means.append(mean.double())
        stds.append(torch.diagonal(cov, dim1=-2, dim2=-1).double().clamp_min(0).sqrt())
    return Result(torch.stack(means, 1), torch.stack(stds, 1), failed, imprecise)


def errors(result: Result, truth: Result) -> tuple[Tensor, Tensor]:
    """Of the mean relative to its largest value, of each standard deviation relative to itself; worst over steps."""
    mean = (result.mean - truth.mean).abs().amax((1, 2)) / truth.mean.abs().amax((1, 2))
    std = (result.std / truth.std - 1).abs().amax((1, 2))
    return mean.nan_to_num(torch.inf), std.nan_to_num(torch.inf)


def exactly(systems: Systems, number: int) -> Result:
    """The plain Kalman filter with 60 digits."""
    mpmath.mp.dps = 60
    F, H, Q, P = (mpmath.matrix(item[number].tolist()) for item in (systems.F, systems.H, systems.Q, systems.P))
    R = mpmath.diag(systems.R[number].tolist())
    x, means, stds = mpmath.zeros(STATES, 1), [], []
    for row in systems.y[number].tolist():
        x, P = F * x, F * P * F.T + Q
        K = P * H.T * mpmath.inverse(H * P * H.T + R)
        x, P = x + K * (mpmath.matrix(row) - H * x), P - K * H * P
        means.append([float(value) for value in x])
        stds.append([float(mpmath.sqrt(P[i, i])) for i in range(STATES)])
    none = torch.zeros(1, dtype=torch.bool)
    as_double = {"dtype": torch.float64}
    return Result(torch.tensor([means], **as_double), torch.tensor([stds], **as_double), none, none)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=1000)
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator, rows = torch.Generator().manual_seed(0), []
    count, reference = options.systems // len(DECADES), 0.0
    for low, high in DECADES:
        systems = draw(count, low, high, generator)
        truth = run(systems, "square_root", torch.float64)
        for number in range(min(CHECKED, count)):
            one = Result(*(item[number : number + 1] for item in truth))
            reference = max(
                reference, *(float(error) for error in errors(one, exactly(systems.to(torch.float64), number)))
            )
        for form in FORMS:
            result = run(systems, form, torch.float32)
            mean, std = errors(result, truth)
            row = {
                "prior over noise": f"1e{low} to 1e{high}",
                "form": form,
                "systems": count,
                "mean, median": float(mean.median()),
                "mean, worst": float(mean.max()),
                "std, median": float(std.median()),
                "std, worst": float(std.max()),
                "updates skipped": int(result.failed.sum()),
                "precision lost": int((result.imprecise & ~result.failed).sum()),
                "lost, but right to 0.1 %": int((result.imprecise & ~result.failed & (std < 1e-3)).sum()),
                "silent": int(((std > 0.01) & ~result.failed & ~result.imprecise).sum()),
            }
            rows.append(row)
            print(
                "  ".join(
                    f"{name} {value:.2g}" if isinstance(value, float) else f"{value}" for name, value in row.items()
                )
            )
    note = (
        f"Float32 against float64 on random systems of {STATES} states and {CHANNELS} channels over {STEPS} steps, "
        "seed 0. `cholesky` and `unrolled` are the Joseph form, `square_root` the factors U D Uᵀ of Bierman and "
        "Thornton. Errors of the mean are relative to its largest value, those of standard deviations to each of "
        "them; the largest over steps. Systems with a skipped update, with the status `PRECISION_LOST`, and (silent) "
        "with neither although a "
        f"standard deviation is wrong by more than one percent. Of {min(CHECKED, count) * len(DECADES)} systems the "
        f"reference was compared with 60-digit arithmetic: largest relative deviation {reference:.1e}."
    )
    print(f"reference against 60 digits: {reference:.1e}")
    if options.markdown:
        write(options.markdown, "Ill-conditioned systems in float32", note, rows)


if __name__ == "__main__":
    main()
