"""EuRoC in an experiment: its records under both protocols, and a training step of filters by the command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf import cli
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Span
from fwnkf.errors import ConfigError
from fwnkf.training.experiments import read_experiment
from tasks.euroc.experiment import PLAIN, euroc, plain
from tasks.euroc.protocol import STRICT

ALGORITHM3 = {
    "options": {"encoder": {"units": 64, "reads": "current"}, "transition": {"rank": 1}, "phi": {"sections": 1}},
    "learned_system": {"observation": "learned_matrix"},
}
needs_recordings = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")
FEW = {"every": 5, "train": 32, "val": 8, "test": 8}
FLIGHTS = {"paper": ("V1_01_easy",), "strict": ("V2_03_difficult", "V1_02_medium", "V1_03_difficult")}


def test_the_covariance_of_four_plain_numbers_is_that_of_random_quaternions():
    """Against samples: quaternions drawn around the mean attitude, compared number by number."""
    layout = Layout.parse([("p", "euclidean", 3), ("v", "euclidean", 3), ("q", "quaternion", 4)])
    generator = torch.Generator().manual_seed(0)
    origin = layout.origin(torch.zeros(1).double())
    mean = layout.boxplus(origin, torch.randn(9, generator=generator, dtype=torch.float64))
    deviations = torch.tensor([0.1] * 3 + [0.2] * 3 + [0.01, 0.02, 0.03]).double()
    start = fwnkf.Gaussian(mean[None], deviations.square().diag())
    zeros = torch.zeros(1, 2, 6).double()
    truth = mean.expand(1, 2, 10)
    whole = Records("one", zeros, truth, zeros == 0, zeros[..., 0], None, start, layout, (Span("one", "", 0, 2),))
    cov = plain(whole).start.cov[0]
    draws = deviations * torch.randn(200_000, 9, generator=generator, dtype=torch.float64)
    sampled = torch.cov(layout.boxplus(mean.expand(len(draws), -1), draws).mT)
    size = cov.diagonal().sqrt()
    assert float(((cov - sampled) / (size.unsqueeze(-1) * size)).abs().max()) < 0.02
    assert float(torch.linalg.eigvalsh(cov)[0]) > 0


def test_the_experiment_of_the_manual_is_valid(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "howto" / "recordings.md").read_text(encoding="utf-8")
    path = tmp_path / "euroc.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    data = read_experiment(path).data
    assert data.given() == {
        "protocol": "paper",
        "orientation": "plain",
        "every": 5,
        "train": 800,
        "val": 100,
        "test": 460,
    }
    with pytest.raises(ConfigError, match=r"data.orientation = 'euler'"):
        read_experiment(path, ["data.orientation=euler"])


@needs_recordings
@pytest.mark.parametrize("protocol", ["paper", "strict"])
@pytest.mark.parametrize("orientation", ["plain", "quaternion"])
def test_records_have_the_paper_s_sizes(protocol, orientation):
    data = euroc(protocol=protocol, orientation=orientation, sequences=FLIGHTS[protocol], **FEW)
    train = data.split.train
    assert train.y.shape == (32, 40, 6)
    assert train.truth.shape == (32, 40, 10)
    assert (train.layout == PLAIN) == (orientation == "plain")
    assert float(train.dt[:, 1:].median()) == pytest.approx(0.025, rel=1e-3)
    assert len(data.split.val) == len(data.split.test) == 8
    given = torch.equal(train.start.mean, train.truth[:, 0])
    assert given == (protocol == "paper")
    if protocol == "strict":
        assert {span.source for span in data.split.test.spans} <= set(STRICT["test"])


def test_sequences_that_are_not_there_raise():
    with pytest.raises(ConfigError, match=r"MH_01_easy not in protocol 'paper'; there are: \['MH_02_easy'"):
        euroc(protocol="paper", sequences=("MH_01_easy",))
    with pytest.raises(ConfigError, match="leaves no flight for val, test"):
        euroc(protocol="strict", sequences=("MH_01_easy",))


@needs_recordings
@pytest.mark.parametrize(
    ("name", "section", "orientation"),
    [
        ("fwnkf", ALGORITHM3, "plain"),
        ("fwnkf", ALGORITHM3, "quaternion"),
        ("kf", {"options": {"learn": ["F", "H", "Q", "R"]}}, "plain"),
        ("rkn", {}, "plain"),
    ],
)
def test_filters_are_trained_by_the_command(tmp_path, monkeypatch, capsys, name, section, orientation):
    monkeypatch.chdir(tmp_path)
    data = {"name": "euroc", "protocol": "paper", "orientation": orientation, "sequences": ["V1_01_easy"], **FEW}
    experiment = {
        "name": "euroc",
        "data": data,
        "filter": {"name": name, "equations": False, **section},
        "trainer": {"steps": 1, "batch_size": 16, "loggers": []},
    }
    (tmp_path / "euroc.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    words = ["train", "euroc.yaml", "--import", "tasks.euroc", "--no-plots", "--json"]
    cli.main(words)
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["euroc"]["failures"] == 0
    assert rows["euroc"]["records"] == 8
    assert rows["hold"]["mse"] > 0
