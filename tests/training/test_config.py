"""Invalid experiments fail before any data are loaded, with one line for each fault."""

from __future__ import annotations

import copy
import json
import resource
import time

import pytest

from fwnkf.data import loaders, protocols, simulated
from fwnkf.errors import MESSAGE_LIMIT, ConfigError
from fwnkf.training import setup
from fwnkf.training.config import Experiment
from fwnkf.training.experiments import parse_experiment, parse_yaml, read_experiment, shipped

GOOD = {
    "name": "good",
    "data": {"name": "lorenz"},
    "filter": {
        "name": "fwnkf",
        "equations": False,
        "options": {"encoder": {"units": 8}, "transition": {"rank": 1}, "phi": {}},
    },
    "loss": [{"kind": "state"}],
}
TABLES = {"name": "tables", "folder": "somewhere", "state": ["a", "b"], "observe": ["c"], "time": "t"}

FAULTS = {
    # unknown names
    "unknown section": (["optimiser.name=adam"], "no option 'optimiser'; .*did you mean optimizer"),
    "unknown field": (["optimizer.lr=1e-3"], "no option 'optimizer.lr'; there are: .*learning_rate"),
    "misspelt field": (["trainer.batchsize=3"], "no option 'trainer.batchsize'.*did you mean trainer.batch_size"),
    "unknown data": (
        ["data.name=lorentz"],
        "data.name = 'lorentz': unknown data; choose one of: .*did you mean lorenz",
    ),
    "unknown system": (["system={name: penduulum}"], "system.name = 'penduulum': unknown system; .*mean pendulum"),
    "system of a module": (
        ["system={name: my_robot}"],
        "system.name = 'my_robot': unknown system; .*--import MODULE",
    ),
    "system without a name": (["system={length: 1}"], "system.name is missing; choose one of: "),
    "system of a wrong type": (["system=pendulum"], "option system = 'pendulum' does not fit"),
    "option of a system": (
        ["data={name: simulated}", "system={name: pendulum, lenght: 1}"],
        "no option 'system.lenght'; .*did you mean system.length",
    ),
    "value of a system": (
        ["system={name: pendulum, length: long}"],
        "system.length = 'long' does not fit",
    ),
    "system beside equations": (["system={name: pendulum}"], "data 'lorenz' has equations of its own"),
    "simulated without a system": (["data.name=simulated"], "data.name = 'simulated' needs a system: add"),
    "option of simulated data": (
        ["data={name: simulated, stpes: 3}", "system={name: pendulum}"],
        "no option 'data.stpes'; there are: .*did you mean data.steps",
    ),
    "value of simulated data": (
        ["data={name: simulated, steps: few}", "system={name: pendulum}"],
        "option data.steps = 'few' does not fit; wanted int",
    ),
    "columns for simulated data": (
        ["data={name: simulated, observe: [a]}", "system={name: pendulum}"],
        "no option 'data.observe'; there are: scenario, ",
    ),
    "columns of a system": (
        [f"data={json.dumps(TABLES)}", "system={name: pendulum}"],
        r"data.observe = \['c'\]: the system needs 2 column\(s\), here are 1\n.*data.control = \[\]: .* 1 column",
    ),
    "angles beside a system": (
        [f"data={json.dumps(TABLES)}", "data.angles=[a]", "system={name: pendulum}"],
        "the system says which states are angles",
    ),
    "import of a number": (["import=3"], "import is not read, because a file must not run code.*: --import MODULE$"),
    "import of a module": (["import=[robot, a/plant.py]"], "command line: --import robot --import a/plant.py$"),
    "unknown filter": (["filter.name=fwnk"], "filter.name = 'fwnk': unknown filter; .*did you mean fwnkf"),
    "unknown option": (["filter.options.encodr={}"], "no option 'encodr'; .*did you mean encoder"),
    "unknown option of a part": (
        ["filter.options.encoder.unit=3"],
        "no option 'encoder.unit'; .*did you mean encoder.units",
    ),
    "unknown part": (
        ["filter.options.noise={part: line}", "filter.options.phi=null"],
        r"option noise\[0\] is of part 'line'; wanted part: drift, lines, modes, orders",
    ),
    "part of another kind": (
        ["filter.options.encoder={part: lines}"],
        "option encoder is of part 'lines'; wanted .*gru",
    ),
    "number for a part": (["filter.options.encoder=64"], "option encoder = 64 does not fit; wanted options of its own"),
    "number for noise": (
        ["filter.options.noise=3"],
        "noise = 3: wanted a part by its name",
    ),
    "unknown loss": (["loss.0.kind=states"], "loss.0.kind = 'states': unknown loss; choose one of: anchor, "),
    "unknown loss field": (["loss.0.lambda=1"], "no option 'loss.0.lambda'; there are: weight"),
    "unknown schedule": (
        ["optimizer.schedule=linear"],
        r"optimizer.schedule = 'linear' does not fit; wanted \('one_cycle'",
    ),
    "unknown scenario": (["data.scenario=hum"], r"data.scenario = 'hum' does not fit"),
    "unknown protocol": (
        ["data.protocol=loose"],
        r"data.protocol = 'loose' does not fit; wanted \('paper', 'strict'\)",
    ),
    "unknown monitor": (["trainer.monitor=mse"], r"trainer.monitor = 'mse' does not fit; wanted \('val_mse'"),
    "unknown choice": (["filter.options.phi.gain=all"], r"option phi.gain = 'all' does not fit; wanted \('kalman', "),
    # wrong types
    "word for a number": (["optimizer.learning_rate=fast"], "optimizer.learning_rate = 'fast' does not fit; .*float"),
    "number for a word": (["name=3"], "option name = 3 does not fit; wanted .*str"),
    "float for an integer": (["trainer.steps=1.5"], "trainer.steps = 1.5 does not fit; .*int"),
    "truth for a number": (["trainer.steps=true"], "trainer.steps = True does not fit"),
    "number for truth": (["trainer.compile=1"], "trainer.compile = 1 does not fit; .*bool"),
    "null for a number": (["trainer.batch_size=null"], "trainer.batch_size = None does not fit"),
    "list for a section": (["trainer=[1, 2]"], r"trainer = \(1, 2\) does not fit; wanted options of its own: steps, "),
    "word for a list": (
        ["trainer.loggers=tensorboard"],
        "trainer.loggers = 'tensorboard' does not fit; wanted a list of str",
    ),
    "word for a term": (["loss=[state]"], "loss.0 = 'state' must be a mapping with kind"),
    "word for options": (["filter.options=big"], "filter.options = 'big' does not fit"),
    "word for a weight": (["loss.0.weight=high"], "loss.0.weight = 'high' does not fit"),
    # values out of range
    "no steps": (["trainer.steps=0"], "trainer.steps = 0 is below 1"),
    "negative rate": (["optimizer.learning_rate=-1e-3"], "optimizer.learning_rate = -0.001 must be above 0"),
    "no rate": (["optimizer.learning_rate=0"], "optimizer.learning_rate = 0 must be above 0"),
    "infinite rate": (["optimizer.learning_rate=.inf"], "optimizer.learning_rate = inf is no finite number"),
    "long warmup": (["optimizer.warmup=2"], "optimizer.warmup = 2 is above 0.9"),
    "negative weight": (["loss.0.weight=-1"], "loss.0.weight = -1 is below 0"),
    "negative seed": (["seed=-1"], "seed = -1 is below 0"),
    "no records": (["data.train=0"], "data.train = 0 is below 1"),
    "band beyond Nyquist": (["loss=[{kind: spectral, band: [0, 4]}]"], r"loss.0.band = \[0, 4\] is above 3.14"),
    "pole on the unit circle": (
        ["filter.options.phi.pole_radius=1.0"],
        "pole_radius = 1.0 must lie strictly between 0 and 1",
    ),
    "unknown logger": (
        ["trainer.loggers=[tensorbord]"],
        "trainer.loggers: unknown logger 'tensorbord'; choose one of",
    ),
    "path as a name": (["name=a/../b"], "name = 'a/../b' is not a valid name"),
    "huge seed": (["seed=99999999999999999999"], "seed = 9+ does not fit"),
    "monitor that is not defined": (
        ["filter.name=rkn", "filter.options={}", "trainer.monitor=val_innovation_nll"],
        "filter 'rkn' has no measurement innovations",
    ),
    "pretraining with equations": (
        ["filter.equations=true", "filter.options={}", "trainer.pretrain=5"],
        "trainer.pretrain = 5: filter 'fwnkf' has no learned transition to pretrain",
    ),
    "a spectrum without noise states": (
        ["filter.noise_from_spectrum=true"],
        "filter.noise_from_spectrum = true needs lines; set filter.options.noise: {part: lines}",
    ),
    "rate for an unknown parameter": (
        ["optimizer.rates={none: 0.1}"],
        "no parameter name starts with 'none'; modules: enc",
    ),
    "negative rate factor": (
        ["optimizer.rates={encoder: -1}"],
        "optimizer.rates.encoder = -1 must be a number of at least",
    ),
    "a matrix as option": (
        ["filter.name=kf", "filter.options={H: [[1]]}"],
        "H cannot be set in filter.options",
    ),
    "a matrix on angles": (
        ["data.name=pendulum", "filter.learned_system={observation: given_matrix}"],
        "observation = 'given_matrix' needs a Euclidean state",
    ),
    "zero clip": (["optimizer.clip=0"], "optimizer.clip = 0 must be above 0"),
    # combinations that are not supported
    "no weight above zero": (["loss.0.weight=0"], "loss needs a term with a weight above 0"),
    "innovations of a latent space": (
        ["filter.name=rkn", "filter.options={}", "loss=[{kind: innovation_nll}]"],
        "innovation_nll needs innovations of the measurements, but those of filter 'rkn' are of its latent space",
    ),
    "rkn with equations": (
        ["filter.name=rkn", "filter.options={}", "filter.equations=true"],
        "filter 'rkn' does not use equations of motion; set filter.equations: false",
    ),
    "a learned system for a filter with equations": (
        ["filter.name=kalmannet", "filter.options={}", "filter.equations=true", "filter.learned_system={width: 8}"],
        "filter.learned_system = {'width': 8} has no effect: filter.equations = true",
    ),
    "a learned system for a filter that takes none": (
        ["filter.name=rkn", "filter.options={}", "filter.learned_system={width: 8}"],
        "has no effect: filter 'rkn' takes no system",
    ),
    "an unknown option of the learned system": (
        ["filter.name=kalmannet", "filter.options={}", "filter.learned_system={hidden: 8}"],
        "filter.learned_system: no option 'hidden'; there are: .*width, order",
    ),
    "a size of the learned system": (
        ["filter.name=ekf", "filter.options={}", "filter.learned_system={state_dim: 3}"],
        "state_dim cannot be set in filter.learned_system: the data determine it",
    ),
    "pretraining without a learned transition": (
        ["filter.name=rkn", "filter.options={}", "trainer.pretrain=5"],
        "trainer.pretrain = 5: filter 'rkn' has no learned transition to pretrain",
    ),
    "two models of coloured noise": (
        ["filter.options.phi.covariance=augmented", "filter.options.noise={part: lines}"],
        "phi and noise both model coloured noise",
    ),
    "a gain without its covariance": (["filter.options.phi.gain=shaped"], "gain='shaped' needs the exact covariance"),
    "no trainable parameters": (
        ["filter.name=ekf", "filter.options={}", "filter.equations=true"],
        "filter.name = 'ekf' with these options has no trainable parameters",
    ),
    "wrong number of scales": (["loss.0.scales=[1, 2]"], "2 scales for a state with 3 tangent coordinates"),
    "decreasing band": (["loss=[{kind: spectral, band: [2, 1]}]"], r"band = \[2, 1\] must be two increasing"),
    "truncation within chunks": (
        ["trainer.truncate=50", "trainer.chunk=20"],
        "trainer.truncate = 50 has no effect within chunks of 20",
    ),
    "batch over devices": (
        ["trainer.devices=3", "trainer.batch_size=64"],
        "trainer.batch_size = 64 must be a multiple of trainer.devices = 3",
    ),
    "columns for a benchmark": (["data.state=[x]"], r"data.state = \('x',\) applies to data.name = 'tables' only"),
    "tables without columns": (
        ["data={name: tables, folder: here}"],
        "data.state is missing: name the columns\n.*data.observe is missing",
    ),
    "tables with a scenario": (
        [f"data={json.dumps(TABLES)}", "data.scenario=tone"],
        "data.scenario = 'tone' applies to simulated data only",
    ),
    "angle that is no state": ([f"data={json.dumps(TABLES)}", "data.angles=[z]"], r"data.angles = \['z'\]: not among"),
    "column named twice": ([f"data={json.dumps(TABLES)}", "data.state=[a, a]"], "data.state lists a more than once"),
    "an override without a value": (["trainer.steps"], "write section.field=value"),
    "an override into a number": (["seed.x=1", "seed=1", "seed.x=1"], "seed"),
    "an override beyond a list": (["loss.7.weight=1"], "loss has entries 0 to 0, no entry '7'"),
    "an override that is no YAML": (["name=[1"], "invalid YAML"),
}


@pytest.fixture
def no_data(monkeypatch):
    """Loading anything fails the test."""

    def refuse(*arguments, **options):
        raise AssertionError("data were loaded before the experiment was checked")

    for module, name in (
        (protocols, "simulated"),
        (simulated, "generate"),
        (setup, "load_data"),
        (setup, "load_tables"),
        (loaders, "load"),
        (loaders, "simulate"),
    ):
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_reported_before_any_data_are_loaded(no_data, case):
    overrides, message = FAULTS[case]
    with pytest.raises(ConfigError, match=message) as caught:
        read_experiment(copy.deepcopy(GOOD), overrides)
    for line in str(caught.value).splitlines():
        assert line.strip()
        assert len(line) < 400, "a fault is one readable line"
        assert "Traceback" not in line


def test_all_faults_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        read_experiment(
            copy.deepcopy(GOOD), ["trainer.steps=0", "optimizer.lr=1", "loss.0.kind=x", "filter.name=y", "data.name=z"]
        )
    assert len(str(caught.value).splitlines()) == 5


def test_an_experiment_is_frozen_and_round_trips_through_json():
    experiment = read_experiment(
        GOOD, ["loss=[{kind: state}, {kind: spectral, weight: 1e-2}]", "optimizer.learning_rate=1e-3"]
    )
    assert experiment.optimizer.learning_rate == 0.001
    assert experiment.loss[1]["weight"] == 0.01
    with pytest.raises(AttributeError):
        experiment.seed = 3
    restored = parse_experiment(json.loads(json.dumps(experiment.as_dict())))
    assert restored.as_dict() == json.loads(json.dumps(experiment.as_dict())) or restored == experiment
    assert isinstance(restored, Experiment)
    assert restored.trainer == experiment.trainer
    assert restored.data == experiment.data


def test_shipped_experiments_parse_and_have_a_description():
    assert "lorenz" in shipped()
    for name, line in shipped().items():
        assert len(line) > 10
        assert read_experiment(name).name


def test_an_experiment_is_read_from_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: {name: pendulum}\nfilter: {equations: true}\noptimizer: {learning_rate: 5E-4}\n")
    assert read_experiment(path).optimizer.learning_rate == 5e-4
    with pytest.raises(ConfigError, match=r"missing\.yaml cannot be read"):
        read_experiment(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match=r"unknown experiment 'lorens'.*Did you mean lorenz"):
        read_experiment("lorens")
    path.write_text("data: [\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml, line \d: invalid YAML"):
        read_experiment(path)
    path.write_text("3")
    with pytest.raises(ConfigError, match="an experiment must be a mapping of sections"):
        read_experiment(path)


def test_yaml_gives_plain_values_only(tmp_path):
    with pytest.raises(ConfigError, match="invalid YAML"):
        parse_yaml("!!python/object/apply:os.system ['touch /tmp/owned']", "a file")
    assert parse_yaml("[1e-3, 1.5e3, -2E+1, 1_000e0, text, '1e-3']", "x") == [
        1e-3,
        1500.0,
        -20.0,
        1000.0,
        "text",
        "1e-3",
    ]


def bomb(levels: int) -> str:
    """Each level holds the one before ten times: 10 ** levels values in a few hundred bytes."""
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, levels)]
    return "\n".join(lines)


HOSTILE = {
    "aliases of aliases": bomb(9),
    "an option of aliases": f"{bomb(9)}\nfilter: {{options: *a8}}",
    "merged aliases": "\n".join(
        ["a0: &a0 {k: 1}", *(f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}, *a{k - 1}]}}" for k in range(1, 30))]
    ),
    "a list that holds itself": "data: &a [*a]",
    "a mapping that holds itself": "data: &a {name: *a}",
    "many values": "loss: [" + "1, " * 20_000 + "]",
    "lists within lists": "loss: " + "[" * 30_000,
    "an integer of 5,000 digits": "seed: " + "9" * 5000,
    "an integer of 10,000 hexadecimal digits": "seed: 0x" + "f" * 10_000,
    "a real of 10,000 hexadecimal digits": "{data: {name: lorenz}, optimizer: {learning_rate: 0x" + "f" * 10_000 + "}}",
    "a date that is none": "seed: 2026-99-99",
    "half of a surrogate pair": 'name: "\\ud800"',
    "a state of a million numbers": (
        "{data: {name: simulated}, system: {name: linear, state_dim: 1000000, observation_dim: 1}}"
    ),
    "a network of a million units": "{data: {name: lorenz}, filter: {options: {encoder: {units: 1000000}}}}",
    "a network of a million layers": "{data: {name: lorenz}, filter: {options: {encoder: {layers: 1000000}}}}",
    "a megabyte": "# " + "x" * 1_000_000,
    "60,000 bytes of unknown options": "\n".join(f"z{k}: 1" for k in range(7_000)),
    "options that are no mapping": "data: {name: simulated, options: 3}",
    "a binary": "data: !!binary aGVsbG8=",
    "a set": "data: !!set {a, b}",
    "a tag": "data: !!python/name:os.system",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_at_once(name, tmp_path):
    """Within two seconds (PyYAML is slow) and 50 MB, with a message that a person can read."""
    path = tmp_path / "own.yaml"
    path.write_text(HOSTILE[name], encoding="utf-8")
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_experiment(path)
    assert time.process_time() - begin < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
    assert len(str(caught.value)) <= MESSAGE_LIMIT


def test_aliases_are_fine_in_moderation():
    values = parse_yaml("{a: &a {x: 1}, b: *a, c: {<<: *a, y: 2}}", "x")
    assert values == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
