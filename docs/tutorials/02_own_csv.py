"""
Your own CSV, without ground truth
==================================

Most logs have no ground truth. The level and the frequencies of the noise can be estimated from the
measurements alone: choose the model that best predicts each sample from the previous ones.

Here the logs are written by the tutorial itself, so that the result can be checked: the height of a
balloon, measured by a barometer beside a pump that runs at about 4.2 Hz.
"""

import csv
import math
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import fwnkf
from fwnkf.logs import read_table
from fwnkf.systems.motion import ConstantVelocity, ConstantVelocityConfig

torch.manual_seed(1)
rate, steps = 50.0, 800
folder = Path(tempfile.mkdtemp())
for number in range(4):
    pushes = 0.3 * torch.randn(steps, dtype=torch.float64) / math.sqrt(rate)
    velocity = pushes.cumsum(0)
    height = 100 + (velocity / rate).cumsum(0)
    turns = 4.2 / rate + 0.01 * torch.randn(steps)  # its speed is not quite constant
    phase = 2 * math.pi * turns.cumsum(0)
    pump = 0.25 * phase.sin()
    measured = height + pump + 0.15 * torch.randn(steps)
    with open(folder / f"ascent_{number}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t [s]", "height [m]"])
        for k, value in enumerate(measured.tolist()):
            writer.writerow((f"{k / rate:.2f}", f"{value:.4f}"))

# %%
# Read it
# -------
# One table for each file. Units in brackets are read and checked.

tables = [read_table(path) for path in sorted(folder.glob("*.csv"))]
print(list(tables[0].columns), len(tables[0].columns["t"]))
heights = [torch.as_tensor(table.columns["height"]) for table in tables]
y = torch.stack(heights).unsqueeze(-1)

# %%
# Fit it
# ------
# The model is a height with a random velocity. The fit finds the level of the process noise, that of
# the white noise, and one oscillator; without ``oscillators=1`` it selects their number on records
# that it was not fitted to. A fifth of the records is held out.

system = ConstantVelocity(ConstantVelocityConfig(dims=1, dt=1 / rate))
result = fwnkf.fit(system, y, oscillators=1)
print("\n".join(result.report.lines()))

# %%
# NIS close to one on the held-out record and white innovations: the filter is consistent.
# The frequency of the pump is found to a few hundredths of a hertz.

with torch.no_grad():
    trajectory = result.filter.double().run(y)
figure, axis = plt.subplots()
time = torch.arange(steps) / rate
part = slice(500, 650)
mean, std = trajectory.mean[0, part, 0], trajectory.cov[0, part, 0, 0].sqrt()
axis.plot(time[part], y[0, part, 0], ".", color="#8c8c8c", label="measured")
axis.plot(time[part], mean, label="estimate")
low, high = mean - 1.96 * std, mean + 1.96 * std
axis.fill_between(time[part], low, high, alpha=0.2, label="95 %")
axis.set(xlabel="time (s)", ylabel="height (m)")
axis.legend(ncols=3)

# %%
# From the shell, the same is ``fwnkf fit FOLDER --system constant_velocity --set dims=1 --observe
# height --time t -o fitted``.
