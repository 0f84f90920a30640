"""The picture of the README: innovation spectra and errors on DIDO's held-out flights, before and after.

python benchmarks/readme_figure.py                       draw docs/images/dido.png: about a minute
python benchmarks/readme_figure.py --out picture.png     elsewhere
python benchmarks/readme_figure.py --flights 1 2         of some test flights only

Needs the recordings (``fwnkf data info dido``) and the extra ``plot``. The filter is the shipped one (``models/dido``),
the white Kalman filter and the low-pass are tuned on the training flights, as its card says.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tasks.dido.dido import CHUNK, rmse
from tasks.dido.protocol import AXES, RATE, TEST, TRAIN, VALIDATION, denoise_task, flights
from torch import Tensor

from fwnkf.checkpoint import load
from fwnkf.filters.base import Filter
from fwnkf.metrics.consistency import whiten
from fwnkf.metrics.spectrum import innovation_spectrum, named_peaks
from fwnkf.report.before_after import before_after
from tasks.dido import baselines as ladder

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "dido"
LOW_PASS, WHITE, OURS = "low-pass, tuned", "Kalman filter that takes noise for white", "fwnkf (models/dido)"
NAMES = {"gyro": "gyro", "force": "acc."}
SEGMENT = 512
BANDS = 3
"""How many peaks of the white filter's innovations get their frequency written beside them."""


def white_innovations(tuned: dict[str, dict[str, list[float]]], y: Tensor) -> Tensor:
    """Innovations of the white Kalman filter of each axis, whose noise was found by likelihood."""
    delay = ladder.delays(y.shape[1])
    columns = []
    for i, axis in enumerate(AXES):
        ratio = torch.tensor(tuned[axis]["white_kf_likelihood"][0], dtype=torch.float64).exp()
        column = y[..., i]
        # `apply` takes a gain of one at zero frequency and adds the first sample; innovations have none of it
        columns.append(ladder.apply(ladder.white_innovation(ratio, delay), column) - column[:, :1])
    return torch.stack(columns, -1)


@torch.no_grad()
def ours(model: Filter, y: Tensor) -> tuple[Tensor, Tensor]:
    """Estimates and normalised innovations of the shipped filter, in pieces for memory's sake."""
    state, means, innovations = None, [], []
    for piece in y.split(CHUNK, 1):
        track = model.run(piece, state=state).raise_for_status()
        state = track.state
        means.append(track.mean[..., : len(AXES)])
        innovations.append(whiten(track.innovation, track.innovation_cov))
    return torch.cat(means, 1), torch.cat(innovations, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "dido.png")
    parser.add_argument("--flights", type=int, nargs="+", choices=TEST, default=TEST, help="test flights; all twelve")
    options = parser.parse_args()
    torch.set_num_threads(1)

    tuned = json.loads((MODEL / "figures.json").read_text(encoding="utf-8"))["tuned"]
    learned = denoise_task("training flights", flights((*TRAIN, *VALIDATION))).y
    task = denoise_task("test flights", flights(options.flights))
    # the white filter's level of noise is that of the training flights, as its likelihood says
    level = white_innovations(tuned, learned).square().mean((0, 1)).sqrt()
    estimate, normalised = ours(load(MODEL), task.y)
    spectra = {
        WHITE: innovation_spectrum(white_innovations(tuned, task.y) / level, rate=RATE, segment=SEGMENT),
        OURS: innovation_spectrum(normalised, rate=RATE, segment=SEGMENT),
    }
    peaks = named_peaks(spectra[WHITE].density.mean(-1), spectra[WHITE].frequency, BANDS)
    raw = rmse(task.y, task.truth)
    found = {
        LOW_PASS: rmse(ladder.estimates(tuned, "low_pass_tuned", task.y, AXES), task.truth),
        WHITE: rmse(ladder.estimates(tuned, "white_kf_likelihood", task.y, AXES), task.truth),
        OURS: rmse(estimate, task.truth),
    }
    percent = {
        name: {"\n".join((NAMES[axis[:-2]], axis[-1])): 100 * error / raw[axis] for axis, error in errors.items()}
        for name, errors in found.items()
    }
    figure = before_after(
        spectra,
        percent,
        title=f"DIDO: a quadrotor whose IMU shakes with its rotors, {len(task)} held-out flights at {RATE:.0f} Hz",
        error_title="error of angular rate and specific force",
        error_label="RMSE (% of the raw sensor's)",
        bands=[peak.frequency for peak in peaks],
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=130)
    print(json.dumps({"rmse": {"raw": raw, **found}, "nis": float(normalised.square().mean())}, indent=1))
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
