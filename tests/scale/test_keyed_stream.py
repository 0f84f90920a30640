"""The consumer of the how-to guide survives kill -9 at any moment: no update lost, none made twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "howto" / "keyed_stream.py"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server"),
]


def kill(devices: int, messages: int, kills: int) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("redis")
    words = [sys.executable, str(SCRIPT), "kill", "--devices", str(devices), "--messages", str(messages)]
    return subprocess.run([*words, "--kills", str(kills)], capture_output=True, text=True, check=False, cwd=ROOT)


def test_three_kills_leave_the_states_of_a_run_without_kills():
    result = kill(devices=10, messages=600, kills=3)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "'kills': 3, 'same_states': True" in result.stdout


@pytest.mark.slow
def test_fifty_kills_over_100_000_messages():
    result = kill(devices=1000, messages=100_000, kills=50)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "'kills': 50, 'same_states': True" in result.stdout
