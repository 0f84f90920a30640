"""Formats of other packages: tiny distributions on the path, of which one reads, one is broken and one takes a name."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fwnkf.cli.main import main
from fwnkf.errors import DataError
from fwnkf.logs import LOG_READERS, Log, open_log
from fwnkf.logs.open import BUILT_IN, formats, log_suffixes

READER = '''
"""Logs of lines "seconds gyro_x gyro_y gyro_z" behind the line XLOG."""
import numpy as np
from fwnkf.errors import DataError
from fwnkf.logs import Log, Source, Stream, Topic

NAMES = ("gyro_x", "gyro_y", "gyro_z")


class XLog(Log):
    magic, suffixes = (b"XLOG",), (".xlog",)
    format = "X"

    def __init__(self, path):
        self.path, self.parameters = path, {}
        lines = path.read_text().splitlines()[1:]
        if lines and lines[0] == "bug":
            raise KeyError("rate")
        try:
            self._values = np.array([[float(word) for word in line.split()] for line in lines])
        except ValueError as error:
            raise DataError(f"{path}: {error}") from error
        self.topics = {"gyro": Topic("gyro", "gyro", NAMES, len(self._values))}

    def read(self, topic, fields=None):
        columns = {name: self._values[:, NAMES.index(name) + 1] for name in fields or NAMES}
        return Stream(topic, self._values[:, 0], columns)

    def blocks(self, wanted, samples=1 << 16):
        yield {topic: self.read(topic, fields) for topic, fields in wanted.items()}

    def sources(self):
        return (Source("gyro", "gyro", "gyro", {name: (name, 1.0) for name in NAMES}),)
'''


def install(folder: Path, name: str, entry: str, code: str) -> None:
    """A distribution as pip leaves it: a module, and its metadata."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[fwnkf.log_readers]\n{entry}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in LOG_READERS._classes.keys() - BUILT_IN:
        del LOG_READERS._classes[name]
    for name in ("xlog_reader", "broken_reader", "greedy_reader"):
        sys.modules.pop(name, None)


def write_log(path: Path) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = np.column_stack((np.arange(400) / 200, rng.normal(size=(400, 3))))
    path.write_text("XLOG\n" + "\n".join(" ".join(f"{x:.9g}" for x in row) for row in values))
    return values


def test_a_log_of_an_installed_package_is_opened_by_first_bytes_or_suffix(packages: Path, tmp_path: Path, capsys):
    values = write_log(tmp_path / "flight.dat")
    with pytest.raises(DataError, match="not a log of a known format"):
        open_log(tmp_path / "flight.dat")
    install(packages, "xlog_reader", "xlog = xlog_reader:XLog", READER)
    log = open_log(tmp_path / "flight.dat")
    assert isinstance(log, Log)
    assert log.format == "X"
    np.testing.assert_allclose(log.signal("gyro").columns["gyro_y"], values[:, 2], rtol=1e-8)
    (tmp_path / "flight.xlog").write_text("no first bytes\n0.0 1 2 3\n")
    assert open_log(tmp_path / "flight.xlog").topics["gyro"].count == 1
    assert ("xlog", (".xlog",), "xlog_reader 1.2") in formats()
    assert log_suffixes([".xlog", ".txt"]) == {".xlog"}
    assert main(["diagnose", str(tmp_path / "flight.dat"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "X"


def test_readers_of_this_package_come_first_and_import_no_other(packages: Path, tmp_path: Path):
    install(packages, "greedy_reader", "greedy = greedy_reader:XLog", READER.replace(".xlog", ".csv"))
    path = tmp_path / "run.csv"
    path.write_text("t [s],gyro_x [rad/s]\n0.0,1\n0.1,2\n")
    assert open_log(path).format == "CSV"
    assert "greedy_reader" not in sys.modules


@pytest.mark.parametrize(
    ("entry", "code", "fault"),
    [
        (
            "broken = broken_reader:XLog",
            "import no_such_module",
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("broken = broken_reader:Other", READER, "has no attribute 'Other'"),
        ("broken = broken_reader:NAMES", READER, "is no subclass of fwnkf.logs.Log with magic or suffixes"),
        ("ulog = broken_reader:XLog", READER, "'ulog' is registered twice"),
    ],
)
def test_a_broken_package_is_named(packages: Path, tmp_path: Path, entry: str, code: str, fault: str):
    install(packages, "broken_reader", entry, code)
    write_log(tmp_path / "flight.dat")
    with pytest.raises(DataError) as caught:
        open_log(tmp_path / "flight.dat")
    assert "the package broken_reader 1.2 is installed to read" in str(caught.value)
    assert fault in str(caught.value)
    install(packages, "xlog_reader", "xlog = xlog_reader:XLog", READER)  # and does not stop another
    assert open_log(tmp_path / "flight.dat").format == "X"


def test_a_reader_that_fails_is_named_and_its_own_errors_pass(packages: Path, tmp_path: Path):
    install(packages, "xlog_reader", "xlog = xlog_reader:XLog", READER)
    path = tmp_path / "flight.xlog"
    path.write_text("XLOG\nbug\n")
    with pytest.raises(DataError, match=r"package xlog_reader 1\.2 failed: KeyError: 'rate'"):
        open_log(path)
    path.write_text("XLOG\n0.0 one\n")
    with pytest.raises(DataError, match=r"^\S*flight.xlog: could not convert"):
        open_log(path)


def test_a_reader_of_a_module_of_the_user_is_known_once_it_is_registered(packages: Path, tmp_path: Path):
    namespace: dict[str, object] = {}
    exec(READER, namespace)
    LOG_READERS.register("mine")(namespace["XLog"])
    write_log(tmp_path / "flight.dat")
    assert open_log(tmp_path / "flight.dat").format == "X"
