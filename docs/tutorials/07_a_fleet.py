"""
A fleet on Ray
==============

A hundred devices send their samples once a day. We filter two days of them with one command. On
the second day every device continues from its state of the first. Then we find the device with a problem.
Small inputs like this one run in a plain loop; above two million rows the same command uses Ray and
writes the same bytes.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import fwnkf
from fwnkf.cli import main

folder = Path(tempfile.mkdtemp())
rate = 50.0
generator = np.random.default_rng(0)

# %%
# The filter
# ----------
# A height with a random velocity, measured with a standard deviation of 0.2 m.

system = fwnkf.LinearSystem.of(
    F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]),
    Q=torch.tensor([[0.0, 0.0], [0.0, 0.5]]),
    H=torch.tensor([[1.0, 0.0]]),
    R=torch.tensor([[0.04]]),
    continuous=True,
    dt=1 / rate,
)
fwnkf.save(fwnkf.EKF(system), folder / "filter")

# %%
# Two days of samples
# -------------------
# One Parquet file for each day, a row for each sample. Device 42 vibrates from the second day on.

devices, steps = 100, 200
time = np.arange(2 * steps) / rate
velocity = 0.1 * generator.normal(size=(devices, 2 * steps)).cumsum(1)
height = velocity.cumsum(1) / rate + 0.2 * generator.normal(size=(devices, 2 * steps))
height[42, steps:] += np.sin(2 * np.pi * 11.0 * time[steps:])


def samples(day: slice) -> pa.Table:
    """The samples of all devices on one day."""
    names = np.repeat([f"device-{number:03}" for number in range(devices)], steps)
    values = height[:, day].ravel()
    times = np.tile(time[day], devices)
    return pa.table({"device": names, "time": times, "height": values})


command = (
    f"batch --input {folder}/samples --output {folder}/estimates --filter {folder}/filter "
    f"--channels height --html {folder}/fleet.html"
)
(folder / "samples").mkdir()
for number, day in enumerate((slice(0, steps), slice(steps, 2 * steps))):
    pq.write_table(samples(day), folder / "samples" / f"day-{number}.parquet")
    main(command.split())

# %%
# What is in the output
# ---------------------
# Estimates are partitioned as the input is; states, the filter and the manifest are beside them.

print(sorted(path.name for path in (folder / "estimates").iterdir()))
manifest = json.loads((folder / "estimates" / "_manifest.json").read_text())
print(sorted(manifest))

# %%
# Which device has a problem?
# ---------------------------
# NIS is one for a consistent filter. ``fleet.html`` lists the worst device first.

files = sorted((folder / "estimates" / "_fleet").rglob("*.parquet"))
tables = [pq.read_table(path) for path in files]
sessions = pa.concat_tables(tables).to_pydict()
figure, axis = plt.subplots()
axis.plot(sessions["nis"], ".")
worst = int(np.argmax(sessions["nis"]))
axis.annotate(sessions["device"][worst], (worst, sessions["nis"][worst]), ha="right")
axis.set(xlabel="session", ylabel="NIS")
