"""UIP-DB in an experiment: the part at hand, and a miniature in the form of the authors' files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from fwnkf import cli
from fwnkf.data.sets import uipdb as reader
from fwnkf.errors import ConfigError, DataError
from tasks.uipdb import official
from tasks.uipdb.experiment import uipdb

from ...data import miniatures

needs_recordings = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")
SUBJECTS = {"raw_train": ("04", "05", "06"), "raw_test": ("00", "02")}


def write_official(folder: Path, samples: int = 60, *, raw: bool = True) -> dict[str, dict[str, list]]:
    """``raw_train.pt`` and ``raw_test.pt`` as the authors write them, with random rotations and noise."""
    contents = {}
    generator = np.random.default_rng(0)
    for name, subjects in SUBJECTS.items():
        content = miniatures.processed(folder / f"{name}.pt", (samples,) * len(subjects))
        content["fnames"] = [f"{subject}_session1_0" for subject in subjects]
        for i in range(len(subjects)):
            steps = 0.2 * generator.standard_normal((samples, 6, 3))
            turns = [Rotation.from_rotvec(steps[:, sensor].cumsum(0)).as_matrix() for sensor in range(6)]
            content["ori"][i] = torch.tensor(np.stack(turns, 1), dtype=torch.float32)
            content["acc"][i] = torch.tensor(generator.standard_normal((samples, 6, 3)), dtype=torch.float32)
        if raw:
            for key in reader.RAW:
                content[key] = [torch.tensor(generator.standard_normal((samples, 6, 3))).float() for _ in subjects]
        torch.save(content, folder / f"{name}.pt")
        contents[name] = content
    return contents


# ---- the official files ----------------------------------------------------------------------------------------------


def test_quaternions_of_matrices_are_those_of_scipy():
    vectors = np.random.default_rng(1).standard_normal((200, 3))
    vectors[:3] = np.pi * np.eye(3)  # half turns, where the scalar part is zero
    turns = Rotation.from_rotvec(vectors)
    ours = official.from_matrix(torch.tensor(turns.as_matrix()))
    theirs = torch.tensor(turns.as_quat()[:, [3, 0, 1, 2]])
    agreement = (ours * theirs).sum(-1).abs()
    torch.testing.assert_close(agreement, torch.ones_like(agreement), rtol=0, atol=1e-12)


def test_states_are_relative_to_the_root_in_its_frame(tmp_path):
    content = write_official(tmp_path)["raw_train"]
    recording = official.recordings("train", tmp_path)[1]
    state = official.states(recording)
    acceleration, turned = content["acc"][1].double().numpy(), content["ori"][1].double().numpy()
    for step in (0, 17):
        root = Rotation.from_matrix(turned[step, 5])
        for sensor in range(5):
            expected = root.inv().apply(acceleration[step, sensor] - acceleration[step, 5])
            np.testing.assert_allclose(state[step, 3 * sensor : 3 * sensor + 3], expected, atol=1e-6)
            relative = root.inv() * Rotation.from_matrix(turned[step, sensor])
            ours = Rotation.from_quat(state[step, 18 + 4 * sensor : 22 + 4 * sensor].numpy()[[1, 2, 3, 0]])
            assert (relative.inv() * ours).magnitude() < 1e-6
        np.testing.assert_allclose(state[step, 15:18], root.inv().apply(acceleration[step, 5]), atol=1e-6)
    quaternions = state[:, 18:42].unflatten(-1, (6, 4))
    assert bool(((quaternions[1:] * quaternions[:-1]).sum(-1) > 0).all())
    rows, columns = np.triu_indices(6, 1)
    torch.testing.assert_close(state[:, 42:], content["uwb_gt"][1][:, rows, columns].double())


@pytest.mark.parametrize("protocol", ["paper", "strict"])
def test_records_of_the_official_files(tmp_path, protocol):
    content = write_official(tmp_path)
    data = uipdb(protocol=protocol, files="official", window=20, folder=str(tmp_path))
    train, val, test = data.split
    assert train.y.shape[1:] == (20, 18 + 18 + 15)
    assert train.truth.shape[1:] == (20, 18 + 24 + 15)
    assert len(test) == 6
    assert len(train) + len(val) == 9
    assert {span.source.split("/")[1][:2] for span in test.spans} == {"00", "02"}
    if protocol == "strict":
        assert {span.source.split("/")[1][:2] for span in val.spans} == {"04"}
    given = torch.equal(test.start.mean, test.truth[:, 0])
    assert given == (protocol == "paper")
    raw = content["raw_test"]["gyro_raw"][0][:20].flatten(1)
    assert torch.equal(test.y[0, :, 18:36], raw)
    held = test.mask[0, 1:3, 36:]
    assert not bool(held.any())  # a range is new in every third frame


def test_files_without_samples_before_fusion_are_refused_by_name(tmp_path):
    write_official(tmp_path, raw=False)
    with pytest.raises(DataError, match=r"04_session1_0 has no accel_raw, gyro_raw .*data.files: part"):
        uipdb(files="official", folder=str(tmp_path))
    with pytest.raises(DataError, match=r"neither raw_train.pt nor train.pt"):
        uipdb(files="official", folder=str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="official files"):
        uipdb(protocol="paper")


def test_the_scores_are_those_of_the_paper_s_equations():
    """Computed with numpy and scipy from the definitions."""
    generator = torch.Generator().manual_seed(0)
    truth = official.LAYOUT.origin(torch.zeros(1).double()).expand(2, 5, -1)
    truth = official.LAYOUT.boxplus(truth, torch.randn(2, 5, 51, generator=generator, dtype=torch.float64))
    mean = official.LAYOUT.boxplus(truth, 0.3 * torch.randn(2, 5, 51, generator=generator, dtype=torch.float64))
    row = official.scores(mean, truth)
    error = (mean - truth).reshape(10, -1).numpy()
    assert row["acceleration_rmse"] == pytest.approx(np.sqrt((error[:, :18] ** 2).sum(-1).mean()))
    assert row["acceleration_mae"] == pytest.approx(np.abs(error[:, :18]).sum(-1).mean())
    assert row["distance_mae"] == pytest.approx(np.abs(error[:, 42:]).sum(-1).mean())
    matrix = np.zeros((10, 6, 6))
    rows, columns = np.triu_indices(6, 1)
    matrix[:, rows, columns] = error[:, 42:]
    matrix += matrix.transpose(0, 2, 1)
    assert row["distance_rmse_36"] == pytest.approx(np.sqrt((matrix**2).sum((1, 2)).mean()))
    assert row["distance_mae_36"] == pytest.approx(np.abs(matrix).sum((1, 2)).mean())
    turns = [x[..., 18:42].reshape(60, 4)[:, [1, 2, 3, 0]].numpy() for x in (mean, truth)]
    angles = (Rotation.from_quat(turns[0]).inv() * Rotation.from_quat(turns[1])).magnitude()
    assert row["rho"] == pytest.approx(np.sqrt((angles**2).mean()))


def run(folder: Path, data: dict[str, object], name: str, options: dict[str, object], observation: str = "") -> None:
    learned = {"learned_system": {"observation": observation}} if observation else {}
    experiment = {
        "name": "uipdb",
        "data": {"name": "uipdb", **data},
        "filter": {"name": name, "equations": False, "options": options, **learned},
        "trainer": {"steps": 1, "batch_size": 4, "loggers": []},
    }
    (folder / "uipdb.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    cli.main(["train", "uipdb.yaml", "--import", "tasks.uipdb", "--no-plots", "--json"])


PARTS = {"encoder": {"units": 8}, "transition": {"rank": 1}, "phi": {"sections": 1}}


@pytest.mark.parametrize(("name", "options", "observation"), [("fwnkf", PARTS, "learned_matrix"), ("rkn", {}, "")])
def test_filters_are_trained_on_the_official_form(tmp_path, monkeypatch, capsys, name, options, observation):
    monkeypatch.chdir(tmp_path)
    write_official(tmp_path)
    run(tmp_path, {"files": "official", "window": 20, "folder": str(tmp_path)}, name, options, observation)
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["uipdb"]["failures"] == 0
    assert rows["uipdb"]["records"] == 6


# ---- the part at hand ------------------------------------------------------------------------------------------------


@needs_recordings
def test_filters_are_trained_on_the_part_and_scored_on_hidden_seconds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = uipdb(train=8, val=4, test=8)
    hidden = ~data.split.test.mask.all(-1)
    assert torch.equal(data.split.test.truth.isfinite().all(-1), hidden)
    assert bool(data.split.train.truth.isfinite().all())
    run(tmp_path, {"train": 8, "val": 4, "test": 8}, "fwnkf", PARTS, "given_matrix")
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["uipdb"]["failures"] == 0


def test_signs_of_quaternions_do_not_jump_even_after_half_a_turn():
    q = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0], [0, -0.8, 0.6, 0]])
    expected = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0.8, -0.6, 0]])
    torch.testing.assert_close(official.signed(q), expected)
