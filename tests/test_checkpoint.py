"""Saved filters: strict loading, and no code execution from untrusted files."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import resource
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fwnkf
from fwnkf import GRU, MLP, Drift, Hypotheses, Level, Lines, LocallyLinear, Modes, Orders, Phi
from fwnkf.checkpoint import HEADER_LIMIT, TENSOR_LIMIT, check_writable
from fwnkf.core.system import build_system
from fwnkf.errors import MESSAGE_LIMIT, CheckpointError, ConfigError, FwnkfError, UnknownNameError
from fwnkf.filters.factory import options_of
from fwnkf.registry import SYSTEMS
from fwnkf.systems import LearnedSystem

from . import systems
from .conformance.cases import shake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fwnkf.save(fwnkf.FWNKF(systems.pendulum(torch.float32), encoder=GRU(4), phi=Phi()), tmp_path / "saved")


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_saved_filter_is_json_and_safetensors(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    description = json.loads((folder / "config.json").read_text())
    assert description["format"] == 3
    assert description["filter"] == "fwnkf"
    assert description["config"]["encoder"] == {"part": "gru", "units": 4, "layers": 1, "reads": "previous"}
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
        ({"config": {"encoder": {"units": "4"}}}, ConfigError, r"encoder\.units = '4'"),
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
    other = fwnkf.FWNKF(LearnedSystem.of(state_dim=2, observation_dim=1), encoder=GRU(4))
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
    "an option of a megabyte": ({"config": {"encoder": {"units": "x" * 1_000_000}}}, None),
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
        {"config": {"encoder": {"layers": 10_000}}},
        tensor_file({f"t{number}": NOTHING for number in range(10_000)}),
    ),
    "as many empty tensors as a filter may have, and a million layers": (
        {"config": {"encoder": {"layers": 10**6, "units": 1}}},
        tensor_file({f"t{number}": NOTHING for number in range(TENSOR_LIMIT)}),
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
    model = fwnkf.FWNKF(systems.pendulum(torch.float32), encoder=GRU(1, layers=300))
    with pytest.raises(CheckpointError, match=f"tensors; one of more than {TENSOR_LIMIT:,} is not read"):
        fwnkf.save(model, tmp_path / "large")
    assert not (tmp_path / "large").exists()


@pytest.mark.parametrize("step", [0, -1, -0.1, float("nan"), float("inf"), "1", None, True, 10**400])
@pytest.mark.parametrize("where", ["system", "filter"])
def test_a_step_of_no_time_or_backwards_is_refused(folder, step, where):
    """A system from a file must not run backwards in time."""
    if where == "filter":  # a filter that owns its system
        eye = torch.eye(1)
        fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), folder)
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
        "fwnkf": lambda: fwnkf.FWNKF(LearnedSystem.of(state_dim=1, observation_dim=1, dt=step)),
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
    (folder / "config.json").write_text(text.replace('"units": 4', '"units": ' + "[" * depth + "]" * depth))
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
    rewrite(folder, config={**description["config"], "encoder": {"units": 20_000}})
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


# ---- parts -----------------------------------------------------------------------------------------------------------


def combined() -> dict[str, fwnkf.Filter]:
    """Filters of several parts, with noise added to every parameter."""
    wave, walk = systems.wave(torch.float32), LearnedSystem.of(H=torch.eye(2, 3), dt=0.1)
    tones = Lines(hz=[1.0, 3.0], std=0.2)
    made = {
        "noise": fwnkf.FWNKF(wave, noise=[tones, Modes(2), Drift(std=0.1)], level=Level(of="each"), solve="cholesky"),
        "rotors": fwnkf.FWNKF(wave, noise=Orders(2, 3, hz=(2.0, 3.0)), encoder=GRU(4), residual=MLP(4, order=2)),
        "sensor": fwnkf.FWNKF(wave, noise={next(iter(wave.sensor_channels)): tones}, moments="second_order"),
        "bank": fwnkf.FWNKF(wave, noise=Lines(2), hypotheses=Hypotheses(2, True, (0.5, 2.0), dwell=1.0, onsets=2)),
        "paper": fwnkf.FWNKF.paper(walk, units=4),
        "jump": fwnkf.FWNKF(walk, transition=LocallyLinear(2), jump=3.0, level=Level(9.0, of="all")),
    }
    return {name: shake(model, 0.05) for name, model in made.items()}


@pytest.mark.parametrize("name", ["noise", "rotors", "sensor", "bank", "paper", "jump"])
def test_every_part_comes_back_with_its_options_and_its_tensors(name, tmp_path, generator):
    model = combined()[name]
    again = fwnkf.load(fwnkf.save(model, tmp_path))
    assert options_of(again.config, saved=True) == options_of(model.config, saved=True)
    y = torch.randn(2, 8, 2, generator=generator)
    u = torch.rand(2, 8, model.control_dim, generator=generator) if model.control_dim else None
    assert torch.equal(again.run(y, u).mean, model.run(y, u).mean)
    assert torch.equal(again.run(y, u).cov, model.run(y, u).cov)


LINES = {"part": "lines"}
WRONG_PARTS = {
    "an unknown part": (
        {"noise": [{"part": "os.system"}]},
        r"noise\[0\] is of part 'os.system'; wanted part: drift, li",
    ),
    "a part that is no text": ({"noise": [{"part": ["lines"]}]}, r"noise\[0\] is of part \['lines'\]"),
    "a part of another kind": ({"encoder": {"part": "mlp", "width": 4}}, "encoder is of part 'mlp'; wanted part: gru"),
    "a level as noise": ({"noise": [LINES, {"part": "level"}]}, r"noise\[1\] is of part 'level'"),
    "noise without a name": ({"noise": [{"count": 2}]}, r"noise\[0\] is of part None"),
    "noise that is no list": ({"noise": LINES}, "noise = .* does not fit; wanted a list of mappings with part: drift"),
    "noise that is a number": ({"noise": [3]}, r"noise = \[3\] does not fit"),
    "an unknown option": ({"level": {"second": 1.0}}, r"no option 'level.second'.*did you mean level.seconds\?"),
    "NaN": ({"level": {"seconds": float("nan")}}, "level.seconds = nan is no finite number"),
    "NaN in a list": ({"noise": [{**LINES, "hz": [1.0, float("nan")]}]}, r"noise\[0\].hz = .* is no finite number"),
    "infinity": ({"noise": [{"part": "drift", "std": float("inf")}]}, r"noise\[0\].std = inf is no finite number"),
    "a pole outside": ({"phi": {"pole_radius": 1.5}}, "option phi: phi: pole_radius = 1.5 must lie strictly between"),
    "a mapping for numbers": ({"noise": [{**LINES, "hz": {"a": 1}}]}, r"option noise\[0\]: .* wanted a number"),
    "rows of two lengths": (
        {"noise": [{**LINES, "hz": [[1.0], [1.0, 2.0]]}]},
        r"option noise\[0\]: .* wanted a number",
    ),
    "parts that exclude each other": ({"phi": {}, "noise": [LINES]}, "phi and noise both model coloured noise"),
    "an unknown sensor": ({"noise": [{**LINES, "sensor": "radar"}]}, "noise of sensor 'radar'; the system has: "),
}


@pytest.mark.parametrize("name", WRONG_PARTS)
def test_a_wrong_part_is_refused_with_file_and_field(folder, name):
    config, message = WRONG_PARTS[name]
    rewrite(folder, config=config)
    with pytest.raises((ConfigError, CheckpointError), match=message) as caught:
        fwnkf.load(folder)
    assert str(caught.value).startswith(f"{folder / 'config.json'}: ")


HUGE_PARTS = {
    "encoder": {"encoder": {"units": 10**9}},
    "residual": {"residual": {"width": 10**9}},
    "transition": {"transition": {"rank": 10**9}},
    "phi": {"phi": {"sections": 10**9}},
    "lines": {"noise": [{**LINES, "count": 10**9}]},
    "modes": {"noise": [{"part": "modes", "count": 10**9}]},
    "rotors": {"noise": [{"part": "orders", "rotors": 10**9}]},
    "orders": {"noise": [{"part": "orders", "orders": 10**9}]},
    "frequencies": {"noise": [LINES], "hypotheses": {"frequencies": 10**9}},
    "parts": {"noise": [LINES] * 10_000},
    "given lines": {"noise": [{**LINES, "hz": [1.0] * 100_000}]},
}


@pytest.mark.parametrize("name", HUGE_PARTS)
def test_a_part_is_no_larger_than_the_tensors_explain(folder, name):
    rewrite(folder, config=HUGE_PARTS[name])
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(FwnkfError, match=r"config\.json"):
        fwnkf.load(folder)
    assert time.process_time() - begin < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


# ---- formats 1 and 2 -------------------------------------------------------------------------------------------------

PENDULUM = {"name": "tests/pendulum", "config": {"length": 0.8, "damping": 0.1, "correlation": 0.0, "dt": 0.02}}
EKF = {"moments": "linear", "solve": "auto"}
KF = {
    **{"state_dim": 2, "observation_dim": 2, "control_dim": 1, "learn": [], "continuous": False, "dt": 0.02},
    **{"diagonal_noise": True, "layout": [], "channels": [], "observation_origin": [], "solve": "auto"},
}
FWNKF = {
    **{"state_dim": 2, "observation_dim": 2, "control_dim": 1, "dt": 0.02, "transition": "residual"},
    **{"layout": [["theta", "angle", 1], ["omega", "euclidean", 1]], "gate": "low_rank", "rank": 1},
    **{"residual_width": 3, "residual_order": 2, "moments": "linear", "observation": "given_function"},
    **{"observation_width": 64, "shaping": "noise", "sections": 2, "modes": 0, "shared_shaper": True},
    **{"pole_radius": 0.99, "covariance": "joseph", "gain": "kalman", "encoder_reads": "previous", "hidden": 4},
    **{"layers": 1, "adapt": 6.0, "diagonal_noise": True, "diagonal_process": False, "solve": "auto", "jump": 0.0},
    **{"track_level": "common", "level_memory": 3.0},
}
"""Options as version 0.2 wrote them."""


def write_old(folder: Path, version: int, filter: str, config: dict, system: dict | None, tensors: dict) -> Path:
    """A filter as versions before 0.3 wrote it; format 1 had no preprocessing and no factors of the covariance."""
    description = {"format": version, "dtype": "float32", "filter": filter, "config": config, "system": system}
    if version == 2:
        description |= {"preprocess": None, "covariance_scale": False}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(description))
    save_file(
        {name: value.detach().clone().contiguous() for name, value in tensors.items()}, folder / "model.safetensors"
    )
    return folder


def old_filters() -> dict[str, tuple[fwnkf.Filter, dict, dict | None, dict]]:
    """A filter of today, and its options, system and tensors by the names of version 0.2."""
    pendulum = systems.pendulum(torch.float32)
    eye = torch.eye(2)
    kf = fwnkf.KF(F=0.9 * eye, B=torch.ones(2, 1), H=eye, Q=eye, R=2 * eye, dt=0.02)
    parts = {"noise": Lines(2, shared=True, pole_radius=0.99), "level": Level(seconds=3.0), "encoder": GRU(4)}
    full = shake(fwnkf.FWNKF(pendulum, residual=MLP(3, order=2), **parts), 0.1)
    renamed = {
        f"transition.network.{name.removeprefix('residual.')}" if name.startswith("residual.") else name: value
        for name, value in full.state_dict().items()
    }
    ekf = fwnkf.EKF(pendulum)
    return {
        "ekf": (ekf, EKF, PENDULUM, ekf.state_dict()),
        "kf": (kf, KF, None, kf.state_dict()),
        "fwnkf": (full, FWNKF, PENDULUM, renamed),
    }


@pytest.mark.parametrize("name", ["ekf", "kf", "fwnkf"])
@pytest.mark.parametrize("version", [1, 2])
def test_filters_of_older_formats_are_read(name, version, tmp_path, generator):
    model, config, system, tensors = old_filters()[name]
    again = fwnkf.load(write_old(tmp_path / "old", version, name, config, system, tensors))
    assert options_of(again.config, saved=True) == options_of(model.config, saved=True)
    y, u = torch.randn(2, 9, 2, generator=generator), torch.randn(2, 9, 1, generator=generator)
    assert torch.equal(again.run(y, u).mean, model.run(y, u).mean)
    assert torch.equal(again.run(y, u).cov, model.run(y, u).cov)
    written = json.loads((fwnkf.save(again, tmp_path / "new") / "config.json").read_text())
    assert written["format"] == 3


OLD_FAULTS = {
    "an option it never had": ({"wings": 2}, "no option wings"),
    "a way of shaping": ({"shaping": "os.system"}, "shaping = 'os.system'; wanted one of none, innovation, noise"),
    "a level that is no name": ({"track_level": ["x"]}, "track_level = "),
    "an option that was removed": ({"adapt": 3.0}, "adapt = 3.0 was removed"),
    "a size that is a text": ({"hidden": "x"}, "encoder.units = 'x'"),
    "a half-life that is a text": ({"half_life": "x"}, "not those of fwnkf 0.2"),
    "a half-life beyond all numbers": ({"half_life": 10**400}, "not those of fwnkf 0.2"),
    "a billion units": ({"hidden": 10**9}, "does not belong to model.safetensors"),
    "tensors of another filter": ({"sections": 3}, "raw_frequency is float32"),
}


@pytest.mark.parametrize("name", OLD_FAULTS)
def test_faults_of_older_files_are_told_with_the_file(name, tmp_path):
    change, message = OLD_FAULTS[name]
    _, config, system, tensors = old_filters()["fwnkf"]
    with pytest.raises(FwnkfError, match=message) as caught:
        fwnkf.load(write_old(tmp_path / "old", 2, "fwnkf", {**config, **change}, system, tensors))
    assert str(tmp_path / "old") in str(caught.value)


def test_an_older_filter_without_equations_gets_a_system(tmp_path, generator):
    walk = LearnedSystem.of(H=torch.eye(1, 2), Q=2 * torch.eye(2), R=3 * torch.eye(1), dt=0.1)
    model = shake(fwnkf.FWNKF(walk, encoder=GRU(4), transition=LocallyLinear(1), phi=Phi(2)), 0.1)
    names = {"system.Q.": "base_Q.", "system.R.": "base_R.", "system.observation.": "observation."}
    tensors = {}
    for name, value in model.state_dict().items():
        prefix = next((prefix for prefix in names if name.startswith(prefix)), "")
        tensors[names.get(prefix, "") + name.removeprefix(prefix)] = value
    config = {"state_dim": 2, "observation_dim": 1, "dt": 0.1, "hidden": 4, "sections": 2}
    again = fwnkf.load(write_old(tmp_path / "old", 2, "fwnkf", config, None, tensors))
    y = torch.randn(1, 9, 1, generator=generator)
    assert torch.equal(again.run(y).cov, model.run(y).cov)


def test_rotor_lines_levels_and_banks_of_older_formats_are_parts(tmp_path, generator):
    wave = {"name": "tests/wave", "config": {"correlation": 0.0, "dt": 0.1}}
    y = torch.randn(1, 9, 2, generator=generator)

    def same(name: str, config: dict, model: fwnkf.Filter, tensors: dict) -> None:
        again = fwnkf.load(write_old(tmp_path / name, 2, name, config, wave, tensors))
        u = torch.rand(1, 9, model.control_dim, generator=generator)
        assert options_of(again.config, saved=True) == options_of(model.config, saved=True)
        assert torch.equal(again.run(y, u).cov, model.run(y, u).cov)

    system = systems.wave(torch.float32)
    rotors = fwnkf.FWNKF(system, noise=Orders(2, hz=(3.0,)), level=Level(0.5, of="noise"))
    rotors.noise_states.set(std=0.2)
    tensors = {name.removeprefix("noise_states."): value for name, value in rotors.state_dict().items()}
    del tensors["head_bias"]
    same("order_tracking", {"rotors": 2, "hz": [3.0], "level": "noise", "level_time": 0.5}, rotors, tensors)

    sizes = {"state_dim": 3, "observation_dim": 2, "control_dim": 1, "dt": 0.1, "transition": "residual"}
    plain = {**sizes, "hidden": 0, "residual_width": 0, "shaping": "noise"}
    lines = Lines(1, shared=True, pole_radius=0.999)
    seconds = 20.0 * 0.1 / math.log(2)  # the level halves in twenty steps
    adaptive = fwnkf.FWNKF(system, noise=lines, level=Level(seconds, of="all"))
    same("fwnkf_adaptive", {**plain, "half_life": 20.0}, adaptive, adaptive.state_dict())

    bank = fwnkf.FWNKF(system, noise=lines, hypotheses=Hypotheses(3, fallback=True, dwell=1.0))
    same("fwnkf_hypotheses", {**plain, "hypotheses": 3, "fallback": True, "dwell": 1.0}, bank, bank.state_dict())
