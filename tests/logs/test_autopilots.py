"""ULog, DataFlash and blackbox against the libraries ``pyulog``, ``pymavlink`` and ``orangebox``."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from fwnkf.data.flights import Flight, Vehicle, flight
from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.logs.blackbox import Blackbox
from fwnkf.logs.dataflash import DataFlash
from fwnkf.logs.log import Log
from fwnkf.logs.ulog import ULog

from .writers import blackbox, dataflash, ulog, write_flight

DATA = Path(os.environ.get("FWNKF_DATA", ".data")) / "logs"
FORMATS = ("ulog", "dataflash", "blackbox")


@pytest.fixture(scope="module")
def simulated() -> Flight:
    return flight("gaps", seed=5, seconds=20.0, vehicle=Vehicle(rate=250.0))


@pytest.fixture(scope="module")
def written(simulated: Flight, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_flight(tmp_path_factory.mktemp(name), name, simulated) for name in FORMATS}


# ---- every topic and field, as the libraries read them ---------------------------------------------------------------


def same_as_pyulog(path: Path, shared: bool = False) -> None:
    """Compare all values; ``shared`` compares the samples that both find, for damaged files."""
    reference = pytest.importorskip("pyulog").ULog(str(path))
    log = ULog(path)
    names = set()
    for data in reference.data_list:
        name = data.name if data.multi_id == 0 else f"{data.name}.{data.multi_id}"
        names.add(name)
        columns = log.read(name).columns
        ours, theirs = columns["timestamp"], data.data["timestamp"].astype(float)
        rows: slice | np.ndarray = slice(None)
        if shared:
            assert set(theirs) <= set(ours), name
            rows = np.searchsorted(np.sort(ours), theirs)
            rows = np.argsort(ours, kind="stable")[rows]
        for field, values in data.data.items():
            if "_padding" not in field:
                assert np.array_equal(columns[field][rows], values.astype(float), equal_nan=True), (name, field)
    assert {name for name in log.topics if "/" not in name} == names
    if not shared:
        times = [(dropout.timestamp - reference.start_timestamp) / 1e6 for dropout in reference.dropouts]
        assert [dropout.seconds for dropout in log.dropouts] == [d.duration / 1000 for d in reference.dropouts]
        assert np.allclose([dropout.time for dropout in log.dropouts], times, atol=1.0)
        assert [message.text for message in log.messages] == [m.message for m in reference.logged_messages]


def same_as_pymavlink(path: Path) -> None:
    reader = pytest.importorskip("pymavlink.DFReader").DFReader_binary(str(path))
    messages: dict[str, list[object]] = {}
    while (message := reader.recv_msg()) is not None:
        name, field = message.get_type(), message.fmt.instance_field
        number = getattr(message, field) if field else 0
        messages.setdefault(name if number == 0 else f"{name}.{number}", []).append(message)
    log = DataFlash(path)
    # descriptions and files have no time
    assert {name for name in messages if name not in ("FMT", "FILE")} == {
        name for name in log.topics if "/" not in name
    }
    for name in log.topics:
        if "/" in name:
            continue
        stream, layout = log.read(name), messages[name][0].fmt  # type: ignore[attr-defined]
        for column, field in enumerate(layout.columns):
            if field not in stream.columns:
                continue  # a text or an array
            # pymavlink names the unit with its prefix (mGauss), ours are scaled to it (Gauss)
            prefix = {"m": 1e-3, "µ": 1e-6, "c": 1e-2, "d": 1e-1, "n": 1e-9}
            unit, plain = layout.get_unit(field), stream.units.get(field, "")
            factor = (
                prefix[unit[0]]
                if plain and unit != plain and unit.endswith(plain) and len(unit) - len(plain) == 1
                else 1.0
            )
            if unit.split(" ")[0].replace("e-", "").replace(".", "").isdigit():
                factor = float(unit.split(" ")[0])
            values = np.array([getattr(message, field) for message in messages[name]], float)
            assert layout.msg_mults[column] is None or factor == 1.0
            assert np.allclose(stream.columns[field], values * factor, rtol=1e-9, atol=0, equal_nan=True), (name, field)


def same_as_orangebox(path: Path) -> None:
    parser = pytest.importorskip("orangebox").Parser.load(str(path))
    log = Blackbox(path)
    stream = log.read("frames")
    width = len(stream.columns)
    theirs = np.array([frame.data[:width] for frame in parser.frames()], float)
    assert parser.field_names[:width] == list(stream.columns)
    ours = stream.stack()
    # numbers below zero of fields without a sign are 2**32 too large in orangebox
    assert np.array_equal(ours, np.where(theirs > 2.0**31, theirs - 2.0**32, theirs))


def test_written_files_are_read_as_by_the_libraries(written: dict[str, Path]) -> None:
    same_as_pyulog(written["ulog"])
    same_as_pymavlink(written["dataflash"])
    same_as_orangebox(written["blackbox"])


def real(folder: str, *names: str) -> list[Path]:
    paths = sorted((DATA / folder).glob("*")) if (DATA / folder).is_dir() else []
    return [path for path in paths if not names or path.stem in names]


@pytest.mark.parametrize("path", real("ulog"), ids=lambda path: path.stem)
def test_real_ulogs_are_read_as_by_pyulog(path: Path) -> None:
    # in the damaged one ours finds samples behind the damage that pyulog skips
    same_as_pyulog(path, shared="corrupt" in path.stem)


@pytest.mark.slow
@pytest.mark.parametrize("path", real("dataflash"), ids=lambda path: path.stem)
def test_real_dataflash_logs_are_read_as_by_pymavlink(path: Path) -> None:
    same_as_pymavlink(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*real("blackbox"), *real("blackbox_racer", "LOG00014")], ids=lambda path: path.stem)
def test_real_blackboxes_are_read_as_by_orangebox(path: Path) -> None:
    same_as_orangebox(path)


# ---- standard signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_signals_are_those_that_were_written(name: str, written: dict[str, Path], simulated: Flight) -> None:
    log = open_log(written[name])
    assert log.notes == ()
    imu = log.signal("imu")
    counts = {
        "ulog": (1e-6, 1e-5),
        "dataflash": (1e-6, 1e-5),
        "blackbox": (np.deg2rad(0.025) + 1e-9, 9.81 / 4096 + 1e-6),
    }
    gyro, accel = counts[name]
    assert np.abs(imu.stack(["gyro_x", "gyro_y", "gyro_z"]) - simulated.gyro).max() <= gyro
    assert np.abs(imu.stack(["accel_x", "accel_y", "accel_z"]) - simulated.accel).max() <= accel
    assert np.abs(np.diff(imu.time) - np.diff(simulated.imu_time)).max() < 2e-6
    zero = simulated.imu_time[0] - imu.time[0]
    for role, time, truth, tolerance in (
        ("rotor", simulated.rotor_time, simulated.rotor, 0.5),
        ("motor", simulated.motor_time, simulated.motor, 2e-3),
    ):
        stream = log.signal(role)
        expected = np.stack([np.interp(stream.time + zero, time, values) for values in truth.T], -1)
        assert np.abs(stream.stack() - expected).max() < tolerance
    if name != "blackbox":
        pose = log.signal("pose")
        assert np.allclose(pose.stack()[:, :3], simulated.position, atol=1e-4)
        turn = np.abs((pose.stack()[:, 3:] * simulated.orientation).sum(1))
        assert turn.min() > 1 - 1e-6
        names = {"ulog": ["gps_hpos[0]", "gps_hpos[1]", "gps_vpos"], "dataflash": ["IPN", "IPE", "IPD"]}[name]
        assert np.allclose(log.signal("innovation").stack(names), simulated.innovation, atol=1e-5)
    if name == "ulog":
        ratio = simulated.innovation[:, 2] ** 2 / (25 * simulated.innovation_variance[:, 2])
        assert np.allclose(log.signal("innovation").columns["gps_vpos_ratio"], ratio, rtol=1e-4)
        assert len(log.airborne()) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_hold_what_the_whole_holds(name: str, written: dict[str, Path]) -> None:
    log = open_log(written[name])
    wanted = {source.topic: [field for field, _ in source.columns.values()] for source in log.sources()[:3]}
    blocks = list(log.blocks(wanted, samples=300))
    assert len(blocks) > 5
    assert max(len(stream) for block in blocks for stream in block.values()) <= 300
    for topic, fields in wanted.items():
        whole = log.read(topic, fields)
        parts = [block[topic] for block in blocks]
        assert np.array_equal(np.concatenate([part.time for part in parts]), whole.time)
        assert np.array_equal(np.concatenate([part.stack(fields) for part in parts]), whole.stack(fields))


def test_fifo_packets_get_the_rate_of_their_stamps(tmp_path: Path) -> None:
    """Samples every 126.4 µs whose driver says 119.47 µs, with packets lost."""
    step, count = 126.4e-6, 10
    lost = np.isin(np.arange(600), [*range(100, 140), 300])
    packets = np.arange(600)[~lost]
    time = packets * count * step
    wave = lambda index: 1000 * np.sin(2 * np.pi * 333.0 * step * index)  # noqa: E731
    index = packets[:, None] * count + np.arange(count) - count + 1
    samples = np.zeros((len(packets), 32))
    samples[:, :count] = np.round(wave(index))
    fields = {
        "timestamp": ("uint64_t", ulog.ticks(time + 3e-4)),
        "timestamp_sample": ("uint64_t", ulog.ticks(time)),
        "dt": ("float", np.full(len(time), 119.47)),
        "scale": ("float", np.full(len(time), 0.001)),
        **dict.fromkeys("xyz", ("int16_t", samples)),
        "samples": ("uint8_t", np.full(len(time), count)),
    }
    path = tmp_path / "fifo.ulg"
    ulog.write(path, [ulog.Topic("sensor_gyro_fifo", fields, time)])
    stream = open_log(path).signal("gyro")
    assert stream.nominal == pytest.approx(119.47e-6, rel=1e-6)
    assert np.allclose(stream.time, index.ravel() * step, atol=2e-6)
    assert np.allclose(stream.columns["gyro_x"], 0.001 * np.round(wave(index)).ravel(), atol=1e-6)
    assert "8370 Hz" in stream.notes[0]
    assert "7911 Hz" in stream.notes[0]


def test_batches_of_raw_samples_keep_their_gaps(tmp_path: Path) -> None:
    """Two gyro batches of 64 samples at 4 kHz a second apart, and one of the accelerometer between them."""
    starts, kinds = np.array([1.0, 1.5, 2.0]), np.array([1, 0, 1])
    values = np.arange(3 * 64).reshape(3, 2, 32)
    head = dataflash.Kind(
        "ISBH", "QHBBHHQf", ["TimeUS", "N", "type", "instance", "mul", "smp_cnt", "SampleUS", "smp_rate"],
        [dataflash.ticks(starts + 0.1), [7, 8, 7], kinds, [0] * 3, [10] * 3, [64] * 3, dataflash.ticks(starts),
         [4000.0] * 3],
        starts,
    )  # fmt: skip
    when = np.repeat(starts, 2) + np.tile([0.01, 0.02], 3)
    rows = values.reshape(6, 32)
    body = dataflash.Kind(
        "ISBD", "QHHaaa", ["TimeUS", "N", "seqno", "x", "y", "z"],
        [dataflash.ticks(when), np.repeat([7, 8, 7], 2), np.tile([0, 1], 3), rows, rows + 1, rows + 2], when,
    )  # fmt: skip
    path = tmp_path / "batch.bin"
    dataflash.write(path, [head, body])
    log = open_log(path)
    gyro = log.signal("gyro")
    assert np.allclose(gyro.columns["gyro_x"], values[[0, 2]].ravel() / 10)
    expected = (starts[[0, 2], None] + np.arange(64) / 4000).ravel()
    assert np.allclose(gyro.time - gyro.time[0], expected - expected[0], atol=1e-6)
    assert np.allclose(log.signal("accel").columns["accel_y"], (values[1].ravel() + 1) / 10)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_reading_goes_on_behind_damage(name: str, written: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(written[name].read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = np.random.default_rng(0).integers(0, 256, 300, np.uint8).tobytes()
    path = tmp_path / "damaged"
    path.write_bytes(data)
    whole, log = open_log(written[name]).signal("imu"), open_log(path)
    stream = log.signal("imu")
    assert any("damaged at byte" in note for note in log.notes)
    assert len(whole) - (1 + 300 // 20 + blackbox.INTERVAL) <= len(stream) < len(whole)
    assert stream.time[-1] == whole.time[-1]
    rows = np.isin(stream.time, whole.time)
    assert rows.mean() > 0.999


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_file_is_read_to_its_end(name: str, written: dict[str, Path], tmp_path: Path) -> None:
    data = written[name].read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(data[: 2 * len(data) // 3])
    whole, log = open_log(written[name]).signal("imu"), open_log(path)
    stream = log.signal("imu")
    assert 0.6 * len(whole) < len(stream) < 0.72 * len(whole)
    assert np.array_equal(stream.stack(), whole.stack()[: len(stream)])


def test_data_appended_after_a_crash_is_read(written: dict[str, Path], tmp_path: Path) -> None:
    data = written["ulog"].read_bytes()
    whole = ULog(written["ulog"])
    series = whole.series["sensor_combined"]
    cut = series.places[500] + 20  # within a sample
    body = b"6" + struct.pack("<Q", 5) + b"hard fault"
    flags = bytes(8) + b"\x01" + bytes(7) + struct.pack("<3Q", cut, 0, 0)
    path = tmp_path / "appended.ulg"
    path.write_bytes(
        data[:16] + ulog.message("B", flags) + data[59:cut] + ulog.message("L", body) + data[series.places[501] :]
    )
    log = ULog(path)
    assert [message.text for message in log.messages] == ["hard fault"]
    stamps = whole.read("sensor_combined", []).time
    assert np.array_equal(log.read("sensor_combined", []).time, np.delete(stamps, 500))


@pytest.mark.parametrize("reader", [ULog, DataFlash, Blackbox])
@pytest.mark.parametrize(
    "content", [b"", b"H Product:Blackbox", b"ULog\x01\x12\x35\x01" + bytes(8), b"\xa3\x95\x80", b"x" * 100]
)
def test_a_file_that_is_no_log_is_named(reader: type[Log], content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match="file"):
        reader(path)  # type: ignore[call-arg]
    with pytest.raises(DataError, match="missing"):
        reader(tmp_path / "missing")  # type: ignore[call-arg]


def hostile() -> Iterator[tuple[str, str]]:
    yield "recursive", "a:uint64_t timestamp;a b;"
    yield "huge", "a:uint64_t timestamp;float[99999] x;"
    yield "empty", "a:uint64_t timestamp;e[65535] x;"


@pytest.mark.parametrize(("kind", "text"), list(hostile()))
def test_formats_that_no_message_can_have_are_refused(kind: str, text: str, tmp_path: Path) -> None:
    parts = [b"ULog\x01\x12\x35\x01" + bytes(8), ulog.message("B", bytes(40)), ulog.message("F", b"e:")]
    parts += [ulog.message("F", text.encode()), ulog.message("A", struct.pack("<BH", 0, 1) + b"a")]
    path = tmp_path / f"{kind}.ulg"
    path.write_bytes(b"".join(parts))
    with pytest.raises(DataError, match="no samples"):
        ULog(path)


@pytest.mark.parametrize(
    ("name", "filler"),
    [("ulog", b"\x02\x00O\x01\x00"), ("dataflash", b"\xa3\x95\x80"), ("blackbox", b"P"), ("blackbox", b"I" * 40)],
)
def test_headers_without_content_cost_time_in_proportion(
    name: str, filler: bytes, written: dict[str, Path], tmp_path: Path
) -> None:
    data = written[name].read_bytes()
    middle = 2 * len(data) // 3
    seconds = []
    for size in (100_000, 400_000):
        path = tmp_path / f"{size}"
        path.write_bytes(data[:middle] + filler * (size // len(filler)) + data[middle:])
        start = process_time()
        log = open_log(path)
        seconds.append(process_time() - start)
        assert log.notes
    assert seconds[1] < 8 * seconds[0] + 0.5


def test_the_longest_session_of_a_blackbox_is_read(tmp_path: Path) -> None:
    def columns(count: int) -> dict[str, np.ndarray]:
        index = np.arange(count)
        return {"loopIteration": index, "time": 1000 * index, "gyroADC[0]": index % 50}

    path = tmp_path / "three.bbl"
    path.write_bytes(b"".join(blackbox.session(columns(count), rate=1000.0) for count in (50, 400, 90)))
    log = open_log(path)
    assert log.topics["frames"].fields == ("loopIteration", "time", "gyroADC[0]")
    assert len(log.read("frames")) == 400
    assert "3 sessions" in log.notes[-1]
    assert "log gyroUnfilt" in log.notes[0]


# ---- numbers of rotors -----------------------------------------------------------------------------------------------


def test_rotors_have_the_numbers_of_their_motors_in_ulog(simulated: Flight, tmp_path: Path):
    """The first output is not used, and the functions of the others, where logged, are in another order."""
    still = replace(simulated, rotor=np.concatenate([0 * simulated.rotor[:, :1], simulated.rotor], 1))
    count = simulated.rotor.shape[1]
    names = [f"rotor_{index + 2}" for index in range(count)]
    assert list(open_log(write_flight(tmp_path, "ulog", still)).signal("rotor").columns) == names
    functions = np.arange(101, 101 + count)[::-1]
    ulog.write(tmp_path / "assigned.ulg", [ulog._escs(simulated, functions)])
    rotor = ULog(tmp_path / "assigned.ulg").signal("rotor")
    assert list(rotor.columns) == [f"rotor_{index + 1}" for index in range(count)]
    np.testing.assert_allclose(rotor.stack()[:, ::-1], simulated.rotor, atol=0.01)


def test_rotors_have_the_numbers_of_their_motors_in_dataflash(simulated: Flight, tmp_path: Path):
    count = simulated.rotor.shape[1]
    time = np.repeat(simulated.rotor_time, count)
    instance = np.tile(np.arange(count) + 4, len(simulated.rotor_time))
    columns = [dataflash.ticks(time), instance, 60 * simulated.rotor.ravel()]
    kind = dataflash.Kind("ESC", "QBf", ["TimeUS", "Instance", "RPM"], columns, time, "s#q", "F--")
    dataflash.write(tmp_path / "plain.bin", [kind])
    assert list(DataFlash(tmp_path / "plain.bin").signal("rotor").columns) == [f"rotor_{i + 5}" for i in range(count)]
    settings = {f"SERVO{index + 5}_FUNCTION": 33.0 + count - 1 - index for index in range(count)}
    dataflash.write(tmp_path / "assigned.bin", [kind], settings)
    rotor = DataFlash(tmp_path / "assigned.bin").signal("rotor")
    assert list(rotor.columns) == [f"rotor_{index + 1}" for index in range(count)]
    np.testing.assert_allclose(rotor.stack()[5:-5, ::-1], simulated.rotor[5:-5], atol=0.01)
