"""The whole loop at its smallest size: a matrix that was killed and resumed has the store of one left alone."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from tasks.__main__ import main
from tasks.paper.store import Store

ROOT = Path(__file__).parents[3]
TINY = Path(__file__).parent / "tiny.yaml"


def arguments(folder: Path, *more: str) -> list[str]:
    places = ["--store", str(folder / "store"), "--runs", str(folder / "runs"), "--page", str(folder / "page.md")]
    return ["paper", "--recipes", str(TINY), "--import", "tests.tasks.paper.short", "--no-images", *places, *more]


def stored(folder: Path) -> dict[str, dict]:
    """The rows of a store, without the fields that differ between equal runs."""
    return {key: untimed(row) for key, row in Store(folder / "store").rows().items()}


def untimed(row: dict) -> dict:
    """A row, or a trial of the search in it, without times."""
    kept = {name: value for name, value in row.items() if name not in ("cpu_seconds", "finished")}
    for name in ("trials", "doubled"):
        if name in kept:
            kept[name] = [untimed(part) for part in kept[name]] if name == "trials" else untimed(kept[name])
    return kept


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("left_alone")
    assert main(arguments(folder)) == 0
    return folder


def test_every_run_has_a_row_and_none_is_run_twice(left_alone, capsys):
    rows = stored(left_alone)
    trained = [key for key, row in rows.items() if row["kind"] == "trained"]
    assert sorted(trained) == sorted(
        f"lorenz/paper/{recipe}/{weight}/{seed}"
        for recipe in ("fwnkf", "kf")
        for weight in ("0", "0.1")
        for seed in (0, 1)
    )
    assert {row["status"] for row in rows.values()} == {"done"}
    assert all(row["metrics"]["mse"] > 0 and len(row["errors"]) == 4 for row in rows.values())
    mse = {key: rows[key]["metrics"]["mse"] for key in trained}
    assert mse["lorenz/paper/fwnkf/0/1"] != mse["lorenz/paper/fwnkf/0.1/1"], "the spectral loss has no effect"
    assert mse["lorenz/paper/fwnkf/0/0"] != mse["lorenz/paper/fwnkf/0/1"], "the seed has no effect"
    before = {path: path.read_bytes() for path in (left_alone / "store").iterdir()}
    assert main(arguments(left_alone)) == 0
    assert {path: path.read_bytes() for path in (left_alone / "store").iterdir()} == before
    capsys.readouterr()
    assert main([*arguments(left_alone, "--list"), "--json"]) == 0
    states = json.loads(capsys.readouterr().out)
    assert [(state["done"], state["open"], state["failed"]) for state in states] == [(2, 0, 0), (4, 0, 0), (4, 0, 0)]


def test_drawings_are_small_and_on_the_page(left_alone, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "results").mkdir()
    words = arguments(left_alone, "--page-only", "--images", "--page", str(tmp_path / "results" / "paper.md"))
    assert main(words) == 0
    images = list((tmp_path / "images").glob("*.png"))
    assert {image.stem for image in images} == {
        "paper-lorenz", "paper-lorenz-curves", "paper-lorenz-trajectory", "paper-lorenz-spectra", "paper-lorenz-phi",
        "paper-runtime", "paper-uipdb",
    }  # fmt: skip
    assert max(image.stat().st_size for image in images) < 100_000
    text = (tmp_path / "results" / "paper.md").read_text()
    assert all(f"(../images/{image.name})" in text for image in images)


def test_a_matrix_killed_and_resumed_has_the_same_store(left_alone, tmp_path):
    command = [sys.executable, "-m", "tasks", *arguments(tmp_path, "--workers", "2")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if ": pass 2, " in line:
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGKILL)
    unfinished = set(stored(left_alone)) - set(stored(tmp_path))
    assert unfinished, "killed too late"
    deadline = time.monotonic() + 20
    while any(
        Path(f"/proc/{child}/cmdline").is_file() and Path(f"/proc/{child}/cmdline").read_bytes() for child in children
    ):
        assert time.monotonic() < deadline, "a worker outlived the command"
        time.sleep(0.05)
    assert main(arguments(tmp_path)) == 0
    assert stored(tmp_path) == stored(left_alone)


def test_a_seed_that_is_added_is_trained_as_the_others(left_alone, tmp_path):
    shutil.copytree(left_alone / "store", tmp_path / "store")
    recipes = tmp_path / "recipes.yaml"
    recipes.write_text(TINY.read_text().replace("seeds: [0, 1]", "seeds: [0, 1, 2]"))
    words = [str(recipes) if word == str(TINY) else word for word in arguments(tmp_path, "--only", "kf")]
    assert main(words) == 0
    before, after = stored(left_alone), stored(tmp_path)
    assert {key: after[key] for key in before} == before
    for weight in ("0", "0.1"):
        added, first = after[f"lorenz/paper/kf/{weight}/2"], before["lorenz/paper/kf/0/0"]
        assert (added["rate"], added["batch"], added["trials"]) == (first["rate"], first["batch"], first["trials"])
        assert "doubled" not in added
        assert added["patience"] == first["patience"]


def test_a_larger_budget_trains_the_group_again_without_its_grid(left_alone, tmp_path, monkeypatch):
    shutil.copytree(left_alone / "store", tmp_path / "store")
    recipes = tmp_path / "recipes.yaml"
    own = "on_data: {lorenz: {trainer: {steps: 8}}}"
    recipes.write_text(TINY.read_text().replace("kf: {title: Classical KF,", f"kf: {{title: Classical KF, {own},"))
    words = [str(recipes) if word == str(TINY) else word for word in arguments(tmp_path)]
    monkeypatch.setattr("tasks.paper.search._trial", None)
    assert main(words) == 0
    before, after = stored(left_alone), stored(tmp_path)
    assert [key for key in before if before[key] != after[key]] == [key for key in before if "/kf/" in key]
    one, other = (rows["lorenz/paper/kf/0/0"] for rows in (before, after))
    assert (one["rate"], one["batch"], one["trials"]) == (other["rate"], other["batch"], other["trials"])
    shared = min(len(one["doubled"]["history"]), len(other["doubled"]["history"]))
    assert one["doubled"]["history"][:shared] == other["doubled"]["history"][:shared], "the larger budget goes on"
    assert other["doubled"]["steps"] >= other["steps"]
    assert other["doubled"]["steps"] > one["doubled"]["steps"]


def test_a_file_as_store_is_refused_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "store").write_text("")
    assert main(arguments(tmp_path)) == 2
    assert "is a file: give the folder" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_is_a_row_with_its_reason_and_is_tried_again(left_alone, tmp_path, capsys):
    text = TINY.read_text().replace("learn: [Q, R]", "learn: [X]").replace("[fwnkf, kf]", "[kf]")
    recipes = tmp_path / "recipes.yaml"
    recipes.write_text(text)
    words = [str(recipes) if word == str(TINY) else word for word in arguments(tmp_path)]
    assert main(words) == 1
    failures = [row for row in stored(tmp_path).values() if row["status"] == "failed"]
    assert len(failures) == 4
    assert all("'X'" in row["reason"] for row in failures)
    assert "failed" in (tmp_path / "page.md").read_text()
    recipes.write_text(text.replace("learn: [X]", "learn: [Q, R]"))
    assert main(words) == 0
    assert {row["status"] for row in stored(tmp_path).values()} == {"failed", "done"}, "failed runs wait for --resume"
    assert main([*words, "--resume"]) == 0
    rows = stored(tmp_path)
    assert {key: rows[key] for key in rows if "/kf/" in key} == {
        key: row for key, row in stored(left_alone).items() if "/kf/" in key
    }


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or shutil.which("ip") is None, reason="needs a network of its own")
def test_ray_gives_the_same_store(left_alone, tmp_path):
    """In a network namespace with nothing but the loopback device: Ray looks for the metadata of cloud machines."""
    pytest.importorskip("ray")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("the system does not allow a network namespace")
    words = " ".join(shlex.quote(word) for word in (sys.executable, "-m", "tasks", *arguments(tmp_path, "--ray")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = ["unshare", "-rn", "sh", "-c", f"ip link set lo up; exec {words}"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert stored(tmp_path) == stored(left_alone)
