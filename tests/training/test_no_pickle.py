"""The package never unpickles: not checkpoints, not the state of a run, not recordings."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.errors import CheckpointError, FwnkfError
from fwnkf.training.resume import read_state

SOURCE = Path(fwnkf.__file__).parent
FORBIDDEN = re.compile(
    r"^\s*(import|from)\s+(pickle|_pickle|cPickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|torch\.load\((?!.*weights_only=True)|torch\.save\(|allow_pickle\s*=\s*True|pickle\.loads?\(|yaml\.(unsafe_load|full_load|load_all)\("
    r"|weights_only\s*=\s*False",
    re.MULTILINE,
)


def test_no_source_file_unpickles_or_executes():
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        match = FORBIDDEN.search(text)
        assert match is None, f"{path.relative_to(SOURCE)}: {match.group(0)!r}"
        calls = {
            n.func.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        assert not calls & {"eval", "exec", "compile", "__import__"}, path


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("form", ["pickle", "torch", "torch legacy"])
def test_a_crafted_pickle_is_refused_without_being_executed(tmp_path, form):
    trap = tmp_path / "sprung"
    folder = fwnkf.save(
        fwnkf.build("kf", F=torch.eye(2), H=torch.eye(2), Q=torch.eye(2), R=torch.eye(2)), tmp_path / "kf"
    )
    state = tmp_path / "state.safetensors"
    for path in (folder / "model.safetensors", state):
        if form == "pickle":
            path.write_bytes(pickle.dumps(Bomb(trap)))
        else:
            torch.save(Bomb(trap), path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(CheckpointError):
        fwnkf.load(folder)
    with pytest.raises(CheckpointError):
        read_state(state)
    assert not trap.exists()
    # the trap works: unpickling the file executes it
    pickle.loads(pickle.dumps(Bomb(trap)))
    assert trap.exists()


@pytest.mark.parametrize(
    "config",
    [
        '{"format": 1, "filter": "os.system"}',
        "!!python/object/apply:os.system [touch x]",
        '{"__reduce__": "os"}',
        "[" * 10_000,
    ],
)
def test_a_crafted_config_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(FwnkfError):
        fwnkf.load(tmp_path)
