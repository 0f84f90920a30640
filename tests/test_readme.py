"""The README's code runs as written and shows what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.export  # two thousand steps through the shape checker would take minutes
def test_readme_code_runs_and_shows_the_gain(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), str(README), "exec"), {})
    rows = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    error, stated = ({k: float(v.split()[i]) for k, v in rows.items()} for i in (2, 4))
    assert error["fwnkf"] < 0.75 * error["kf"]
    assert error["kf"] > 1.2 * stated["kf"]  # the white filter is too sure of itself
    assert error["fwnkf"] < stated["fwnkf"]  # a pure tone is easier than the cycle the filter was told of
    assert (tmp_path / "my-filter" / "model.safetensors").exists()
