"""``fwnkf batch``: the same bits whole and in chunks, alone and in company; faults are named; nothing is done twice."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.errors import ConfigError, DataError, InUseError
from fwnkf.scale.batch import MANIFEST, batch, results
from fwnkf.scale.fleet import read_fleet
from fwnkf.scale.lock import Lock
from fwnkf.scale.part import PARTS
from fwnkf.scale.store import Store

from .fleets import CHANNELS, STEP, digest, estimates, rows, save_filter, walks, write

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_filter(tmp_path_factory.mktemp("filter"))


def run(source: Path, output: Path, model: Path, **options):
    return batch(str(source), str(output), model, channels=CHANNELS, batch_size=16, **options)


def test_estimates_are_those_of_the_filter(tmp_path, model):
    """Against ``filter.run`` on each device alone: another batch size, so to rounding."""
    columns = walks(5, 40)
    write(tmp_path / "in" / "a.parquet", columns)
    result = run(tmp_path / "in", tmp_path / "out", model)
    assert result.faults == []
    assert result.progress.rows == len(columns["time"])
    table = pq.read_table(tmp_path / "out" / "a.parquet")
    names = np.array(table.column("device").to_pylist())
    loaded = fwnkf.load(model)
    for name in np.unique(columns["device"]):
        part = rows(columns, columns["device"] == name)
        y = torch.from_numpy(np.stack([part[channel] for channel in CHANNELS], 1)).float()[None]
        with torch.no_grad():
            track = loaded.run(y)
        for k, state in enumerate(("position_0", "position_1", "velocity_0", "velocity_1")):
            found = table.column(state).to_numpy()[names == name]
            np.testing.assert_allclose(found, track.mean[0, :, k], rtol=1e-4, atol=1e-5)
            deviation = table.column(f"{state}_std").to_numpy()[names == name]
            np.testing.assert_allclose(deviation, track.cov[0, :, k, k].sqrt(), rtol=1e-4)


def test_seven_chunks_have_the_bits_of_one(tmp_path, model):
    """In one run, and in seven runs into the same output."""
    columns = walks(10, 35)
    write(tmp_path / "whole" / "a.parquet", columns)
    run(tmp_path / "whole", tmp_path / "whole-out", model)
    day = ((columns["time"] - 1000.0) / STEP // 5).astype(int)
    for number in range(7):
        write(
            tmp_path / "days" / f"day={6 - number}" / "a.parquet", rows(columns, day == number)
        )  # names run backwards
    run(tmp_path / "days", tmp_path / "days-out", model)
    assert estimates(tmp_path / "days-out") == estimates(tmp_path / "whole-out")
    for number in range(7):
        name = f"day={6 - number}/a.parquet"
        write(tmp_path / "growing" / name, rows(columns, day == number))
        result = run(tmp_path / "growing", tmp_path / "growing-out", model)
        assert (result.progress.parts_done, result.faults) == (1, [])
    assert estimates(tmp_path / "growing-out") == estimates(tmp_path / "whole-out")
    assert states(tmp_path / "growing-out") == states(tmp_path / "days-out") == states(tmp_path / "whole-out")


def states(output: Path) -> dict[str, bytes]:
    """The last state of each device."""
    tables = [pq.read_table(path) for path in (output / "_state").rglob("*.parquet")]
    rows = [row for table in tables for row in table.to_pylist()]
    return {row["device"]: row["state"] for row in sorted(rows, key=lambda row: row["time"])}


def test_a_chunk_in_the_wrong_order_is_refused(tmp_path, model):
    columns = walks(4, 60)
    early = columns["time"] < 1000.2
    write(tmp_path / "in" / "late.parquet", rows(columns, ~early))
    run(tmp_path / "in", tmp_path / "out", model)
    write(tmp_path / "in" / "early.parquet", rows(columns, early))
    result = run(tmp_path / "in", tmp_path / "out", model)
    assert len(result.faults) == 4
    assert all("order of time" in fault["reason"] for fault in result.faults)
    assert not (tmp_path / "out" / "early.parquet").exists()
    assert set(estimates(tmp_path / "out")) == set(np.unique(columns["device"]))


def test_missing_samples_are_masked_steps_and_long_gaps_start_anew(tmp_path, model):
    columns = rows(walks(1, 60), np.arange(48))
    holes = np.delete(np.arange(48), [10, 11, 30])
    columns["time"][40:] += 60.0
    write(tmp_path / "in" / "a.parquet", rows(columns, holes))
    result = run(tmp_path / "in", tmp_path / "out", model)
    assert result.progress.sessions == 2
    y = torch.from_numpy(np.stack([columns[name] for name in CHANNELS], 1)).float()[None]
    mask = torch.zeros_like(y, dtype=torch.bool)
    mask[:, holes] = True
    loaded = fwnkf.load(model)
    with torch.no_grad():
        first, second = loaded.run(y[:, :40], mask=mask[:, :40]), loaded.run(y[:, 40:])
    wanted = torch.cat((first.mean, second.mean), 1)[0, holes, 0]
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "out" / "a.parquet").column("position_0").to_numpy(), wanted, rtol=1e-4, atol=1e-5
    )


def corrupt(folder: Path, count: int) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Devices in a table and in files of their own, of which every tenth is damaged; returns what is to be found."""
    columns = walks(count, 40)
    expected = {}
    names = np.unique(columns["device"])
    for k, name in enumerate(names[::10]):
        mine = np.flatnonzero(columns["device"] == name)
        kind = ("not finite", "time goes backwards", "cannot be read", "no column", "not numbers")[k % 5]
        expected[str(name)] = kind
        if kind == "not finite":
            columns[CHANNELS[0]][mine] = np.nan
            columns[CHANNELS[1]][mine[5:]] = np.inf
        elif kind == "time goes backwards":
            columns["time"][mine[20]] -= 5 * STEP
        else:
            part = rows(columns, mine)
            if kind == "no column":
                part["wrong"] = part.pop(CHANNELS[1])
            elif kind == "not numbers":
                part[CHANNELS[1]] = part[CHANNELS[1]].astype(str)
            path = write(folder / f"device={name}" / "log.parquet", {k: v for k, v in part.items() if k != "device"})
            if kind == "cannot be read":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            columns = rows(columns, columns["device"] != name)
    write(folder / "all.parquet", columns)
    return expected, columns


def test_damaged_inputs_are_named_and_all_others_are_right(tmp_path, model):
    expected, columns = corrupt(tmp_path / "in", 60)
    good = ~np.isin(columns["device"], list(expected))
    write(tmp_path / "good" / "all.parquet", rows(columns, good))
    run(tmp_path / "good", tmp_path / "good-out", model)
    result = run(tmp_path / "in", tmp_path / "out", model)
    found = {fault["device"]: fault["reason"] for fault in result.faults}
    assert set(found) == set(expected)
    assert [name for name, kind in expected.items() if kind not in found[name]] == []
    assert estimates(tmp_path / "out") == estimates(tmp_path / "good-out")


def test_another_rate_is_set_aside_or_taken_from_the_stamps(tmp_path, model):
    columns = walks(3, 40)
    columns["time"] = 1000.0 + 1.1 * (columns["time"] - 1000.0)
    write(tmp_path / "in" / "a.parquet", columns)
    assert all("Hz" in fault["reason"] for fault in run(tmp_path / "in", tmp_path / "out", model).faults)
    run(tmp_path / "in", tmp_path / "stamps", model, stamps=True)
    part = rows(columns, columns["device"] == columns["device"][0])
    y = torch.from_numpy(np.stack([part[channel] for channel in CHANNELS], 1)).float()[None]
    dt = torch.full(y.shape[:2], 1.1 * STEP)
    dt[:, 0] = STEP
    with torch.no_grad():
        wanted = fwnkf.load(model).run(y, dt=dt).mean[0, :, 2]
    found = pq.read_table(tmp_path / "stamps" / "a.parquet").column("velocity_0").to_numpy()[: len(wanted)]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_logs_of_any_format_are_devices_by_their_folder(tmp_path, model):
    columns = walks(2, 40)
    for name in np.unique(columns["device"]):
        part = rows(columns, columns["device"] == name)
        folder = tmp_path / "logs" / str(name)
        folder.mkdir(parents=True)
        text = "t [s],position_x [m],position_y [m],position_z [m]\n"
        values = zip(part["time"], part[CHANNELS[0]], part[CHANNELS[1]], strict=True)
        (folder / "flight.csv").write_text(text + "".join(f"{t:.17g},{a:.17g},{b:.17g},0.0\n" for t, a, b in values))
    result = batch(
        str(tmp_path / "logs"), str(tmp_path / "out"), model, channels=("position_x", "position_y"), batch_size=16
    )
    assert result.faults == []
    write(tmp_path / "table" / "a.parquet", columns)
    run(tmp_path / "table", tmp_path / "table-out", model)
    found, wanted = estimates(tmp_path / "out"), estimates(tmp_path / "table-out")
    assert set(found) == set(wanted)
    for name, data in wanted.items():
        values = np.frombuffer(data).reshape(-1, 9)[:, 1:]
        np.testing.assert_array_equal(np.frombuffer(found[name]).reshape(-1, 9)[:, 1:], values)


def test_a_stopped_run_goes_on_with_resume_and_gives_the_same_files(tmp_path, model):
    columns = walks(6, 40)
    for k in range(3):
        write(tmp_path / "in" / f"{k}.parquet", rows(columns, np.char.endswith(columns["device"], str(k))))
    run(tmp_path / "in", tmp_path / "whole", model)

    def stop(state):
        if state.parts_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "in", tmp_path / "out", model, progress=stop)
    assert not (tmp_path / "out" / MANIFEST).exists()
    with pytest.raises(ConfigError, match="--resume"):
        run(tmp_path / "in", tmp_path / "out", model)
    result = run(tmp_path / "in", tmp_path / "out", model, resume=True)
    assert result.progress.parts_done == 1
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")
    assert not (tmp_path / "out" / PARTS).exists()
    assert (
        sum(part["rows"] for part in results(str(tmp_path / "out")))
        == np.isin(columns["device"], [f"device-{k:05}" for k in range(3)]).sum()
    )


def test_a_stopped_run_goes_on_with_its_own_settings_only(tmp_path, model):
    """Also before there is a manifest: another filter is refused, and the size of batches is that of the first run."""
    write(tmp_path / "in" / "0.parquet", walks(20, 30))  # many devices choose larger batches than the few that are left

    def go(output: str, **options):
        return batch(
            str(tmp_path / "in"), str(tmp_path / output), options.pop("use", model), channels=CHANNELS, **options
        )

    def stop(_):
        raise KeyboardInterrupt

    columns = walks(3, 30, seed=1)
    columns["device"] = np.char.add("other-", columns["device"])
    write(tmp_path / "in" / "1.parquet", columns)
    go("whole")
    with pytest.raises(KeyboardInterrupt):
        go("out", progress=stop)
    other = save_filter(tmp_path / "other", units=4)
    with pytest.raises(ConfigError, match=r"other settings \(digest was"):
        go("out", use=other, resume=True)
    go("out", resume=True)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_what_does_not_fit_an_output_is_refused(tmp_path, model):
    write(tmp_path / "in" / "a.parquet", walks(2, 30))
    run(tmp_path / "in", tmp_path / "out", model)
    other = save_filter(tmp_path / "other", units=4)
    with pytest.raises(ConfigError, match="another --output"):
        run(tmp_path / "in", tmp_path / "out", other)
    write(tmp_path / "in" / "a.parquet", walks(3, 30))
    with pytest.raises(DataError, match="changed since"):
        run(tmp_path / "in", tmp_path / "out", model)
    with pytest.raises(ConfigError, match="lies in the input"):
        run(tmp_path / "in", tmp_path / "in" / "out", model)
    with pytest.raises(DataError, match="nothing to filter"):
        run(tmp_path / "empty", tmp_path / "out2", model)


def test_two_devices_in_opposite_order_have_no_right_order(tmp_path, model):
    columns = walks(2, 50)
    first, early = columns["device"] == "device-00000", columns["time"] < 1000.2
    write(tmp_path / "in" / "a.parquet", rows(columns, first == early))
    write(tmp_path / "in" / "b.parquet", rows(columns, first != early))
    with pytest.raises(DataError, match="no order is right"):
        run(tmp_path / "in", tmp_path / "out", model)


def test_command_and_fleet_page_name_the_worst_devices(tmp_path, model, capsys):
    columns = walks(12, 300)
    moment = columns["time"] - 1000.0
    wrong = columns["device"] == "device-00003"
    columns[CHANNELS[1]][wrong] += 30 * np.sin(2 * np.pi * 23.0 * moment[wrong])
    columns["time"][columns["device"] == "device-00007"] *= -1
    write(tmp_path / "in" / "a.parquet", columns)
    page = tmp_path / "fleet.html"
    words = ["batch", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--filter", str(model)]
    assert main([*words, "--channels", ",".join(CHANNELS), "--html", str(page), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [item["device"] for item in told["set_aside"]] == ["device-00007"]
    fleet = read_fleet(str(tmp_path / "out"))
    worst = int(np.nanargmax(fleet.peak_ratio))
    assert fleet.device[worst] == "device-00003"
    assert fleet.device[int(np.nanargmax(fleet.nis))] == "device-00003"
    assert fleet.peak_channel[worst] == CHANNELS[1]
    assert abs(fleet.peak_hz[worst] - 23.0) < 1.0
    text = page.read_text()
    assert text.index("device-00003") < text.index("device-00001")
    assert "time goes backwards" in text
    assert "mathdefault" not in text  # formulas are not drawn in a page: ticks are plain numbers
    assert main([*words, "--batch-size", "0"]) == 2
    assert main([*words, "--channels", "x"]) == 1
    assert "name a column for each" in capsys.readouterr().err


def test_s3_gives_the_same_files(tmp_path, model, monkeypatch):
    """Against an S3 server on this machine; locks and lost states work there too."""
    server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    moto = server.ThreadedMotoServer("127.0.0.1", 0)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="fleet")
        query = f"?endpoint_override={host}:{port}&scheme=http"
        columns = walks(4, 40)
        early = columns["time"] < 1000.2
        system, _ = pa.fs.FileSystem.from_uri(f"s3://fleet/in{query}")
        for name, part in (("day=0", early), ("day=1", ~early)):
            path = write(tmp_path / "in" / name / "a.parquet", rows(columns, part))
            with system.open_output_stream(f"fleet/in/{name}/a.parquet") as stream:
                stream.write(path.read_bytes())
        run(tmp_path / "in", tmp_path / "out", model)
        batch(f"s3://fleet/in{query}", f"s3://fleet/out{query}", model, channels=CHANNELS, batch_size=16)
        for name in ("day=0/a.parquet", "day=1/a.parquet", "_state/day=1/a.parquet", MANIFEST):
            with system.open_input_stream(f"fleet/out/{name}") as stream:
                assert stream.read() == (tmp_path / "out" / name).read_bytes(), name
        with Lock(Store(f"s3://fleet/out{query}")), pytest.raises(InUseError, match=f"in use by process {os.getpid()}"):
            batch(f"s3://fleet/in{query}", f"s3://fleet/out{query}", model, channels=CHANNELS, batch_size=16)
        system.delete_file("fleet/out/_state/day=1/a.parquet")
        result = batch(f"s3://fleet/in{query}", f"s3://fleet/out{query}", model, channels=CHANNELS, batch_size=16)
        assert "4 device(s) cannot go on" in result.notes[0]
    finally:
        moto.stop()


def in_own_network(words: list[str], **options) -> subprocess.Popen:
    """A command with nothing but the loopback device: Ray looks for the metadata of cloud machines."""
    pytest.importorskip("ray")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("unshare and ip are needed for a network of its own")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("the system does not allow a network namespace")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    line = " ".join(shlex.quote(word) for word in words)
    command = ["unshare", "-rn", "sh", "-c", f"ip link set lo up; exec {line}"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, **options)


def command(source: Path, output: Path, model: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "fwnkf.cli", "batch", "--input", str(source), "--output", str(output)]
    return [*words, "--filter", str(model), "--channels", ",".join(CHANNELS), "--batch-size", "16", *more]


@pytest.mark.process
def test_a_process_of_its_own_knows_the_systems_of_the_package(tmp_path, model):
    write(tmp_path / "in" / "a.parquet", walks(2, 20))
    words = command(tmp_path / "in", tmp_path / "out", model, "--engine", "loop")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.process
def test_ray_writes_the_files_of_the_loop(tmp_path, model):
    columns = walks(8, 30)
    for k in range(4):
        write(tmp_path / "in" / f"{k}.parquet", rows(columns, np.char.endswith(columns["device"], str(k))))
    run(tmp_path / "in", tmp_path / "loop", model)
    words = command(tmp_path / "in", tmp_path / "ray", model, "--engine", "ray", "--workers", "2")
    process = in_own_network(words, stdout=subprocess.DEVNULL)
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    assert digest(tmp_path / "ray") == digest(tmp_path / "loop")


def workers_of(process: subprocess.Popen) -> list[int]:
    """Processes of Ray that filter, below a command."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = [line.split(None, 2) for line in listing.splitlines()[1:]]
    family, grown = {process.pid}, True
    while grown:
        more = {int(pid) for pid, parent, _ in table if int(parent) in family} - family
        grown = bool(more)
        family |= more
    return [int(pid) for pid, _, words in table if int(pid) in family and "MapWorker" in words]


@pytest.mark.slow
def test_killed_workers_and_a_killed_driver_change_no_byte(tmp_path, model):
    """Three workers killed with -9, then the command itself, then --resume."""
    columns = walks(200, 600)
    for k in range(20):
        mine = np.char.endswith(columns["device"], f"{k:02}")
        write(tmp_path / "in" / f"{k:02}.parquet", rows(columns, mine))
    run(tmp_path / "in", tmp_path / "loop", model)
    words = command(tmp_path / "in", tmp_path / "ray", model, "--engine", "ray", "--workers", "2")
    process = in_own_network(words, stdout=subprocess.DEVNULL)
    parts, killed = tmp_path / "ray" / PARTS, 0
    deadline = time.monotonic() + 900
    while killed < 3:
        assert process.poll() is None, "the run ended before three workers were killed"
        assert time.monotonic() < deadline
        done = len(list(parts.glob("*.json"))) if parts.exists() else 0
        found = workers_of(process)
        if found and done > 2 * killed:
            os.kill(found[0], signal.SIGKILL)
            killed += 1
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "ray" / MANIFEST).exists()
    again = in_own_network([*words, "--resume"], stdout=subprocess.DEVNULL)
    _, errors = again.communicate(timeout=900)
    assert again.returncode == 0, errors
    assert digest(tmp_path / "ray") == digest(tmp_path / "loop")
