"""The figure of the README: innovation spectra and errors on DIDO's test flights, before and after.

    python benchmarks/readme_figure.py                      write docs/images/dido.png: about a minute
    python benchmarks/readme_figure.py --out figure.png     write another file
    python benchmarks/readme_figure.py --quick              one flight, a few samples, to .results/readme_figure.png

Needs the recordings (``fwnkf data info dido``) and the extra ``plot``. The filter is the shipped one (``models/dido``);
the low-pass and the Kalman filter for white noise are tuned on the training flights, as described on its card.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import scipy.signal
import torch
from before_after import before_after
from torch import Tensor

from fwnkf.checkpoint import load
from fwnkf.metrics.consistency import whiten
from fwnkf.metrics.spectrum import innovation_spectrum

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tasks is not installed with the package

from tasks.dido import classical  # noqa: E402
from tasks.dido.denoise import as_data, run, training_records  # noqa: E402
from tasks.dido.protocol import AXES, RATE, SAMPLES, TEST, flights  # noqa: E402
from tasks.dido.scoring import rmse  # noqa: E402
from tasks.results import read  # noqa: E402

MODEL = ROOT / "models" / "dido"
LOW_PASS, WHITE, OURS = "low-pass, tuned", "Kalman filter for white noise", "fwnkf (models/dido)"
NAMES = {"gyro": "gyro", "force": "acc."}
SEGMENT = 512
PEAKS = 3
"""Number of peaks of the innovations for white noise whose frequency is written into the figure."""
QUICK_SAMPLES = 2000


def white_innovations(tuned: dict[str, dict[str, list[float]]], y: Tensor) -> Tensor:
    """Innovations of the Kalman filter for white noise of each axis, whose noise was fitted by maximum likelihood."""
    delay = classical.delays(y.shape[1])
    columns = []
    for i, axis in enumerate(AXES):
        ratio = torch.tensor(tuned[axis]["white_kf_likelihood"][0], dtype=torch.float64).exp()
        column = y[..., i]
        # `apply` assumes unit gain at zero frequency and adds the first sample; innovations have zero gain there
        columns.append(classical.apply(classical.white_innovation(ratio, delay), column) - column[:, :1])
    return torch.stack(columns, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="image file (default: docs/images/dido.png)")
    parser.add_argument("--quick", action="store_true", help=f"one flight of {QUICK_SAMPLES} samples")
    options = parser.parse_args()
    default = Path(".results/readme_figure.png") if options.quick else ROOT / "docs" / "images" / "dido.png"
    out = options.out or default
    torch.set_num_threads(1)

    tuned = read(MODEL).details["tuned"]["classical"]
    test = as_data(flights(TEST[:1] if options.quick else TEST), QUICK_SAMPLES if options.quick else SAMPLES)
    # the innovations are normalised by their level on the training flights, where the filter was fitted
    level = white_innovations(tuned, training_records()[0]).square().mean((0, 1)).sqrt()
    estimate = run(load(MODEL), test.y)
    assert estimate.innovation is not None
    assert estimate.innovation_cov is not None
    normalised = whiten(estimate.innovation, estimate.innovation_cov)
    spectra = {
        WHITE: innovation_spectrum(white_innovations(tuned, test.y) / level, rate=RATE, segment=SEGMENT),
        OURS: innovation_spectrum(normalised, rate=RATE, segment=SEGMENT),
    }
    density = spectra[WHITE].density.mean(-1).log10().numpy()
    places, properties = scipy.signal.find_peaks(density, prominence=0.6)  # a factor of four
    largest = sorted(zip(-properties["prominences"], places, strict=True))[:PEAKS]
    peaks = [float(spectra[WHITE].frequency[place]) for _, place in largest]
    raw = rmse(test.y, test.truth)
    errors = {
        LOW_PASS: rmse(classical.estimates(tuned, "low_pass_tuned", test.y), test.truth),
        WHITE: rmse(classical.estimates(tuned, "white_kf_likelihood", test.y), test.truth),
        OURS: rmse(estimate.mean, test.truth),
    }
    percent = {
        name: {"\n".join((NAMES[axis[:-2]], axis[-1])): 100 * value / raw[axis] for axis, value in by_axis.items()}
        for name, by_axis in errors.items()
    }
    figure = before_after(
        spectra,
        percent,
        title=f"DIDO: a quadrotor with rotor vibration in its IMU, {len(test.names)} test flights at {RATE:.0f} Hz",
        error_title="error of angular rate and specific force",
        error_label="RMSE (% of the raw sensor's)",
        bands=peaks,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)
    print(json.dumps({"rmse": {"raw": raw, **errors}, "nis": float(normalised.square().mean())}, indent=1))
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
