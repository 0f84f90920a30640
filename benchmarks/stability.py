"""Stability in float32: the poles of a million shapers, and a million steps of the FW-NKF.

    python benchmarks/stability.py [--quick] [--steps 1000000] [--markdown FILE]

1. Shapers: random and saturated raw parameters in float32; the largest pole radius (computed in float64 from the
   float32 coefficients) must stay below the stated radius, for biquad cascades and for oscillators.
2. Soak test: a float32 FW-NKF with a random encoder and random Φ (and one with noise states) on measurements with
   outliers, dropouts and NaN: all values stay finite, every covariance symmetric and positive semidefinite.

The soak test saves its state and figures after every block and continues from there when it is started again;
``--fresh`` starts from the beginning. The exit code is 1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import torch
from tables import write

import fwnkf
from fwnkf.core import iir
from fwnkf.filters.parts.lines import LineStates
from fwnkf.remaining import Remaining

RADII = (0.9, 0.99, 0.999)
SCALES = (0.1, 1.0, 10.0, 1e3, 1e30)
STREAMS = 4
BLOCK = 5_000


def worst_shapers(count: int) -> list[dict[str, object]]:
    """Largest pole radius over random and saturated raw parameters."""
    generator = torch.Generator().manual_seed(0)
    rows: list[dict[str, object]] = []
    share = -(-count // (len(RADII) * len(SCALES)))
    system = fwnkf.LinearSystem.of(*(torch.eye(1) for _ in range(4)))
    for radius in RADII:
        worst = worst_oscillator = 0.0
        for scale in SCALES:
            raw = (torch.randn(share, 1, 5, generator=generator) * scale).clamp(-3e38, 3e38)
            cascade = iir.sections(raw, radius)
            exact = iir.Sections(cascade.b.double(), cascade.a.double())
            worst = max(worst, float(iir.poles(exact).abs().max()))
            states = LineStates(fwnkf.Lines(pole_radius=radius), slice(0, share), system)
            with torch.no_grad():
                states.raw_radius.copy_(raw[:, 0, :1])
                states.raw_frequency.copy_(raw[:, 0, 1:2])
                r, w = states.radius(), states.frequency()
                pairs = torch.stack((r * w.cos(), r * w.sin())).double()  # the entries of A after rounding to float32
            worst_oscillator = max(worst_oscillator, float(pairs.norm(dim=0).max()))
        good = worst < radius and worst_oscillator < radius
        rows.append(
            {
                "what": f"shapers, stated radius {radius}",
                "count": 2 * share * len(SCALES),
                "largest pole, biquads": f"{worst:.7f}",
                "largest pole, oscillators": f"{worst_oscillator:.7f}",
                "holds": good,
            }
        )
        print(
            f"stated radius {radius}: {share * len(SCALES):,} draws of each kind, largest pole of a biquad "
            f"{worst:.6f}, of an oscillator {worst_oscillator:.7f}  {'holds' if good else 'BROKEN'}"
        )
    return rows


def random_filter(part: str) -> fwnkf.FWNKF:
    """A filter with random heads and random Φ or noise states, so that its networks have an effect."""
    torch.manual_seed(1)
    system = fwnkf.LinearSystem.of(
        torch.tensor([[0.995, 0.05], [-0.05, 0.995]]), torch.eye(2), 0.01 * torch.eye(2), 0.1 * torch.eye(2)
    )
    if part == "phi":  # as in the paper: locally linear, with every state observed
        walk = fwnkf.systems.LearnedSystem.of(H=torch.eye(2), Q=0.01 * torch.eye(2), R=0.1 * torch.eye(2))
        model = fwnkf.FWNKF.paper(walk, units=32, rank=1)
    else:
        lines = fwnkf.Lines(2, shared=True, pole_radius=0.999)
        model = fwnkf.FWNKF(system, noise=lines, encoder=fwnkf.GRU(32), residual=fwnkf.MLP(64))
    with torch.no_grad():
        model.head_weight.normal_(std=0.05)
        if model.shaper is not None:
            model.shaper.raw.normal_(std=0.1)
        if model.noise_states is not None:
            model.noise_states.amplitude.fill_(1.0)
            model.residual.out.weight.normal_(std=0.01)
    return model


def measurements(block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An oscillation with noise, 1 % outliers of size 1e3, 10 % dropouts, and 1 % NaN that are not masked."""
    generator = torch.Generator().manual_seed(1000 + block)
    time_axis = torch.arange(block * BLOCK, (block + 1) * BLOCK, dtype=torch.float64) * 0.05
    phase = time_axis + torch.linspace(0, math.pi, STREAMS).double().unsqueeze(-1)
    y = torch.stack((phase.cos(), -phase.sin()), -1).float()
    y = y + 0.3 * torch.randn(y.shape, generator=generator)
    y = torch.where(torch.rand(y.shape, generator=generator) < 0.01, 1e3 * torch.randn(y.shape, generator=generator), y)
    mask = torch.rand(y.shape, generator=generator) > 0.1
    y = torch.where(mask, y, torch.nan)
    return torch.where(torch.rand(y.shape, generator=generator) < 0.01, torch.nan, y), mask


def soak(part: str, steps: int, folder: Path, fresh: bool) -> dict[str, object]:
    """Run, check every step, and save state and figures."""
    model = random_filter(part)
    state_file, figures_file = folder / f"{part}.safetensors", folder / f"{part}.json"
    figures = {"steps": 0, "smallest_eigenvalue_ratio": 1.0, "asymmetry": 0.0, "largest_mean": 0.0, "finite": True}
    state = None
    if not fresh and state_file.exists() and figures_file.exists():
        figures = json.loads(figures_file.read_text())
        state = fwnkf.load_state(model, state_file.read_bytes())
        print(f"soak {part}: continuing from step {figures['steps']:,}")
    remaining = Remaining(steps, figures["steps"])
    with torch.inference_mode():
        while figures["steps"] < steps:
            y, mask = measurements(figures["steps"] // BLOCK)
            track = model.run(y, mask=mask, state=state)
            state = track.state
            eigenvalues = torch.linalg.eigvalsh(track.cov.double())
            figures["steps"] += BLOCK
            figures["smallest_eigenvalue_ratio"] = min(
                figures["smallest_eigenvalue_ratio"], float((eigenvalues[..., 0] / eigenvalues[..., -1]).min())
            )
            figures["asymmetry"] = max(figures["asymmetry"], float((track.cov - track.cov.mT).abs().max()))
            figures["largest_mean"] = max(figures["largest_mean"], float(track.mean.abs().max()))
            figures["finite"] = figures["finite"] and all(
                bool(part.isfinite().all()) for part in (track.mean, track.cov, track.prior_mean, track.prior_cov)
            )
            state_file.write_bytes(fwnkf.dump_state(model, state))
            figures_file.write_text(json.dumps(figures) + "\n")
            if (figures["steps"] // BLOCK) % 20 == 0:
                left = remaining.added(figures["steps"])
                print(f"soak {part}: {figures['steps']:,} of {steps:,} steps{left}", flush=True)
    good = figures["finite"] and figures["smallest_eigenvalue_ratio"] > 0 and figures["asymmetry"] == 0
    print(
        f"soak {part}, float32, {figures['steps']:,} steps of {STREAMS} streams: finite {figures['finite']}, "
        f"smallest eigenvalue of a covariance over its largest {figures['smallest_eigenvalue_ratio']:.2e}, "
        f"asymmetry {figures['asymmetry']}, largest |mean| {figures['largest_mean']:.3g}  "
        f"{'holds' if good else 'BROKEN'}"
    )
    return {
        "what": f"soak of {STREAMS} streams, with {part}",
        "count": figures["steps"],
        "smallest eigenvalue over largest": figures["smallest_eigenvalue_ratio"],
        "asymmetry": figures["asymmetry"],
        "all finite": figures["finite"],
        "holds": good,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, for CI")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--results", type=Path, default=Path(".results/stability"))
    parser.add_argument("--markdown", type=Path, help="write the figures as a page of the documentation")
    parser.add_argument("--fresh", action="store_true", help="discard the state of an earlier run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = worst_shapers(15_000 if options.quick else 1_000_000)
    steps = BLOCK if options.quick else options.steps
    folder = options.results / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("phi", "lines"):
        rows.append(soak(part, steps, folder, options.fresh or options.quick))
    print(f"figures and states are in {folder}")
    if options.markdown:
        note = "float32 throughout; eigenvalues and poles are computed in float64 from the float32 numbers."
        write(options.markdown, "Stability", note, rows)
    sys.exit(not all(row["holds"] for row in rows))


if __name__ == "__main__":
    main()
