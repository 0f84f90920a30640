"""What users of a command line expect of any: completion, a manual page, --quiet, NO_COLOR and the environment."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fwnkf
from fwnkf import cli
from fwnkf.cli import output
from fwnkf.cli.man import roff

from .test_main import leaves
from .test_output import COLUMNS, ROWS, Terminal

main_module = importlib.import_module("fwnkf.cli.main")
ROOT = Path(__file__).parents[2]
COLOUR = re.compile(r"\x1b\[[\d;]*(3[0-8]|4[0-8]|9[0-7])[\d;]*m")


@pytest.fixture
def flight(tmp_path: Path) -> Path:
    assert cli.main(["data", "example", str(tmp_path / "flight.csv"), "--seconds", "5"]) == 0
    return tmp_path / "flight.csv"


# ---- completion and manual page -------------------------------------------------------------------------------------


def completed(script: str, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    (folder / "complete.bash").write_text(script)
    line = " ".join(shlex.quote(word) for word in words)
    code = (
        "source ./complete.bash; function=$(complete -p fwnkf | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; "
        f"$function fwnkf {shlex.quote(words[-1])} {shlex.quote(words[-2])} 2>/dev/null; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path: Path):
    pytest.importorskip("shtab")
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "my_flight.ulg").touch()
    assert completed(script, tmp_path, "fwnkf", "dia") == ["diagnose"]
    assert completed(script, tmp_path, "fwnkf", "data", "ex") == ["example"]
    assert completed(script, tmp_path, "fwnkf", "diagnose", "--fail") == ["--fail-on"]
    assert completed(script, tmp_path, "fwnkf", "run", "--engine", "nat") == ["native"]
    assert completed(script, tmp_path, "fwnkf", "diagnose", "my_") == ["my_flight.ulg"]


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh", "powershell"])
def test_the_scripts_of_other_shells_name_every_command(capsys, shell: str):
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell, "--json"]) == 0
    script = json.loads(capsys.readouterr().out)["script"]
    assert [name for name in main_module.COMMANDS if name not in script] == []


def test_without_the_extra_completion_names_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert "fwnkf[completion]" in capsys.readouterr().err


def test_the_manual_page_has_every_option_of_every_command(capsys):
    assert cli.main(["man"]) == 0
    page = capsys.readouterr().out
    assert page.isascii()
    sections = dict(re.findall(r"^\.SS ([^\n]+)\n(.*?)(?=^\.S[SH] |\Z)", page, re.S | re.M))
    for words, parser in leaves(main_module.parser()).items():
        text = sections[roff(" ".join(("fwnkf", *words)))]
        for action in parser._actions:
            for name in action.option_strings:
                assert roff(name) in text, (words, name)
    assert "exit codes:" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_groff_reads_the_manual_page_without_a_warning(capsys):
    assert cli.main(["man"]) == 0
    page = capsys.readouterr().out
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    plain = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "--fail-on" in plain
    assert fwnkf.__version__ in plain


# ---- output ---------------------------------------------------------------------------------------------------------


def test_every_command_can_be_quiet():
    for words, parser in leaves(main_module.parser()).items():
        if words == ("mcp",):  # speaks a protocol on its standard output, and has nothing else to say
            continue
        assert {"-q", "--quiet"} <= set(parser._option_string_actions), words


@pytest.mark.parametrize("by", ["option", "environment"])
def test_quiet_leaves_progress_out_and_keeps_result_and_errors(capsys, monkeypatch, flight: Path, by: str):
    fit = ["fit", str(flight), "--system", "constant_velocity", "--set", "dims=1", "--observe", "gyro_x", "--time", "t"]
    fit += ["--oscillators", "0", "-o", str(flight.parent / "filter")]
    header = flight.read_text().splitlines()[0].split(",")
    fit[fit.index("--time") + 1] = header[0].split(" ")[0]
    capsys.readouterr()
    assert cli.main(fit) == 0
    loud = capsys.readouterr()
    assert loud.err
    if by == "environment":
        monkeypatch.setenv("FWNKF_QUIET", "1")
    quiet = ["--quiet"] if by == "option" else []
    assert cli.main([*fit, *quiet]) == 0
    still = capsys.readouterr()
    assert still.err == ""
    assert still.out.splitlines()[0] == loud.out.splitlines()[0]
    assert cli.main(["diagnose", "missing.csv", *quiet]) == 1
    assert "missing.csv" in capsys.readouterr().err
    monkeypatch.delenv("FWNKF_QUIET", raising=False)
    assert cli.main(fit) == 0  # the next command of the process is not quiet
    times = r", at most .* left"  # which depend on the machine
    assert re.sub(times, "", capsys.readouterr().err) == re.sub(times, "", loud.err)


def test_training_is_quiet_too(capsys, tmp_path: Path, monkeypatch):
    """And its run folder is below FWNKF_RUNS."""
    pytest.importorskip("lightning")
    monkeypatch.setenv("FWNKF_RUNS", str(tmp_path / "mine"))
    (tmp_path / "my.yaml").write_text(
        "name: my\nsystem: {name: lorenz}\ndata: {name: simulated, steps: 12, train: 4, val: 2, test: 2}\n"
        "filter: {name: fwnkf, options: {encoder: {units: 4}}}\nloss: [{kind: state}]\n"
        "trainer: {steps: 2, batch_size: 2, validate_every: 1, loggers: []}\n"
    )
    words = ["train", str(tmp_path / "my.yaml"), "--no-references", "--no-ladder", "--no-plots"]
    assert cli.main([*words, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "step 1/2" not in shown.err
    assert "run folder" not in shown.err
    assert "best filter" in shown.out
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["my-0"]
    assert cli.main([*words, "--run", str(tmp_path / "other")]) == 0
    loud = capsys.readouterr().err
    assert "step 1/2" in loud
    assert "run folder" in loud


def test_a_value_of_fwnkf_quiet_that_is_no_flag_is_a_usage_error(capsys, monkeypatch):
    monkeypatch.setenv("FWNKF_QUIET", "perhaps")
    assert cli.main(["list", "losses"]) == 2
    assert "FWNKF_QUIET='perhaps': wanted 1 or 0" in capsys.readouterr().err


def test_no_color_is_obeyed(monkeypatch):
    """The bar of a training has colours on a terminal, and none with NO_COLOR; so has a table."""
    pytest.importorskip("lightning")
    rich_progress = pytest.importorskip("rich.progress")
    progress = importlib.import_module("fwnkf.training.progress")

    def drawn() -> str:
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setattr("sys.stdout", screen)
        with rich_progress.Progress(console=progress.ProgressLine("run", 10).console) as bar:
            bar.update(bar.add_task("run", total=10), completed=5)
        output.say_table(argparse.Namespace(json=False), ROWS, COLUMNS, "a title")
        return screen.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert COLOUR.search(drawn())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(drawn())


# ---- environment ----------------------------------------------------------------------------------------------------


def test_every_variable_of_the_package_is_in_the_table_and_the_other_way_round():
    read = {
        name
        for path in (ROOT / "src" / "fwnkf").rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"(FWNKF_[A-Z_]+)\"", path.read_text(encoding="utf-8"))
    }
    assert len(read) >= 5
    page = (ROOT / "docs" / "howto" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(FWNKF_[A-Z_]+)` \|", page, re.M)) == read


def test_the_version_needs_no_command():
    done = subprocess.run(
        [sys.executable, "-m", "fwnkf.cli", "--version"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == f"fwnkf {fwnkf.__version__}\n"
