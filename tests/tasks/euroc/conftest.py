"""Raw windows of EuRoC, and the figures the shipped filters claim on them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import fwnkf

MODELS = Path(__file__).parents[3] / "models"


class Windows(NamedTuple):
    """Samples of the IMU, their sequence as a one-hot row, the initial belief, the truth, and claimed figures."""

    imu: torch.Tensor
    site: torch.Tensor
    dt: torch.Tensor
    prior: fwnkf.Gaussian
    truth: torch.Tensor
    claimed: dict[str, float]


@pytest.fixture(scope="session")
def models() -> Path:
    return MODELS


def windows(task: Any, test: Any) -> Windows:
    from tasks.euroc.protocol import TEN

    rows = torch.tensor([TEN.index(span.source) for span in test.spans])
    site = torch.nn.functional.one_hot(rows, len(TEN)).double().unsqueeze(1).expand(-1, test.y.shape[1], -1)
    claimed = json.loads((MODELS / task.name / "results.json").read_text())["quick"]
    return Windows(test.y, site, test.dt, test.start, test.truth, claimed)


@pytest.fixture(scope="session")
def paper_windows() -> Windows:
    if "FWNKF_DATA" not in os.environ:
        pytest.skip("needs the recordings: set FWNKF_DATA")
    from tasks.euroc.paper import EurocPaper

    return windows(EurocPaper(), EurocPaper().load(quick=True).test)


@pytest.fixture(scope="session")
def strict_windows() -> Windows:
    if "FWNKF_DATA" not in os.environ:
        pytest.skip("needs the recordings: set FWNKF_DATA")
    from tasks.euroc.strict import EurocStrict

    return windows(EurocStrict(), EurocStrict().load(quick=True).test[1])
