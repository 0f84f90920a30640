"""The command line as a whole: import time, exit codes and strict JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fwnkf
from fwnkf import cli
from fwnkf.errors import DataError

SOURCE = Path(fwnkf.__file__).parent
main_module = importlib.import_module("fwnkf.cli.main")  # `fwnkf.cli.main` is the function
HEAVY = {"torch", "numpy", "rich", "yaml", "lightning", "safetensors"}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE.parent), "OMP_NUM_THREADS": "1"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter, as from a shell."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment(), timeout=120, check=False
    )


def leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not subparsers:
        return {words: parser}
    return {
        key: leaf
        for name, command in subparsers[0].choices.items()
        for key, leaf in leaves(command, (*words, name)).items()
    }


def test_every_command_has_json_and_a_function():
    commands = leaves(main_module.parser())
    assert {("list",), ("data", "list"), ("bench", "references"), ("evaluate",), ("compare",)} <= set(commands)
    for words, parser in commands.items():
        # what a server prints are messages of its protocol
        assert "--json" in parser._option_string_actions or words == ("mcp",), words
        assert callable(parser.get_default("run")), words


@pytest.mark.parametrize("words", ["--help", "evaluate --help", "bench references --help"])
def test_help_imports_no_heavy_package(words: str):
    """Checks the imported modules rather than the time, which depends on the machine."""
    code = (
        "import sys\nfrom fwnkf.cli import main\ntry:\n    main(sys.argv[1:])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "print('MODULES', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = run("-c", code, *words.split())
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(done.stdout.partition("MODULES")[2].split())


@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "diagnose missing.csv",
        "diagnose missing.csv --fail-on vibration --threshold line_ratio=5",
        "run missing.csv --filter missing -o out.csv",
        "fit missing --system constant_velocity --observe a -o out",
        "train missing.yaml",
        "train --data missing --state a --observe b",
        "evaluate missing",
        "export missing",
        "inspect missing",
        "compare missing",
        "batch --input missing --output out --filter tests",
    ],
)
def test_what_is_missing_is_said_before_anything_is_imported(words: str):
    code = (
        "import sys\nfrom fwnkf.cli import main\ncode = main(sys.argv[1:])\n"
        "print('CODE', code, 'MODULES', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = run("-c", code, *words.split())
    text, _, rest = done.stdout.partition("CODE ")
    found, _, modules = rest.partition(" MODULES")
    if words == "--version":
        assert (text, found) == (f"fwnkf {fwnkf.__version__}\n", "0")
    else:
        assert found in ("1", "2"), done.stderr
        assert "missing" in done.stderr or "not a folder" in done.stderr
    assert not HEAVY & set(modules.split())


def test_the_help_explains_exit_codes():
    done = run("-m", "fwnkf.cli", "--help")
    assert done.returncode == 0
    for line in ("0    success", "1    the command failed", "2    usage error", "130  interrupted"):
        assert line in done.stdout


def test_exit_codes_reach_the_shell(tmp_path):
    assert run("-m", "fwnkf.cli", "data", "list").returncode == 0
    failed = run("-m", "fwnkf.cli", "compare", str(tmp_path))
    assert failed.returncode == 1
    assert failed.stderr.startswith("fwnkf: ")
    assert "Traceback" not in failed.stderr
    assert run("-m", "fwnkf.cli").returncode == 2
    assert run("-m", "fwnkf.cli", "dance").returncode == 2
    assert run("-m", "fwnkf.cli", "list", "options").returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_is_130():
    code = (  # a shell that starts a background process ignores SIGINT, and Python would keep it ignored
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from fwnkf.cli import main; sys.exit(main(['bench', 'references', '--data', 'lorenz']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("lorenz, strict")  # the command is running
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "fwnkf: interrupted"


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_closed_pipe_gives_no_traceback():
    command = (
        f"'{sys.executable}' -c \"from fwnkf.cli import main; import sys; sys.exit(main(['list', 'data']))\" | true"
    )
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment(), timeout=120, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("the file is damaged"), 1, "fwnkf: the file is damaged"),
        (OSError(28, "No space left on device", "rows.json"), 1, "rows.json"),
        (KeyboardInterrupt(), 130, "fwnkf: interrupted"),
    ],
)
def test_errors_become_one_line(monkeypatch, capsys, error: BaseException, code: int, message: str):
    def fail(options):
        raise error

    monkeypatch.setattr(importlib.import_module("fwnkf.cli.listing"), "run", fail)
    assert cli.main(["list"]) == code
    assert message in capsys.readouterr().err


def test_json_is_strict_and_stored(tmp_path, capsys, monkeypatch):
    """NaN is not JSON: `hold` has no covariance, so its NEES is null."""
    from fwnkf.evaluation import baselines

    rows = [{"method": "hold", "mse": float("inf"), "nees": float("nan"), "failures": 1}]
    monkeypatch.setattr(baselines, "baselines", lambda *a, **k: iter(rows))
    path = tmp_path / "new" / "rows.json"
    assert cli.main(["bench", "references", "--data", "lorenz", "--json", "--store", str(path)]) == 1
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == [{"method": "hold", "mse": "inf", "nees": None, "failures": 1}]
    assert json.loads(path.read_text()) == printed
