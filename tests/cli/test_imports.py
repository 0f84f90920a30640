"""What a command imports: no benchmark, no data set and no other command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import sys
from fwnkf.cli.main import main
assert main(sys.argv[1:]) == 0
print("MODULES", *(name for name in sys.modules if name.split(".")[0] == "fwnkf"))
"""


def modules_of(*words: str) -> set[str]:
    result = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.rpartition("MODULES ")[2].split())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imports") / "walk.csv"
    rng = np.random.default_rng(0)
    time = np.arange(300) / 100
    values = np.column_stack((time, 0.05 * rng.normal(size=(300, 3)).cumsum(0) + 0.1 * rng.normal(size=(300, 3))))
    header = "t [s],gyro_x [rad/s],gyro_y [rad/s],gyro_z [rad/s]"
    np.savetxt(path, values, delimiter=",", header=header, comments="")
    return path


def test_a_fit_of_a_table_imports_no_benchmark(table: Path, tmp_path: Path):
    words = (
        "--system",
        "constant_velocity",
        "--set",
        "dims=1",
        "--observe",
        "gyro_x",
        "--time",
        "t",
        "--oscillators",
        "0",
    )
    found = modules_of("fit", str(table), *words, "-o", str(tmp_path / "filter"))
    unwanted = re.compile(
        r"fwnkf\.(systems\.(lorenz|pendulum|noise)|data\.(sets|simulate|protocols|flights)|training|evaluation|scale|diagnosis)"
    )
    assert sorted(name for name in found if unwanted.match(name)) == []
    assert {name for name in found if name.startswith("fwnkf.cli.")} == {
        "fwnkf.cli.columns",
        "fwnkf.cli.environment",
        "fwnkf.cli.main",
        "fwnkf.cli.fit",
        "fwnkf.cli.output",
    }


def test_a_diagnosis_imports_neither_fits_nor_data_sets(table: Path):
    found = modules_of("diagnose", str(table), "--json")
    unwanted = re.compile(
        r"fwnkf\.(systems|data|training|evaluation|scale|checkpoint|export|identify\.(fitting|modes))"
    )
    assert sorted(name for name in found if unwanted.match(name)) == []
