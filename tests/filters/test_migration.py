"""Filters saved by 0.2.0 (format 2) compute what they computed then, and what was removed is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fwnkf
from fwnkf.errors import CheckpointError

from .. import systems  # noqa: F401  # registers the toy systems
from ..tolerances import assert_same_bits

STORED = Path(__file__).parent / "format2"
OUTPUTS = ("mean", "cov", "innovation", "innovation_cov", "status")
FILTERS = {
    "arkf": "arkf",
    "fwnkf-adaptive": "fwnkf",
    "fwnkf-augmented-shaped": "fwnkf",
    "fwnkf-learned-network": "fwnkf",
    "fwnkf-levels": "fwnkf",
    "fwnkf-noise-modes": "fwnkf",
    "fwnkf-onsets": "fwnkf",
    "fwnkf-paper": "fwnkf",
    "fwnkf-tracked-levels": "fwnkf",
    "fwnkf-wave-curved": "fwnkf",
    "orders-fixed": "fwnkf",
    "rkn": "rkn",
    "ukf-wave": "ukf",
}
"""The stored filters, and the name under which each is registered now."""


def stored_run(model: fwnkf.Filter, name: str) -> tuple[fwnkf.Trajectory, dict[str, torch.Tensor]]:
    flat = load_file(STORED / name / "stored.safetensors")
    prior = fwnkf.Gaussian(flat["prior/mean"], flat["prior/cov"])
    with torch.no_grad():
        track = model.run(*(flat.get(f"in/{given}") for given in ("y", "u", "mask", "dt")), prior=prior)
    return track, {field: flat[f"out/{field}"] for field in OUTPUTS}


def test_every_stored_filter_is_tested():
    assert {folder.name for folder in STORED.iterdir() if folder.is_dir()} == set(FILTERS)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_of_the_old_format_computes_what_it_did(name: str, tmp_path: Path):
    model = fwnkf.load(STORED / name)
    assert model.name == FILTERS[name]
    track, expected = stored_run(model, name)
    # the level of all covariances has become unbiased, and so larger; the estimates are the same
    compared = ("mean", "innovation", "status") if name == "fwnkf-adaptive" else OUTPUTS
    for field in compared:
        torch.testing.assert_close(getattr(track, field), expected[field], rtol=1e-9, atol=1e-9, msg=field)
    again, _ = stored_run(fwnkf.load(fwnkf.save(model, tmp_path)), name)  # in the present format
    for field in OUTPUTS:
        assert_same_bits(getattr(again, field), getattr(track, field), field)


def changed(name: str, folder: Path, **options: object) -> Path:
    """A copy of a stored filter with other options."""
    shutil.copytree(STORED / name, folder, dirs_exist_ok=True)
    description = json.loads((folder / "config.json").read_text())
    description["config"] |= options
    (folder / "config.json").write_text(json.dumps(description))
    return folder


@pytest.mark.parametrize(("option", "value"), [("gate", "full"), ("gate", "diagonal"), ("adapt", 2.0)])
def test_removed_options_are_named_with_the_version_that_reads_them(option: str, value: object, tmp_path: Path):
    folder = changed("fwnkf-paper", tmp_path, **{option: value})
    with pytest.raises(
        CheckpointError, match=f"{option} = {value!r} was removed in 0.3.0; read this filter with fwnkf"
    ):
        fwnkf.load(folder)


def test_the_optimal_gain_on_a_shaped_innovation_is_that_of_the_kalman_filter(tmp_path: Path):
    """``gain="joint"`` was removed: on innovation and memory together it is optimal in white noise, whatever ``Φ``."""
    joint = fwnkf.load(changed("fwnkf-augmented-shaped", tmp_path, gain="joint"))
    assert joint.config.phi is None
    shaped = fwnkf.load(STORED / "fwnkf-augmented-shaped")
    assert {name for name, _ in shaped.named_parameters()} - {name for name, _ in joint.named_parameters()} == {
        "shaper.raw"
    }
    plain = shaped.with_parts(phi=None)
    assert_same_bits(
        stored_run(joint, "fwnkf-augmented-shaped")[0].mean, stored_run(plain, "fwnkf-augmented-shaped")[0].mean
    )
