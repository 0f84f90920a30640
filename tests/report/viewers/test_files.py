"""Files for viewers, read back by the packages that their makers publish."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fwnkf.diagnosis.result import Waterfall
from fwnkf.errors import ConfigError
from fwnkf.report.viewers import rerun_writer
from fwnkf.report.viewers.heat import picture
from fwnkf.report.viewers.open import open_scene
from fwnkf.report.viewers.scene import Remark, Track, around, split

START = 1_700_000_000_123_456_789
COUNT = 300
TIME = np.arange(COUNT) * 0.02
VALUES = np.random.default_rng(1).normal(size=(COUNT, 3))
STD = 0.5 + np.random.default_rng(2).random((COUNT, 3))
POSITION = np.stack((TIME, np.sin(TIME), 0.1 * TIME), 1)
TURN = np.stack((0 * TIME, 0 * TIME, np.sin(TIME / 8), np.cos(TIME / 8)), 1)


def items() -> list[Any]:
    """One of each kind; values have a gap."""
    values = VALUES.copy()
    values[10:20, 1] = np.nan
    waterfall = Waterfall("gyro_x", "rad/s", np.arange(10.0), np.arange(32) * 4.0, np.ones((10, 32)))
    cov = np.tile(np.diag([1.0, 4.0, 9.0]), (COUNT, 1, 1))
    names = [f"gyro_{axis}" for axis in "xyz"]
    return [
        *split("state", names, TIME, values, around(values, STD), units=["rad/s"] * 3),
        *split("innovation", names, TIME, values, around(0.0, STD)),
        *split("signal", ["load cell"], TIME, values[:, :1]),
        Track("filtered", TIME, POSITION, TURN, cov, main=True),
        Track("GNSS", TIME[::10], POSITION[::10]),
        picture(waterfall, "gyro"),
        Remark("flight", "1 problem"),
        Remark("vibration", "at 60 Hz", "warning", 2.0),
    ]


# ---- MCAP -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mcap(tmp_path_factory) -> Path:
    pytest.importorskip("mcap")
    path = tmp_path_factory.mktemp("viewers") / "flight.mcap"
    with open_scene("flight", START, mcap=path) as scene:
        scene.add(items())
    return path


def read(path: Path) -> dict[str, list[tuple[Any, Any, Any]]]:
    """Schema, stamp and message by topic."""
    from mcap.reader import make_reader

    found: dict[str, list[tuple[Any, Any, Any]]] = {}
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            assert channel.message_encoding == "json"
            found.setdefault(channel.topic, []).append((schema, message.log_time, json.loads(message.data)))
    return found


def test_signals_have_their_values_and_intervals(mcap):
    rows = read(mcap)["/fwnkf/state/gyro"]
    assert [stamp for _, stamp, _ in rows] == [START + round(at * 1e9) for at in TIME]
    last = rows[-1][2]
    assert last["gyro_z"]["value"] == VALUES[-1, 2]
    assert last["gyro_z"]["high"] - last["gyro_z"]["low"] == pytest.approx(2 * 1.96 * STD[-1, 2])
    assert "gyro_y" not in rows[15][2]
    innovation = read(mcap)["/fwnkf/innovation/gyro"][-1][2]["gyro_x"]
    assert innovation["high"] == -innovation["low"] == pytest.approx(1.96 * STD[-1, 0])


def test_messages_follow_their_own_schemas(mcap):
    validate = pytest.importorskip("jsonschema").validate
    for rows in read(mcap).values():
        for schema, _, message in (rows[0], rows[-1]):
            definition = json.loads(schema.data)
            validate(message, definition)
            unknown = set(message) - set(definition["properties"])
            assert not unknown


def test_messages_are_those_that_foxglove_defines(mcap):
    pytest.importorskip("foxglove_schemas_protobuf")
    import importlib

    from google.protobuf.json_format import ParseDict

    checked = set()
    for rows in read(mcap).values():
        for schema, _, message in rows[:2] + rows[-1:]:
            if schema.name.startswith("foxglove."):
                kind = schema.name.removeprefix("foxglove.")
                module = importlib.import_module(f"foxglove_schemas_protobuf.{kind}_pb2")
                ParseDict(without_times(message), getattr(module, kind)())  # raises for fields that it does not know
                checked.add(kind)
    assert checked == {"PoseInFrame", "FrameTransform", "SceneUpdate", "CompressedImage", "Log"}


def without_times(value: Any) -> Any:
    """Times are objects in Foxglove's JSON, and texts in that of protobuf."""
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in ("timestamp", "lifetime")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_the_scene_has_the_track_and_the_size_of_its_ellipsoids(mcap):
    found = read(mcap)
    whole = [message["entities"][0] for _, _, message in found["/fwnkf/scene"]]
    (line,) = (entity["lines"][0] for entity in whole if entity["id"] == "filtered")
    assert [[point[axis] for axis in "xyz"] for point in line["points"]] == POSITION.tolist()
    (now, *_) = (entity["spheres"][0] for entity in whole if entity["id"].startswith("now"))
    sizes = np.sort([now["size"][axis] for axis in "xyz"])
    assert np.allclose(sizes / sizes[0], [1.0, 2.0, 3.0])
    assert found["/fwnkf/pose"][3][2]["pose"]["orientation"]["w"] == pytest.approx(TURN[15, 3])


def fields(path: Path) -> set[str]:
    """Every place of a file at which there is a value: ``topic.field.field``."""
    known = set()

    def walk(place: str, value: Any, depth: int = 0) -> None:
        known.add(place)
        if isinstance(value, dict) and depth < 3:
            for name, item in value.items():
                walk(f"{place}.{name}", item, depth + 1)

    for topic, rows in read(path).items():
        for _, _, message in rows[:3]:
            walk(topic, message)
    return known


def shown_in_foxglove(layout: dict[str, Any]) -> set[str]:
    """Topics and fields that the panels of a layout name."""
    named: set[str] = set()
    for name, config in layout["configById"].items():
        kind = name.split("!")[0]
        if kind == "Plot":
            named |= {path["value"] for path in config["paths"]}
        elif kind == "3D":
            named |= set(config["topics"])
        elif kind == "Image":
            named.add(config["imageMode"]["imageTopic"])
        elif kind == "RosOut":
            named.add(config["topicToRender"])
        else:
            assert kind == "Tab"
    return named


def check_mosaic(layout: dict[str, Any]) -> None:
    """Every panel has its place exactly once, and every place is a panel."""
    placed: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, str):
            placed.append(node)
            for tab in layout["configById"][node].get("tabs", ()):
                walk(tab["layout"])
        else:
            assert node["direction"] in ("row", "column")
            assert 0 < node["splitPercentage"] < 100
            walk(node["first"])
            walk(node["second"])

    walk(layout["layout"])
    assert sorted(placed) == sorted(layout["configById"])


def shown_in_plotjuggler(root: ElementTree.Element) -> set[str]:
    """The curves, as topics and fields."""
    return {curve.attrib["name"] for curve in root.iter("curve")}


def check_layouts(path: Path, foxglove: Path, plotjuggler: Path) -> None:
    """Everything that both layouts show is in a file."""
    known = fields(path)
    layout = json.loads(foxglove.read_text(encoding="utf-8"))
    check_mosaic(layout)
    assert shown_in_foxglove(layout) <= known
    root = ElementTree.parse(plotjuggler).getroot()
    curves = shown_in_plotjuggler(root)
    # its names of JSON fields have slashes where those of Foxglove have points
    assert curves
    assert curves <= {place.replace(".", "/") for place in known}
    (parameters,) = root.iter("parameters")
    assert set(parameters.attrib["selected_topics"].split(";")) <= known
    for splitter in root.iter("DockSplitter"):
        assert len(splitter) == int(splitter.attrib["count"]) == len(splitter.attrib["sizes"].split(";"))


LAYOUTS = sorted((Path(__file__).parents[3] / "docs" / "foxglove").glob("*.json"))


def test_panels_have_settings_that_foxglove_defines(mcap):
    """By the classes that its SDK offers for layouts: names, types and choices of every setting."""
    layouts = pytest.importorskip("foxglove.layouts")
    pydantic = pytest.importorskip("pydantic")
    from pydantic.alias_generators import to_camel

    for kind in vars(layouts).values():
        if dataclasses.is_dataclass(kind):
            kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", alias_generator=to_camel)
    settings = {
        "3D": layouts.ThreeDeeConfig,
        "Plot": layouts.PlotConfig,
        "Image": layouts.ImageConfig,
        "RosOut": layouts.LogConfig,
    }
    checked = set()
    for path in (mcap.with_name(f"{mcap.stem}.foxglove.json"), *LAYOUTS):
        for name, config in json.loads(path.read_text(encoding="utf-8"))["configById"].items():
            kind = name.split("!")[0]
            if kind != "Tab":  # a container, which `check_mosaic` looks at
                own = {key: value for key, value in config.items() if key != "foxglovePanelTitle"}
                pydantic.TypeAdapter(settings[kind]).validate_python(own)
                checked.add(kind)
    assert checked == set(settings)
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(layouts.PlotConfig).validate_python({"legendDisplay": "none"})


def test_layouts_beside_a_file_show_all_of_it(mcap):
    foxglove, plotjuggler = (mcap.with_name(mcap.stem + end) for end in (".foxglove.json", ".plotjuggler.xml"))
    check_layouts(mcap, foxglove, plotjuggler)
    topics = {place.split(".")[0] for place in shown_in_foxglove(json.loads(foxglove.read_text(encoding="utf-8")))}
    assert topics == set(read(mcap)) - {"/fwnkf/transform"}
    (info,) = ElementTree.parse(plotjuggler).getroot().iter("fileInfo")
    assert (plotjuggler.parent / info.attrib["filename"]).samefile(mcap)


# ---- Rerun ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    pytest.importorskip("rerun")
    path = tmp_path_factory.mktemp("viewers") / "flight.rrd"
    with open_scene("flight", START, rerun=path) as scene:
        scene.add(items())
    return path


def rerun(*words: str) -> subprocess.CompletedProcess[str]:
    """The program that comes with the package, told to send nothing to its makers."""
    environment = os.environ | {"CI": "true"}
    command = [sys.executable, "-m", "rerun_cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_recording_is_verified_by_rerun_itself(recording):
    assert rerun("rrd", "verify", str(recording)).returncode == 0


def test_a_recording_has_values_tracks_pictures_and_a_blueprint(recording):
    printed = rerun("rrd", "print", str(recording)).stdout
    for place in ("/state/gyro/gyro_x", "/innovation/gyro/gyro_z", "/signal/load_cell/load_cell", "/world/vehicle",
                  "/world/path/filtered", "/world/path/GNSS", "/world/uncertainty/filtered", "/spectrogram/gyro",
                  "/summary", "/remarks", "/viewport", "/ScalarAxis"):  # fmt: skip
        assert place in printed, place


def test_numbers_of_a_recording_are_those_of_the_signals(recording):
    rows = scalars(recording, "/state/gyro/gyro_x")
    assert len(rows) == COUNT
    expected = np.stack((VALUES[:, 0], *(end[:, 0] for end in around(VALUES, STD))), 1)
    assert np.array_equal(np.array(rows), expected)


def scalars(path: Path, entity: str) -> list[list[float]]:
    """The scalars of an entity in the order of time, read by Rerun."""
    from rerun.chunk import RrdReader

    found: dict[Any, list[float]] = {}
    for store in RrdReader(path).stream():
        batch = store.to_record_batch()
        if store.entity_path != entity or "Scalars:scalars" not in batch.schema.names:
            continue
        times, values = batch.column("time").to_pylist(), batch.column("Scalars:scalars").to_pylist()
        found |= dict(zip(times, values, strict=True))
    return [found[at] for at in sorted(found)]


def test_viewers_are_told_to_send_nothing(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with rerun_writer.without_reports():
        assert os.environ["CI"] == "true"
    assert "CI" not in os.environ
    monkeypatch.setenv("CI", "yes")
    with rerun_writer.without_reports():
        assert os.environ["CI"] == "yes"
    assert os.environ["CI"] == "yes"


def test_rerun_believes_the_variable(recording, tmp_path):
    """What the package does with it: no file about its use is written, which it does otherwise."""
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    command = [sys.executable, "-m", "rerun_cli", "rrd", "verify", str(recording)]
    subprocess.run(command, env=os.environ | home | {"CI": "true"}, check=True, capture_output=True, timeout=120)
    assert not any(path.is_file() for path in tmp_path.rglob("analytics*"))


def test_a_viewer_that_cannot_start_is_explained(monkeypatch):
    pytest.importorskip("rerun")
    import rerun as package

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr(package.RecordingStream, "spawn", refuse)
    with pytest.raises(ConfigError, match=r"no display.*--rerun FILE\.rrd"):
        open_scene("flight", live=True)


def test_a_missing_package_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(ConfigError, match=r"fwnkf\[viewers\]"):
        open_scene("flight", rerun=tmp_path / "a.rrd")
