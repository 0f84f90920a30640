"""``Filter.run`` and ``fwnkf.smooth`` on frames: the bits of the tensors, in the library that came in."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pandas
import polars
import pytest
import torch
import xarray

import fwnkf
from fwnkf.core.preprocess import Calibration, CalibrationConfig
from fwnkf.errors import ConfigError, DataError, NumericalFailureError
from fwnkf.filters.frames import channel_names, control_names

from ..conformance.cases import CASES
from .libraries import LIBRARIES, by_column, by_index, in_polars, in_xarray, names, time_of, values

STEP = 0.01


def tracker(dtype: torch.dtype = torch.float64, **options) -> fwnkf.EKF:
    """Position and velocity in continuous time, so that a step may have any length."""
    system = fwnkf.LinearSystem.of(
        F=torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=dtype),
        Q=torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=dtype),
        H=torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=dtype),
        R=torch.diag(torch.tensor([0.04, 0.25], dtype=dtype)),
        layout=(("height", "euclidean", 1), ("climb", "euclidean", 1)),
        channels=("height", "climb"),
        **{"continuous": True, "dt": STEP, **options},
    )
    return fwnkf.EKF(system)


def fixed_step() -> fwnkf.EKF:
    return tracker(continuous=False, dt=0.1)


def columns(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {"height": generator.standard_normal(count).cumsum(), "climb": generator.standard_normal(count)}


def tensor(data: dict[str, np.ndarray], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.stack(list(data.values()), -1)).to(dtype)[None]


def assert_same(frame, mean: torch.Tensor, cov: torch.Tensor) -> None:
    """Every column of a frame has the bits of a trajectory."""
    assert names(frame) == ["height", "climb", "height_std", "climb_std"]
    std = cov[0].diagonal(dim1=-2, dim2=-1).sqrt()
    for index, name in enumerate(("height", "climb")):
        for column, expected in ((name, mean[0, :, index]), (f"{name}_std", std[:, index])):
            found = values(frame, column)
            assert found.dtype == expected.numpy().dtype
            np.testing.assert_array_equal(found, expected.numpy())


# ---- the same bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [50, 400])  # by the loop, and by the engine of linear models
def test_regular_stamps_are_the_run_without_dt(library, dtype, count):
    data, time, model = columns(count), STEP * np.arange(count), tracker(dtype)
    frame = LIBRARIES[library](time, data)
    track = model.run(tensor(data, dtype))
    found = model.run(frame)
    assert type(found) is type(frame)
    assert_same(found, track.mean, track.cov)
    np.testing.assert_array_equal(time_of(found), time)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["seconds", "dates", "lengths", "microseconds"])
def test_irregular_stamps_give_the_lengths_of_the_steps(library, kind):
    data, model = columns(60), tracker()
    stamps = np.random.default_rng(1).integers(1_000, 50_000, 60).cumsum()  # microseconds
    dates = {"dates": np.datetime64("2026-01-02T03:04:05"), "lengths": np.timedelta64(0, "us")}
    time = stamps if kind == "microseconds" else stamps * 1e-6
    if kind in dates:
        time = (dates[kind] + stamps.astype("m8[us]")).astype("M8[ns]" if kind == "dates" else "m8[ns]")
    frame = LIBRARIES[library](time, data)
    if kind == "microseconds":
        frame = (
            frame.rename_axis(index="time_us") if library == "pandas, index"
            else frame.rename(columns={"time": "time_us"}) if library == "pandas, column"
            else frame.rename({"time": "time_us"})
        )  # fmt: skip
    steps = np.diff(time) if kind == "seconds" else np.diff(stamps * 1000) * 1e-9
    if kind == "microseconds":
        steps = np.diff(stamps) * 1e-6
    dt = torch.from_numpy(np.concatenate([[STEP], steps]))[None]
    track = model.run(tensor(data), dt=dt)
    found = model.run(frame)
    assert_same(found if kind != "microseconds" else _without(found, "time_us"), track.mean, track.cov)
    if kind != "microseconds":
        np.testing.assert_array_equal(time_of(found), time)


def _without(frame, name: str):
    if isinstance(frame, polars.DataFrame):
        return frame.drop(name)
    if isinstance(frame, xarray.Dataset):
        return frame.drop_vars(name)
    return frame.drop(columns=name, errors="ignore")


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_values_are_masked(library):
    data, model = columns(80), tracker()
    data["height"][10:30] = math.nan
    data["climb"][[0, 25]] = math.nan
    y = tensor(data)
    track = model.run(y, mask=~y.isnan())
    assert_same(model.run(LIBRARIES[library](STEP * np.arange(80), data)), track.mean, track.cov)


@pytest.mark.parametrize("make", [by_index, by_column, in_polars])
def test_dates_of_a_zone_are_the_same_instants(make):
    """Two of them with the same hour on the clock, at the end of summer time."""
    hours = np.array(["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30"], "M8[ns]")
    zoned = pandas.DatetimeIndex(hours, tz="UTC").tz_convert("Europe/Berlin")
    assert [time.hour for time in zoned] == [1, 2, 2]
    data, model = columns(3), tracker()
    track = model.run(tensor(data), dt=torch.tensor([[STEP, 3600.0, 3600.0]], dtype=torch.float64))
    time = zoned
    if make is in_polars:
        time = polars.Series(hours).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    assert_same(model.run(make(time, data)), track.mean, track.cov)


def test_a_part_of_a_frame_keeps_its_index_beside_a_column_of_the_time():
    data, time = columns(30), STEP * np.arange(30)
    part = by_column(time, data | {"collect": np.zeros(30), "data_vars": np.zeros(30)})[10:20]
    track = tracker().run(tensor(data)[:, 10:20])
    found = tracker().run(part)
    assert_same(found, track.mean, track.cov)
    assert found.index.tolist() == list(range(10, 20))
    np.testing.assert_array_equal(found["time"], time[10:20])


@pytest.mark.parametrize("name", CASES)
def test_every_filter_runs_on_a_frame_with_a_time(name):
    """Those that take dt or count in steps, with controls, with preprocessing: the bits of their own tensors."""
    case = CASES[name]
    model = case.build(torch.float64)
    generator = np.random.default_rng(0)
    count = 6 * model.input_sizes.block
    names = (*channel_names(model), *control_names(model))
    step = (model.nominal_step or 1.0) / model.input_sizes.block
    frame = polars.DataFrame({"time": step * np.arange(count), **{n: generator.standard_normal(count) for n in names}})
    with torch.no_grad():
        track = model.run(*model.samples(frame))
    found = model.run(frame)
    assert found.columns[0] == "time"
    np.testing.assert_array_equal(found.to_numpy()[:, 1 : 1 + track.mean.shape[-1]], track.mean[0].numpy())


def test_missing_values_of_every_kind():
    """None in polars, and the nullable types of pandas, integers among them."""
    model, data = tracker(), {"height": [1.0, None, 3.0, 4.0], "climb": [1, 2, None, 4]}
    mask = torch.tensor([[[True, True], [False, True], [True, False], [True, True]]])
    y = torch.tensor([[[1.0, 1.0], [0.0, 2.0], [3.0, 0.0], [4.0, 4.0]]], dtype=torch.float64)
    track = model.run(y, mask=mask)
    for frame in (polars.DataFrame(data), pandas.DataFrame(data).astype({"height": "Float64", "climb": "Int64"})):
        assert_same(model.run(frame), track.mean, track.cov)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_without_a_time_has_rows_that_are_steps(library):
    data, model = columns(30), fixed_step()
    track = model.run(tensor(data))
    assert_same(model.run(LIBRARIES[library](None, data)), track.mean, track.cov)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lag", [None, 5])
def test_smoothed_frames(library, lag):
    data, model = columns(50), tracker()
    smoothed = fwnkf.smooth(model, model.run(tensor(data), smoothing=True), lag=lag)
    frame = LIBRARIES[library](STEP * np.arange(50), data)
    assert_same(fwnkf.smooth(model, frame, lag=lag), smoothed.mean, smoothed.cov)


def test_priors_and_engines_are_those_of_run():
    data, model = columns(30), tracker()
    prior = fwnkf.Gaussian(torch.tensor([5.0, -1.0]).double(), 9.0 * torch.eye(2).double())
    frame = by_index(STEP * np.arange(30), data)
    for options in ({"prior": prior}, {"prior": prior, "prior_at": "before_first_step"}, {"engine": "scan"}):
        track = model.run(tensor(data), **options)
        assert_same(model.run(frame, **options), track.mean, track.cov)


def test_samples_give_the_whole_trajectory():
    data, model = columns(30), tracker()
    stamps = STEP * np.arange(30.0) ** 1.5
    track = model.run(*model.samples(in_polars(stamps, data)))
    assert_same(model.run(in_polars(stamps, data)), track.mean, track.cov)
    assert track.log_likelihood.shape == (1,)


def test_parameters_that_are_learned_do_not_stop_a_frame():
    model = fwnkf.KF(F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1), learn=("Q", "R"))
    with torch.no_grad():
        track = model.run(torch.ones(1, 20, 1))
    found = model.run(pandas.DataFrame({"y": np.ones(20)}))
    np.testing.assert_array_equal(found["x"].to_numpy(), track.mean[0, :, 0].numpy())


# ---- controls, blocks, origins, rotations ---------------------------------------------------------------------------


def driven() -> fwnkf.EKF:
    system = fwnkf.System.of(
        lambda speed, push, dt: speed + dt * push,
        lambda speed: speed,
        state=["speed"], measurement=["speed"], control=["push"], Q=[0.01], R=[0.1], dt=0.1,
    )  # fmt: skip
    return fwnkf.EKF(system.double())


def test_a_control_acts_from_its_row_to_the_next():
    data = {"speed": np.zeros(6), "push": np.array([1.0, 2.0, math.nan, 4.0, 5.0, 6.0])}
    acting = torch.tensor([1.0, 1.0, 2.0, 2.0, 4.0, 5.0]).double()[None, :, None]
    track = driven().run(torch.zeros(1, 6, 1).double(), u=acting)
    found = driven().run(by_column(None, data))
    np.testing.assert_array_equal(found["speed"].to_numpy(), track.mean[0, :, 0].numpy())


def test_other_columns_by_name_with_a_factor():
    data = {"v_cm": np.arange(6.0), "force": np.arange(6.0), "speed": np.full(6, 100.0), "clock": 0.1 * np.arange(6)}
    chosen = {"speed": "v_cm*0.01", "push": "force", "time": "clock"}
    acting = torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0, 4.0]).double()[None, :, None]
    track = driven().run(0.01 * torch.arange(6.0).double()[None, :, None], u=acting, dt=_steps(data["clock"], 0.1))
    found = driven().run(polars.DataFrame(data), columns=chosen)
    assert found.columns == ["clock", "speed", "speed_std"]
    np.testing.assert_array_equal(found["speed"].to_numpy(), track.mean[0, :, 0].numpy())


def _steps(time: np.ndarray, first: float) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([[first], np.diff(time)]))[None]


def test_absolute_numbers_where_the_state_has_an_origin():
    one = torch.eye(1)
    system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, layout=(("north", "euclidean", 1, (5_400_000.0,)),))
    model = fwnkf.EKF(system)
    relative = torch.tensor([[[0.25], [0.5], [1.0]]])
    found = model.run(pandas.DataFrame({"y": relative[0, :, 0].double().numpy() + 5_400_000.0}))
    expected = model.run(relative).mean[0, :, 0].double() + 5_400_000.0
    np.testing.assert_array_equal(found["north"].to_numpy(), expected.numpy())


def test_a_state_with_a_rotation_has_deviations_of_its_tangent_space():
    system = fwnkf.System.of(
        lambda turn: turn, lambda turn: turn[..., 1:], state={"turn": "quaternion"}, measurement={"v": 3}, Q=[1e-3] * 3,
        R=[0.1] * 3,
    )  # fmt: skip
    frame = pandas.DataFrame({f"v_{axis}": np.zeros(4) for axis in "xyz"})
    frame.attrs["units"] = {"v_x": "1"}
    found = fwnkf.EKF(system).run(frame)
    assert list(found) == [*(f"turn_{axis}" for axis in "wxyz"), *(f"turn_r{axis}_std" for axis in "xyz")]
    assert found.attrs["units"]["turn_rx_std"] == "rad"


def test_blocks_of_samples_have_the_time_of_their_last():
    """Raw samples have no names of their own: their columns are called y_0, y_1, or are named."""
    model = fixed_step()
    model.preprocess = Calibration(CalibrationConfig(channels=2, block=3), model.system).double()
    data, time = columns(10), 0.1 / 3 * np.arange(10)
    track = model.run(tensor(data))
    assert track.mean.shape[1] == 3
    chosen = {"y_0": "height", "y_1": "climb"}
    for library in LIBRARIES.values():
        found = model.run(library(time, data), columns=chosen)
        assert_same(found, track.mean, track.cov)
        np.testing.assert_array_equal(time_of(found), time[[2, 5, 8]])


# ---- units ----------------------------------------------------------------------------------------------------------


def test_units_in_labels_stay_in_labels():
    data = columns(5)
    for make in (by_column, in_polars):
        frame = make(None, {"t [ms]": 10 * np.arange(5), "height [m]": data["height"], "climb (m/s)": data["climb"]})
        found = tracker().run(frame)
        assert list(found.columns) == ["t [ms]", "height [m]", "climb [m/s]", "height_std [m]", "climb_std [m/s]"]


def test_units_in_attributes_stay_in_attributes():
    frame = by_index(STEP * np.arange(5), columns(5))
    frame.attrs = {"units": {"height": "m"}, "flight": 7}
    assert tracker().run(frame).attrs == {"units": {"height": "m", "height_std": "m"}, "flight": 7}
    data = in_xarray(STEP * np.arange(5), columns(5)).assign_attrs(flight=7)
    data["height"].attrs["units"] = "m"
    found = tracker().run(data)
    assert found.attrs == {"flight": 7}
    assert [found[name].attrs.get("units") for name in names(found)] == ["m", None, "m", None]


def test_signals_are_converted_to_the_unit_of_their_channel_as_those_of_logs_are():
    eye = torch.eye(3).double()
    model = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye, channels=tuple(f"gyro_{axis}" for axis in "xyz"))
    rates = np.random.default_rng(0).standard_normal((8, 3))
    track = model.run(torch.from_numpy(rates * math.radians(1))[None])
    frame = pandas.DataFrame(rates, columns=[f"w{axis} [deg/s]" for axis in "xyz"])
    np.testing.assert_array_equal(model.run(frame)["x_x"], track.mean[0, :, 0].numpy())


def test_angles_in_degrees_are_an_error():
    system = fwnkf.System.of(lambda a: a, lambda a: a, state={"a": "angle"}, measurement={"a": "angle"}, Q=[1], R=[1])
    with pytest.raises(DataError, match=r"'a' is in degrees; convert it to radians"):
        fwnkf.EKF(system).run(pandas.DataFrame({"a [deg]": [1.0, 2.0]}))


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_channel_is_named_with_the_columns_that_are_there(library):
    data = columns(5)
    frame = LIBRARIES[library](STEP * np.arange(5), {"heigth": data["height"], "climb": data["climb"]})
    with pytest.raises(DataError, match=r"no column named 'height'; did you mean 'heigth'\? Columns: heigth, climb"):
        tracker().run(frame)


@pytest.mark.parametrize("library", LIBRARIES)
def test_stamps_that_go_back_are_named_by_their_row(library):
    time = STEP * np.array([0, 1, 2, 5, 4, 6])
    with pytest.raises(DataError, match=r"row 4: the time goes back by 0.01 s \(1 such rows\); sort the frame"):
        tracker().run(LIBRARIES[library](time, columns(6)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_unsigned_stamps_that_go_back_are_seen(library):
    frame = LIBRARIES[library](np.array([2, 3, 1], np.uint32), columns(3))
    with pytest.raises(DataError, match="row 2: the time goes back by 2 s"):
        tracker().run(frame)


@pytest.mark.parametrize("library", LIBRARIES)
def test_stamps_that_are_missing_are_named_by_their_row(library):
    time = np.array(["2026-01-01", "2026-01-02", "NaT"], "M8[ns]")
    with pytest.raises(DataError, match=r"row 2: the time 'time' is missing"):
        tracker().run(LIBRARIES[library](time, columns(3)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_gap_is_an_error_of_a_filter_with_a_fixed_step(library):
    time = 0.1 * np.array([0, 1, 2, 3, 6, 7, 8])
    with pytest.raises(DataError, match=r"row 4: 0.3 s after the row before .* of 0.1 s. Give every step a row"):
        fixed_step().run(LIBRARIES[library](time, columns(7)))
    with pytest.raises(DataError, match=r"runs at 10 Hz .* has 50 Hz"):
        fixed_step().run(LIBRARIES[library](0.02 * np.arange(7), columns(7)))


def test_a_gap_is_an_error_of_a_filter_that_counts_in_steps():
    frame = pandas.DataFrame({"y": np.zeros(6)}, index=0.1 * np.array([0, 1, 2, 3, 6, 7]))
    with pytest.raises(DataError, match=r"row 4: 0.3 s after the row before .* fixed step of 0.1 s"):
        fwnkf.RKN(1, 1).run(frame)


def test_late_stamps_are_no_gap():
    time = 0.1 * np.arange(40) + 0.02 * np.random.default_rng(0).random(40)
    data = columns(40)
    track = fixed_step().run(tensor(data))
    assert_same(fixed_step().run(by_index(time, data)), track.mean, track.cov)


def test_a_value_that_is_no_number_is_an_error_with_its_row():
    data = columns(5)
    data["climb"][3] = math.inf
    with pytest.raises(NumericalFailureError, match="stream DataFrame, step 3"):
        tracker().run(by_index(STEP * np.arange(5), data))


@pytest.mark.unchecked("the checks say it in words of their own")
def test_what_is_no_frame_is_said():
    with pytest.raises(ConfigError, match="a list is neither a tensor nor a DataFrame"):
        tracker().run([1.0, 2.0])
    with pytest.raises(ConfigError, match="call its collect"):
        tracker().run(in_polars(None, columns(3)).lazy())
    with pytest.raises(ConfigError, match="make a Dataset of it"):
        tracker().run(in_xarray(None, columns(3))["height"])
    with pytest.raises(DataError, match="no rows"):
        tracker().run(by_column(None, columns(0)))
    with pytest.raises(DataError, match=r"column 'climb' has no numbers"):
        tracker().run(polars.DataFrame({"height": [1.0], "climb": ["up"]}))


def test_several_records_in_a_dataset_are_not_guessed_at():
    data = xarray.Dataset({"height": (("flight", "time"), np.zeros((2, 5)))})
    with pytest.raises(DataError, match=r"which dimension is the time\? There are: flight \(2\), time \(5\)"):
        tracker().run(data)


def test_a_time_without_a_unit_is_not_guessed_at():
    frame = polars.DataFrame({"time": 10_000 * np.arange(5), **columns(5)})
    with pytest.raises(DataError, match=r"has no unit, and its values look like us; write it as 'time \[us\]'"):
        tracker().run(frame)


def test_options_of_tensors_and_of_frames_are_not_mixed():
    frame, model = by_index(None, columns(3)), tracker()
    with pytest.raises(ConfigError, match="mask=… is for tensors, and y is a DataFrame"):
        model.run(frame, mask=torch.ones(1, 3, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match="columns=… is for frames"):
        model.run(tensor(columns(3)), columns={})
    with pytest.raises(ConfigError, match="the filter has no 'hight'; it takes height, climb, time"):
        model.run(frame, columns={"hight": "height"})
    with pytest.raises(DataError, match="no column named 'up'"):
        model.run(frame, columns={"climb": "up"})


def test_without_narwhals_the_extra_is_named_and_a_dataset_still_runs():
    code = """
import sys
sys.modules["narwhals"] = None
import fwnkf, numpy, pandas, torch, xarray
one = torch.eye(1)
kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
print(len(kf.run(xarray.Dataset({"y": ("step", numpy.zeros(3))}))["x"]))
try:
    kf.run(pandas.DataFrame({"y": numpy.zeros(3)}))
except fwnkf.errors.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    count, error = done.stdout.strip().splitlines()
    assert count == "3"
    assert "narwhals cannot be imported" in error
    assert "pip install 'fwnkf[frames]'" in error


def test_running_tensors_imports_no_library_of_frames():
    code = """
import sys, torch, fwnkf
one = torch.eye(1)
fwnkf.KF(F=one, H=one, Q=one, R=one).run(torch.zeros(1, 3, 1))
print(sorted({"narwhals", "pandas", "polars", "xarray", "fwnkf.frames"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[]", done.stderr
