"""MCAP files and ROS bags against the libraries ``rosbags`` and ``mcap``, which write them here and read them too."""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fwnkf.errors import ConfigError, DataError
from fwnkf.logs import Log, choose, open_log
from fwnkf.logs.definitions import parse
from fwnkf.logs.excerpt import excerpt
from fwnkf.logs.messages import Decoder
from fwnkf.logs.work import Work

mcap_writer = pytest.importorskip("mcap.writer")
typesys = pytest.importorskip("rosbags.typesys")

STORE = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
STORE1 = typesys.get_typestore(typesys.Stores.ROS1_NOETIC)
START = 1_700_000_000_000_000_000


def imu(index: int, *, frame: str = "base", store: Any = STORE) -> Any:
    types = store.types
    time = types["builtin_interfaces/msg/Time"](sec=1_700_000_000, nanosec=5_000_000 * index)
    header = {"seq": index} if store is STORE1 else {}
    vector = types["geometry_msgs/msg/Vector3"]
    return types["sensor_msgs/msg/Imu"](
        header=types["std_msgs/msg/Header"](stamp=time, frame_id=frame, **header),
        orientation=types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
        orientation_covariance=np.arange(9.0),
        angular_velocity=vector(x=0.1 * index, y=np.sin(index), z=-1.0 / 3),
        angular_velocity_covariance=np.arange(9.0) * index,
        linear_acceleration=vector(x=1.5, y=float(index) ** 0.5, z=9.81),
        linear_acceleration_covariance=np.zeros(9),
    )


def joints(index: int) -> Any:
    types = STORE.types
    count = index % 3
    return types["sensor_msgs/msg/JointState"](
        header=types["std_msgs/msg/Header"](
            stamp=types["builtin_interfaces/msg/Time"](sec=index + 1, nanosec=0), frame_id="x" * (index % 5)
        ),
        name=[f"joint{number}" * (number + 1) for number in range(count)],
        position=np.arange(count) + 10.0 * index,
        velocity=np.zeros(0),
        effort=np.full(count, 7.0),
    )


def write_mcap(path: Path, count: int = 100, **options: Any) -> None:
    """IMU and joints of a robot, and a JSON and a protobuf topic, in an MCAP file."""
    with path.open("wb") as file:
        writer = mcap_writer.Writer(file, **options)
        writer.start()
        channels = {}
        for topic, kind in (("/imu", "sensor_msgs/msg/Imu"), ("/joints", "sensor_msgs/msg/JointState")):
            text, _ = STORE.generate_msgdef(kind, ros_version=2)
            schema = writer.register_schema(kind, "ros2msg", text.encode())
            channels[topic] = writer.register_channel(topic, "cdr", schema)
        channels["/json"] = writer.register_channel("/json", "json", 0)
        channels["/proto"] = writer.register_channel(
            "/proto", "protobuf", writer.register_schema("a.B", "protobuf", b"")
        )
        for index in range(count):
            stamp = START + 5_000_000 * index
            messages = {
                "/imu": bytes(STORE.serialize_cdr(imu(index), "sensor_msgs/msg/Imu")),
                "/joints": bytes(STORE.serialize_cdr(joints(index), "sensor_msgs/msg/JointState")),
                "/json": json.dumps({"a": {"b": index}, "c": [1.5, index], "text": "x"}).encode(),
                "/proto": b"\x08\x01",
            }
            for topic, data in messages.items():
                writer.add_message(channels[topic], stamp + 1000, data, stamp)
        writer.finish()


FORMS = {
    "zstd": {"chunk_size": 4096, "compression": mcap_writer.CompressionType.ZSTD},
    "lz4": {"chunk_size": 4096, "compression": mcap_writer.CompressionType.LZ4},
    "none": {"chunk_size": 4096, "compression": mcap_writer.CompressionType.NONE},
    "without chunks": {"use_chunking": False},
    "without index": {
        "chunk_size": 4096,
        "index_types": mcap_writer.IndexType.NONE,
        "use_statistics": False,
        "repeat_channels": False,
        "repeat_schemas": False,
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_mcap_gives_what_was_written(tmp_path: Path, form: str) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, **FORMS[form])
    log = open_log(path)
    assert log.notes == ()
    assert {name: topic.count for name, topic in log.topics.items()} == dict.fromkeys(log.topics, 100)
    stream = log.signal("imu")
    written = [imu(index) for index in range(100)]
    for axis in "xyz":
        assert np.array_equal(stream.columns[f"gyro_{axis}"], [getattr(m.angular_velocity, axis) for m in written])
        assert np.array_equal(stream.columns[f"accel_{axis}"], [getattr(m.linear_acceleration, axis) for m in written])
    assert log.start_ns == START + 1000
    assert stream.received is not None
    assert np.allclose(stream.time, 0.005 * np.arange(100) - 1e-6, rtol=0, atol=1e-12)
    assert np.allclose(stream.received, 0.005 * np.arange(100), rtol=0, atol=1e-12)
    covariance = log.read("/imu", ["angular_velocity_covariance[8]"]).columns["angular_velocity_covariance[8]"]
    assert np.array_equal(covariance, 8.0 * np.arange(100))
    assert np.array_equal(log.read("/json").columns["a.b"], np.arange(100))
    with pytest.raises(DataError, match=r"/proto.*'protobuf'"):
        log.read("/proto")


def test_sequences_and_strings_of_changing_length(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path)
    stream = open_log(path).read("/joints", ["position[0]", "position[1]", "effort[1]"])
    expected = np.array(
        [[10.0 * i if i % 3 > 0 else np.nan, 10.0 * i + 1 if i % 3 > 1 else np.nan] for i in range(100)]
    )
    assert np.array_equal(stream.stack(["position[0]", "position[1]"]), expected, equal_nan=True)
    assert np.array_equal(np.isnan(stream.columns["effort[1]"]), np.arange(100) % 3 < 2)
    assert np.array_equal(stream.time + 1_700_000_000 + 1e-6, np.arange(100) + 1.0) or np.allclose(
        stream.time + 1_700_000_000, np.arange(100) + 1.0, atol=1e-5
    )


def test_blocks_are_the_parts_of_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, chunk_size=2048)
    log = open_log(path)
    blocks = list(log.blocks({"/imu": ["angular_velocity.y"], "/joints": ["position[0]"]}, samples=16))
    assert max(len(block["/imu"]) for block in blocks if "/imu" in block) <= 16
    for topic, field in (("/imu", "angular_velocity.y"), ("/joints", "position[0]")):
        whole = log.read(topic, [field])
        parts = [block[topic] for block in blocks if topic in block]
        assert np.array_equal(np.concatenate([part.time for part in parts]), whole.time)
        joined = np.concatenate([part.columns[field] for part in parts])
        assert np.array_equal(joined, whole.columns[field], equal_nan=True)


@pytest.mark.parametrize("form", ["zstd", "lz4", "none", "without chunks"])
def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path, form: str) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, **FORMS[form])
    whole = open_log(path).signal("imu")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    log = open_log(path)
    part = log.signal("imu")
    assert 20 < len(part) < 80
    assert np.array_equal(part.stack(), whole.stack()[: len(part)])
    assert any("cut off" in note for note in log.notes)


def test_damage_in_the_middle_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, chunk_size=4096)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(40)
    path.write_bytes(data)
    log = open_log(path)
    stream = log.signal("imu")
    assert 80 < len(stream) < 100
    assert stream.time[-1] > 0.49
    assert log.notes


def write_bag(path: Path, count: int = 60, compression: str | None = None) -> None:
    rosbag1 = pytest.importorskip("rosbags.rosbag1")
    writer = rosbag1.Writer(path)
    if compression:
        writer.set_compression(getattr(rosbag1.Writer.CompressionFormat, compression))
    with writer:
        connection = writer.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=STORE1)
        for index in range(count):
            message = imu(index, frame="imu" if index < 40 else "base_link", store=STORE1)
            stamp = START + 5_000_000 * index + 1000
            writer.write(connection, stamp, bytes(STORE1.serialize_ros1(message, "sensor_msgs/msg/Imu")))


@pytest.mark.parametrize("compression", [None, "BZ2", "LZ4"])
@pytest.mark.parametrize("indexed", [True, False])
def test_ros1_bag_gives_what_was_written(tmp_path: Path, compression: str | None, indexed: bool) -> None:
    path = tmp_path / "run.bag"
    write_bag(path, compression=compression)
    if not indexed:
        data = bytearray(path.read_bytes())
        at = data.index(b"index_pos=") + 10
        (position,) = struct.unpack_from("<Q", data, at)
        data[at : at + 8] = bytes(8)
        path.write_bytes(data[:position])
    log = open_log(path)
    assert any("reindex" in note for note in log.notes) is not indexed
    stream = log.signal("imu")
    assert np.array_equal(stream.columns["gyro_y"], np.sin(np.arange(60)))
    assert np.array_equal(stream.columns["accel_y"], np.arange(60) ** 0.5)
    assert np.allclose(stream.time, 0.005 * np.arange(60) - 1e-6, rtol=0, atol=1e-12)
    assert log.topics["/imu"].count == 60


@pytest.mark.parametrize("storage", ["SQLITE3", "MCAP"])
@pytest.mark.parametrize("version", [8, 9])
def test_ros2_bag_gives_what_was_written(tmp_path: Path, storage: str, version: int) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    folder = tmp_path / "run"
    plugin = getattr(rosbag2.StoragePlugin, storage)
    with rosbag2.Writer(folder, version=version, storage_plugin=plugin) as writer:
        connection = writer.add_connection("/imu", "sensor_msgs/msg/Imu", typestore=STORE)
        for index in range(60):
            data = STORE.serialize_cdr(imu(index), "sensor_msgs/msg/Imu", little_endian=index % 2 == 0)
            writer.write(connection, START + 5_000_000 * index, bytes(data))
    log = open_log(folder)
    stream = log.signal("imu")
    assert np.array_equal(stream.columns["gyro_y"], np.sin(np.arange(60)))
    assert np.allclose(stream.time, 0.005 * np.arange(60), rtol=0, atol=1e-12)
    file = next(path for path in folder.iterdir() if path.suffix in (".db3", ".mcap"))
    assert np.array_equal(open_log(file).signal("imu").stack(), stream.stack())


def test_the_files_of_a_split_bag_are_one_log(tmp_path: Path) -> None:
    for number in (10, 2):
        write_mcap(tmp_path / f"run_{number}.mcap", count=number)
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information: {}")
    log = open_log(tmp_path)
    assert log.topics["/imu"].count == 12
    expected = [imu(index).angular_velocity.y for index in (*range(2), *range(10))]
    assert np.array_equal(log.signal("imu").columns["gyro_y"], expected)


def test_a_part_of_the_time_is_read_from_its_chunks(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, chunk_size=2048)
    log = open_log(path)
    whole = log.read("/imu", ["angular_velocity.y"])
    (part,) = log.windows("/imu", ["angular_velocity.y"], [(0.1, 0.2)])
    assert np.array_equal(part.columns["angular_velocity.y"], whole.columns["angular_velocity.y"][20:40])
    assert np.array_equal(Log.windows(log, "/imu", None, [(0.1, 0.2)])[0].time, part.time)


def test_an_excerpt_is_parts_spread_over_the_log(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path, chunk_size=2048)
    log = open_log(path)
    assert excerpt(log, samples=100) is log
    part = excerpt(log, samples=40, parts=4)
    stream = part.signal("imu")
    assert len(stream) == pytest.approx(40, abs=4)
    assert stream.time[0] == pytest.approx(0, abs=0.02)
    assert stream.time[-1] == pytest.approx(0.495, abs=0.02)
    whole = log.signal("imu")
    rows = np.searchsorted(whole.time, stream.time)
    assert np.array_equal(whole.stack()[rows], stream.stack())
    gaps = np.flatnonzero(np.diff(rows) > 1)
    assert len(gaps) == 3
    for gap, left in zip(gaps, part.left_out, strict=True):
        assert left.time <= stream.time[gap] + 0.006
        assert left.time + left.seconds >= stream.time[gap + 1] - 0.006
    assert "4 parts" in part.notes[-1]


def test_all_fields_of_all_standard_types_are_where_rosbags_puts_them() -> None:
    """Every standard message with random content, in both encodings, decoded here and by rosbags."""
    random = np.random.default_rng(0)
    checked = 0
    for store, version in ((STORE, 2), (STORE1, 1)):
        for kind in store.fielddefs:
            package = kind.split("/")[0]
            if package not in (
                "sensor_msgs",
                "geometry_msgs",
                "nav_msgs",
                "std_msgs",
                "trajectory_msgs",
                "stereo_msgs",
            ):
                continue
            message = random_message(store, kind, random)
            if version == 2:
                data, text = bytes(store.serialize_cdr(message, kind)), store.generate_msgdef(kind, ros_version=2)[0]
            else:
                data, text = bytes(store.serialize_ros1(message, kind)), store.generate_msgdef(kind, ros_version=1)[0]
            name = kind.replace("/msg/", "/")
            decoder = Decoder(name, parse(kind, text, "here"), aligned=version == 2)
            work = Work("here", len(data))
            fields = decoder.fields(data, work)
            columns, whole = decoder.columns([data, data], fields, work)
            assert whole.all() or not fields
            for field in fields:
                value: Any = message
                for step in field.replace("[", ".[").split("."):
                    value = value[int(step[1:-1])] if step.startswith("[") else getattr(value, step)
                assert columns[field][1] == value or np.isnan(value), (kind, field)
                checked += 1
    assert checked > 2000


def random_message(store: Any, kind: str, random: np.random.Generator) -> Any:
    values = {}
    for name, desc in store.fielddefs[kind][1]:
        values[name] = random_value(store, desc, random)
    return store.types[kind](**values)


def random_value(store: Any, desc: Any, random: np.random.Generator) -> Any:
    node, detail = desc
    if node == 2:
        return random_message(store, detail, random)
    if node in (3, 4):
        count = detail[1] if node == 3 else int(random.integers(0, 4))
        items = [random_value(store, detail[0], random) for _ in range(count)]
        if detail[0][0] == 1 and detail[0][1][0] != "string":
            return np.array(
                items, dtype={"bool": "bool", "byte": "u1", "char": "u1"}.get(detail[0][1][0], detail[0][1][0])
            )
        return items
    base = detail[0]
    if base == "string":
        return "s" * int(random.integers(0, 9))
    if base == "bool":
        return bool(random.integers(0, 2))
    if base.startswith("float"):
        return float(np.float32(random.normal()))
    return int(random.integers(0, 100))


def test_topics_and_fields_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    write_mcap(path)
    log = choose(open_log(path), topics=["imu=/imu"], fields=["rotor_1=/json.c[1]*0.5", "rotor_2=/json.a.b/4"])
    assert log.source("imu").topic == "/imu"
    rotors = log.signal("rotor")
    assert np.array_equal(rotors.stack(), np.arange(100)[:, None] * [0.5, 0.25])
    for bad in ("imu=/nothing", "imu=/json", "wings=/imu"):
        with pytest.raises(ConfigError, match="topic"):
            choose(open_log(path), topics=[bad])
    for bad in ("gyro_x=/imu.nothing", "gyro_x=/imu.orientation.x*__import__('os')", "a=b", "gyro_x=/imu"):
        with pytest.raises(ConfigError, match="field"):
            choose(open_log(path), fields=[bad])


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.mcap", b"\x1f\x8b12345678", "gunzip"),
        ("a.mcap", b"nothing of this kind", "not an MCAP file"),
        ("a.bag", b"#ROSBAG V1.2\nmore", "version 1.2"),
        ("a.db3", b"SQLite format 3\x00" + b"x" * 2000, "cannot be read as a bag of ROS 2"),
        ("a.xyz", b"what is this", "known format"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=words) as caught:
        open_log(path)
    assert str(path) in str(caught.value)


def test_a_topic_whose_number_is_lost_is_left_out(tmp_path: Path) -> None:
    """As damage to a page of the database leaves it."""
    path = tmp_path / "bag.db3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE topics (id, name, type, serialization_format, offered_qos_profiles)")
        connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic_id, timestamp, data)")
        rows = [(None, "/lost"), ("x", "/also"), (1, "/imu")]
        for number, name in rows:
            connection.execute("INSERT INTO topics VALUES (?, ?, 'sensor_msgs/msg/Imu', 'cdr', '')", (number, name))
        connection.commit()
    log = open_log(path)
    assert list(log.topics) == ["/imu"]
    assert sum("without a number" in note for note in log.notes) == 2
