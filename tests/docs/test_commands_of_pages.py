"""The commands of all pages: run as written in a folder with small files of the names that pages use, or excused."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.cli.main import parser
from fwnkf.data.flights import Vehicle, flight
from fwnkf.logs import LOG_READERS

from ..cli.test_navigate import write_flight as write_navigation
from ..cli.test_run import CHANNELS, save_imu_filter
from ..logs.writers import write_flight
from ..shell import succeed
from .test_pages import DOCS, PAGES, ROOT, blocks

HOWTO = DOCS / "howto"
TRAIN = (HOWTO / "train.md").read_text(encoding="utf-8").split("## A minute of training\n")[1].split("\n## ")[0]
OWN = (HOWTO / "own_system.md").read_text(encoding="utf-8")

EXPERIMENT = """
name: my
system: {name: lorenz}
data: {name: simulated, steps: 12, train: 4, val: 2, test: 2}
filter: {name: fwnkf, options: {encoder: {units: 4}}}
loss: [{kind: state}, {kind: innovation_nll}]
trainer: {steps: 2, batch_size: 2, validate_every: 2, loggers: []}
"""
EXCUSED = {
    "run by tests/test_readme.py, on a shorter flight": ["flight.csv -o report.html", "flight.csv --fix"],
    "run by tests/test_own_system.py": [
        *("use_robot", "robot.yaml", "robot-0", "options robot", "attitude", "tanks", "learned.py", "plant", "vehicle"),
    ],
    "minutes of training; short ones: tests/training, tests/cli/test_train_tables.py, test_the_commands_run below": [
        *("train lorenz", "lorenz-coloured", "train --data my_folder", "own_filter.py", "bench speed"),
        *("bench references", "--encoder"),
    ],
    "changes the shell or the home folder: tests/cli/test_habits.py": ["fwnkf completion", "fwnkf man"],
    "needs a run that was stopped: tests/training/test_resume.py": ["train --resume"],
    "needs the network or the recordings of a data set": ["data fetch", "data verify", "euroc.yaml", "pip install"],
    "needs a log of this kind: tests/cli/test_diagnose.py": ["drive.mcap", "rover.mcap"],
    "needs a flight with GNSS: tests/cli/test_navigate.py": ["navigate flight.ulg"],
    "needs a filter of positions: tests/cli/test_run.py": ["out.tum --channels"],
    "needs a live source: tests/cli/test_watch.py": ["fwnkf watch"],
    "needs a viewer: tests/cli/test_viewers.py": ["--all --rerun", "rerun flight.rrd", "plotjuggler"],
    "needs a client: tests/cli/agents/test_stdio.py": ["fwnkf mcp"],
    "needs an object store: tests/scale/test_batch.py": ["s3://"],
    "needs workers: tests/identify/test_parts.py": ["--fleet --workers"],
    "needs a Redis server: tests/scale/test_keyed_stream.py": ["keyed_stream.py"],
    "tens of seconds in compilers: tests/export": ["fwnkf export"],
    "tens of seconds: tests/diagnosis/test_fix.py": ["flight.ulg --fix"],
    "the checks of the repository, which .ci/run does": [
        *("python -m venv", "ruff", "mypy", "lint-imports", "pytest", "pre-commit", "sphinx-build", "FWNKF_CHECK"),
    ],
}
"""Why a command is not run here, and what its lines contain; the program's parser has accepted them."""


def lines() -> dict[str, str]:
    """Every line of a shell block, without its comment, and the first page that has it."""
    found: dict[str, str] = {}
    for path in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for block in [*blocks(path, "sh"), *blocks(path, "bash")]:
            for line in block.replace("\\\n", " ").splitlines():
                found.setdefault(re.sub(r"\s+#.*", "", line), path.name)
    return found


def excuse(line: str) -> str | None:
    """The reason for which a line is not run here."""
    return next((reason for reason, parts in EXCUSED.items() if any(part in line for part in parts)), None)


LINES = [line for line in lines() if line and excuse(line) is None]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Small files under the names that the pages use: logs, tables, filters, an experiment and its runs."""
    for extra in ("lightning", "mcap", "rosbags", "pyarrow", "matplotlib"):
        pytest.importorskip(extra)
    folder = tmp_path_factory.mktemp("workspace")
    short = flight(seed=3, seconds=4.0, vehicle=Vehicle(rate=250.0))
    for format, name in (("ulog", "flight.ulg"), ("mcap", "flight.mcap")):
        write_flight(folder, format, short).rename(folder / name)
    write_navigation(folder / "drone.csv")
    save_imu_filter(folder / "models" / "mine")
    fwnkf.save(fwnkf.EKF(fwnkf.systems.Lorenz(fwnkf.systems.LorenzConfig())), folder / "my-filter")
    rng = np.random.default_rng(0)
    (folder / "logs").mkdir()
    for number in range(3):
        height = np.cumsum(0.1 * np.cumsum(0.1 * rng.standard_normal(100))) + 0.3 * rng.standard_normal(100)
        np.savetxt(
            folder / "logs" / f"f{5 + number}.csv", np.column_stack((0.1 * np.arange(100), height, 100 * height)),
            delimiter=",", header="t [s],height,alt_cm", comments="",
        )  # fmt: skip
    noise = rng.standard_normal((400, 3))
    for name, header in (("scale.csv", "t,load,pressure,temperature"), ("board.csv", "t,wx,wy,wz")):
        rows = np.column_stack((0.01 * np.arange(400), noise))
        np.savetxt(folder / name, rows, delimiter=",", header=header, comments="")
    import pyarrow as pa
    import pyarrow.parquet as pq

    machine = {"ticks": 100 * np.arange(400), "load": noise[:, 0], "pressure": noise[:, 1]}
    pq.write_table(pa.table(machine), folder / "machine.parquet")
    (folder / "samples").mkdir()
    columns = dict(zip(CHANNELS, rng.standard_normal((6, 100)), strict=True))
    table = {"device": ["a"] * 50 + ["b"] * 50, "time": [*(0.01 * np.arange(50)), *(0.01 * np.arange(50))], **columns}
    pq.write_table(pa.table(table), folder / "samples" / "day.parquet")
    (folder / "my.yaml").write_text(EXPERIMENT, encoding="utf-8")
    for number in (0, 1):
        succeed(f"fwnkf train my.yaml --no-plots --no-references --seed {number} --run runs/lorenz-{number}", folder)
    (folder / "runs" / "my_folder-0").symlink_to(folder / "runs" / "lorenz-0")
    return folder


@pytest.mark.process
@pytest.mark.parametrize("line", LINES)
def test_a_command_runs_as_written(workspace, line):
    shutil.rmtree(workspace / "runs" / "my-0", ignore_errors=True)  # two lines train the same experiment
    assert succeed(line, workspace)


def test_every_excuse_is_needed():
    everything = [line for line in lines() if line]
    assert len(LINES) >= 20
    unused = [part for parts in EXCUSED.values() for part in parts if not any(part in line for line in everything)]
    assert unused == []
    named = [path for reason in EXCUSED for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason)]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_command_is_one_that_the_program_accepts(capsys):
    refused = []
    for line, page in lines().items():
        if line.startswith("fwnkf "):
            try:
                parser().parse_args(shlex.split(line.partition(" > ")[0])[1:])
            except SystemExit as stop:
                if stop.code:
                    refused.append((page, line, capsys.readouterr().err.splitlines()[-1:]))
    assert refused == []


@pytest.mark.process
@pytest.mark.parametrize("page", ["logs.md", "diagnose.md", "report.md"])
def test_python_for_a_log_runs_as_written(workspace, page, monkeypatch):
    monkeypatch.chdir(workspace)
    exec(compile("\n".join(blocks(HOWTO / page, "python")), page, "exec"), {"__name__": "page"})
    LOG_READERS._classes.pop("xlog", None)  # the format that a page registers would be known to the tests that follow


@pytest.mark.process
def test_python_for_a_fit_runs_as_written(generator):
    """Records are the reader's; here, random walks. The second block trains an encoder: tests/cli/test_fit.py."""
    system = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig(dims=1, dt=0.1))
    y = 0.1 * torch.randn(3, 60, 1, generator=generator).cumsum(1) + 0.3 * torch.randn(3, 60, 1, generator=generator)
    names = {"fwnkf": fwnkf, "system": system.double(), "y": y.double(), "dt": torch.full((3, 60), 0.1).double()}
    exec(compile(blocks(HOWTO / "fit.md", "python")[0], "fit.md", "exec"), names)
    assert names["result"].report


@pytest.mark.export
def test_the_system_of_two_functions_is_fitted_without_truth(tmp_path, monkeypatch, capsys):
    """As its last line says: the module beside tables without true states."""
    (tmp_path / "cart.py").write_text(re.findall(r"```python\n(.*?)```", OWN, re.S)[0], encoding="utf-8")
    generator = torch.Generator().manual_seed(0)
    (tmp_path / "my_folder").mkdir()
    for number in range(3):
        velocity = torch.zeros(600, dtype=torch.float64)
        for step in range(1, 600):
            velocity[step] = 0.99 * velocity[step - 1] + 0.1 * torch.randn((), generator=generator)
        gps = 0.1 * velocity.cumsum(0) + 0.2 * torch.randn(600, generator=generator)
        lines = [f"{0.1 * step:.1f},{value}" for step, value in enumerate(gps.tolist())]
        (tmp_path / "my_folder" / f"{number}.csv").write_text("\n".join(["t [s],gps", *lines]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = re.findall(r"from a shell: fwnkf (.*)", OWN)[0].split()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*command, "--time", "t", "--oscillators", "0"]) == 0
    printed = capsys.readouterr().out
    fitted = fwnkf.load(tmp_path / "my-filter")
    assert fitted.system.measurement_covariance()[0, 0].item() == pytest.approx(0.04, rel=0.2), printed
    assert "NIS" in printed


def mse(printed: str, method: str) -> float:
    """The first figure of a method in a printed table."""
    return float(re.findall(rf"^{method} +([\d.]+)", printed, re.M)[0])


@pytest.mark.slow
@pytest.mark.process
def test_the_commands_run_and_training_takes_less_than_a_minute(tmp_path):
    """As a user's shell runs them, with `fwnkf` on the path."""
    pytest.importorskip("lightning")
    pytest.importorskip("matplotlib")
    printed = [succeed(line, tmp_path) for line in re.findall(r"```sh\n(.*?)```", TRAIN, re.S)[0].splitlines()]
    run = tmp_path / "runs" / "lorenz-coloured-0"
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["cpu_seconds"] < 60
    trained, _, elsewhere = printed
    stated = [float(number) for number in re.findall(r"\b0\.\d+", TRAIN.split("```")[2])]
    methods = ("lorenz-coloured", "ekf", "oracle")
    measured = [*(mse(trained, method) for method in methods), mse(elsewhere, "lorenz-coloured")]
    assert stated[:4] == [pytest.approx(value, rel=0.02) for value in measured]
    assert "oscillators:" in printed[1]
    assert (run / "plots" / "shaper.png").is_file()
