"""Saved filters: strict loading, and no code execution from untrusted files."""

from __future__ import annotations

import dataclasses
import json
import pickle
import resource
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fwnkf
from fwnkf.checkpoint import HEADER_LIMIT, check_writable
from fwnkf.core.system import build_system
from fwnkf.errors import MESSAGE_LIMIT, CheckpointError, ConfigError, FwnkfError, UnknownNameError
from fwnkf.registry import SYSTEMS

from . import systems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fwnkf.save(fwnkf.build("fwnkf", system=systems.pendulum(torch.float32), hidden=4), tmp_path / "saved")


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_saved_filter_is_json_and_safetensors(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    description = json.loads((folder / "config.json").read_text())
    assert description["filter"] == "fwnkf"
    assert description["system"]["name"] == "tests/pendulum"


def test_saving_an_unregistered_system_raises(tmp_path):
    class Anonymous(systems.Pendulum):
        pass

    with pytest.raises(CheckpointError, match="register_system"):
        fwnkf.save(fwnkf.build("ekf", system=Anonymous(systems.PendulumConfig())), tmp_path)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"format": 99}, CheckpointError, "format 99"),
        ({"extra": 1}, CheckpointError, "extra"),
        ({"filter": "os.system"}, UnknownNameError, "os.system"),
        ({"filter": ["fwnkf"]}, CheckpointError, "does not have the form"),
        ({"config": "rm -rf"}, CheckpointError, "does not have the form"),
        ({"config": {"hidden": "4"}}, ConfigError, "hidden = '4'"),
        ({"config": {"__class__": "x"}}, ConfigError, "__class__"),
        ({"system": {"name": "subprocess.Popen", "config": {}}}, UnknownNameError, r"subprocess\.Popen"),
        ({"system": {"name": "tests/pendulum", "config": {"mass": 1.0}}}, ConfigError, "mass"),
        ({"dtype": "object"}, CheckpointError, "dtype"),
    ],
)
def test_an_invalid_config_raises(folder, changes, error, message):
    rewrite(folder, **changes)
    with pytest.raises(error, match=message):
        fwnkf.load(folder)


def test_mismatched_tensors_raise(folder):
    path = folder / "model.safetensors"
    tensors = dict(fwnkf.load(folder).state_dict())
    for changed, message in (
        ({**tensors, "more": torch.zeros(1)}, "unexpected"),
        ({name: value for name, value in tensors.items() if name != "head_bias"}, "missing"),
        ({**tensors, "head_bias": torch.zeros(3)}, "head_bias"),
        ({**tensors, "head_bias": tensors["head_bias"].double()}, "float64"),
    ):
        save_file({name: value.contiguous() for name, value in changed.items()}, path)
        with pytest.raises(CheckpointError, match=message):
            fwnkf.load(folder)


def test_a_pickle_is_never_executed(folder, tmp_path):
    """A file that would write a marker if it were unpickled is refused, and the marker does not appear."""
    marker = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, (f"open({str(marker)!r}, 'w').close()",))

    payload = pickle.dumps(Bomb())
    for name in ("model.safetensors", "config.json"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(payload)
        with pytest.raises(CheckpointError):
            fwnkf.load(folder)
        (folder / name).write_bytes(before)
    with pytest.raises(CheckpointError):
        fwnkf.load_state(fwnkf.build("kf", state_dim=2, observation_dim=1), payload)
    assert not marker.exists()


def test_missing_large_and_deeply_nested_files_raise(folder):
    config = (folder / "config.json").read_text()
    for text in (" " * (1 << 21), "[" * 100_000, "{", '"just a string"', "\udcff".encode("utf-8", "surrogatepass")):
        (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(CheckpointError):
            fwnkf.load(folder)
    (folder / "config.json").write_text(config)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        fwnkf.load(folder)
    with pytest.raises(CheckpointError, match="does not exist"):
        fwnkf.load(folder / "nowhere")


def test_a_state_of_another_filter_raises():
    kf = fwnkf.build("kf", state_dim=2, observation_dim=1)
    other = fwnkf.build("fwnkf", state_dim=2, observation_dim=1, hidden=4)
    with pytest.raises(CheckpointError, match="'fwnkf'"):
        fwnkf.load_state(kf, fwnkf.dump_state(other, other.init(1)))
    larger = fwnkf.build("kf", state_dim=3, observation_dim=1)
    with pytest.raises(CheckpointError, match="mean"):
        fwnkf.load_state(kf, fwnkf.dump_state(larger, larger.init(1)))


def tensor_file(entries: dict[str, object], data: bytes = b"") -> bytes:
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


NOTHING = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
CRAFTED = {
    "60,000 unknown options": ({"config": {f"zz{number}": 1 for number in range(60_000)}}, None),
    "an option of a megabyte": ({"config": {"hidden": "x" * 1_000_000}}, None),
    "an unknown option of a megabyte": ({"config": {"x" * 1_000_000: 1}}, None),
    "a filter with a name of a megabyte": ({"filter": "x" * 1_000_000}, None),
    "200,000 constants to learn": (
        {"system": {"name": "linear", "config": {"state_dim": 2, "observation_dim": 1, "learn": ["Q"] * 200_000}}},
        None,
    ),
    "an integer of 5,000 digits": ('{"format": ' + "9" * 5000 + "}", None),
    "lists within lists": ("[" * 400_000, None),
    "half of a surrogate pair": ({"system": {"name": "\ud800", "config": {}}}, None),
    "200,000 empty tensors": ({}, tensor_file({f"t{number}": NOTHING for number in range(200_000)})),
    "10,000 empty tensors and as many layers": (
        {"config": {"layers": 10_000}},
        tensor_file({f"t{number}": NOTHING for number in range(10_000)}),
    ),
    "as many empty tensors as a filter may have, and a million layers": (
        {"config": {"layers": 10**6, "hidden": 1}},
        tensor_file({f"t{number}": NOTHING for number in range(1000)}),
    ),
    "a header of 8 exabytes": ({}, struct.pack("<Q", 2**63) + b"{}"),
    "no header": ({}, b"1234567"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_refusal_takes_no_time_no_memory_and_no_page(folder, name):
    """Within a second and 50 MB, with a message that a person can read."""
    config, tensors = CRAFTED[name]
    (folder / "config.json").write_text(config) if isinstance(config, str) else rewrite(folder, **config)
    if tensors is not None:
        (folder / "model.safetensors").write_bytes(tensors)
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(FwnkfError) as caught:
        fwnkf.load(folder)
    assert time.process_time() - begin < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
    assert len(str(caught.value)) <= MESSAGE_LIMIT


def test_a_filter_that_could_not_be_read_is_not_saved(tmp_path):
    model = fwnkf.build("fwnkf", system=systems.pendulum(torch.float32), hidden=1, layers=300)
    with pytest.raises(CheckpointError, match="tensors; one of more than 1,000 is not read"):
        fwnkf.save(model, tmp_path / "large")
    assert not (tmp_path / "large").exists()


@pytest.mark.parametrize("step", [0, -1, -0.1, float("nan"), float("inf"), "1", None, True, 10**400])
@pytest.mark.parametrize("where", ["system", "filter"])
def test_a_step_of_no_time_or_backwards_is_refused(folder, step, where):
    """A system from a file must not run backwards in time."""
    description = json.loads((folder / "config.json").read_text())
    config = description["system"]["config"] if where == "system" else description["config"]
    assert config["dt"] > 0
    config["dt"] = step
    rewrite(folder, **description)
    with pytest.raises((ConfigError, CheckpointError), match="dt"):
        fwnkf.load(folder)


@pytest.mark.parametrize("step", [0.0, -0.5, float("nan"), float("inf")])
def test_every_system_and_filter_refuses_such_a_step(step):
    eye = torch.eye(1)
    builds = {
        "kf": lambda: fwnkf.KF(F=eye, H=eye, Q=eye, R=eye, dt=step),
        "linear": lambda: fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye, dt=step, continuous=True),
        "functions": lambda: fwnkf.System.of(lambda x: x, lambda x: x, Q=[1.0], R=[1.0], dt=step),
        "fwnkf": lambda: fwnkf.build("fwnkf", state_dim=1, observation_dim=1, dt=step),
    }
    for name in SYSTEMS:
        if "dt" in {field.name for field in dataclasses.fields(SYSTEMS[name].Config)} and "/" not in name:
            required = {"state_dim": 1, "observation_dim": 1} if name in ("linear", "learned") else {}
            builds[f"system {name}"] = lambda name=name, required=required: build_system(name, {**required, "dt": step})
    assert len(builds) > 8
    for build in builds.values():
        with pytest.raises(ConfigError, match="dt"):
            build()


@pytest.mark.parametrize("place", ["/proc/none/here", "a_file", "a_file/below", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_known_before_the_work(place, tmp_path):
    (tmp_path / "a_file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: .*; name another folder"):
        check_writable(tmp_path / place)  # an absolute path replaces the one before


def test_the_check_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a" / "b")
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("depth", [100, 300, 900, 5000])
def test_values_within_each_other_are_refused_at_every_depth(folder, depth):
    """Below the limit of the JSON parser too, where functions of the package would call themselves as often."""
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"hidden": 4', '"hidden": ' + "[" * depth + "]" * depth))
    with pytest.raises(FwnkfError):
        fwnkf.load(folder)


@pytest.mark.parametrize("depth", [10, 200])
def test_filters_within_each_other_are_refused(folder, depth):
    description = json.loads((folder / "config.json").read_text())
    inner = {name: description[name] for name in description if name not in ("format", "dtype")}
    nested = inner
    for _ in range(depth):
        nested = {**inner, "preprocess": {"name": "filter", "config": {}, "filter": nested}}
    rewrite(folder, preprocess={"name": "filter", "config": {}, "filter": nested})
    with pytest.raises(FwnkfError):
        fwnkf.load(folder)


@pytest.mark.parametrize("size", [10**8, 20 * 10**9])
def test_a_sparse_file_buys_no_memory(folder, size):
    """A file of zeros takes no place on the disk, and must not explain a filter of its size."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    description = json.loads((folder / "config.json").read_text())
    rewrite(folder, config={**description["config"], "hidden": 20_000})
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(FwnkfError):
        fwnkf.load(folder)
    assert time.process_time() - begin < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_a_filter_that_is_too_large_to_be_read_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr("fwnkf.checkpoint.FILE_LIMIT", HEADER_LIMIT + 100)
    eye = torch.eye(8)
    with pytest.raises(CheckpointError, match="bytes of tensors; a file above"):
        fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), tmp_path / "large")
    assert not (tmp_path / "large").exists()
