"""The reference ladder on every set and protocol, as a page of the documentation.

    python benchmarks/references.py [--markdown docs/results/references.md] [--particles 0]

EuRoC needs the recordings (FWNKF_DATA) and is left out without them, and said so. Rows of one table come from one run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from tables import write

from fwnkf.evaluation.baselines import references

COLUMNS = (
    *("data", "protocol", "case", "records", "method", "mse", "mse_from_10"),
    *("rmse_p", "rmse_v", "rmse_q", "nees", "coverage95", "failures"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--particles", type=int, default=0, help="add a particle filter on white noise")
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs: list[tuple[str, str, str, dict]] = []
    for data in ("lorenz", "pendulum"):
        jobs.append((data, "paper", "white", {"scenario": "white"}))
        for scenario in ("white", "tone", "high_band", "drift", "pink"):
            particles = options.particles if scenario == "white" else 0
            jobs.append((data, "strict", scenario, {"scenario": scenario, "particles": particles}))
    left_out = ""
    if os.environ.get("FWNKF_DATA"):
        jobs.append(("euroc", "paper", "1 s", {}))
        jobs += [("euroc", "strict", f"{horizon} s", {"horizon": float(horizon)}) for horizon in (1, 5, 10)]
    else:
        left_out = " EuRoC is left out: FWNKF_DATA does not name the recordings."
    rows = []
    for data, protocol, case, chosen in jobs:
        for row in references(data, protocol, **chosen):
            rows.append({name: row.get(name) for name in COLUMNS} | {"case": case})
            print(f"{data:9} {protocol:7} {case:10} {row['method']:20} mse {row['mse']:.5g}", flush=True)
    if options.markdown:
        note = (
            "Seed 0; `strict` simulated sets are one fixed test set of 1,000 trajectories, `paper` ones a tenth of the "
            "paper's. Angles by the shortest arc; EuRoC `mse` is the raw mean over ten numbers, as the paper has it, "
            "`rmse_p`, `rmse_v`, `rmse_q` are metres, metres a second and radians. An empty cell means that the method "
            "states no covariance or the state has no such part." + left_out
        )
        for row in rows:
            for name, value in row.items():
                row[name] = None if isinstance(value, float) and value != value else value
        write(options.markdown, "References", note, rows)


if __name__ == "__main__":
    main()
