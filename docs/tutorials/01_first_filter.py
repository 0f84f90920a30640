"""
A first filter
==============

A position is measured 200 times a second by a sensor on a vibrating frame. The vibration
at 23 Hz is three times as large as the noise of the sensor. We compare a Kalman filter, which treats
all of it as white noise, with an FW-NKF that models the vibration as an oscillator.
"""

import math
import tempfile

import matplotlib.pyplot as plt
import torch

import fwnkf

torch.manual_seed(0)

# %%
# The measurements
# ----------------
# Eight records of five seconds. The true position is a slow sine, so that we can see the error of
# each estimate.

rate = 200.0  # samples per second
time = torch.arange(1000) / rate
position, velocity = time.sin(), time.cos()
vibration = 0.3 * (2 * math.pi * 23.0 * time).sin()
noise = 0.1 * torch.randn(8, 1000)
y = (position + vibration + noise).unsqueeze(-1)  # [records, steps, channels]

# %%
# The system
# ----------
# A body moves with a velocity that changes at random. ``continuous=True`` says that ``F`` and ``Q``
# are a differential equation and the density of its noise; the filter discretises them for the step
# between two samples.

system = fwnkf.LinearSystem.of(
    F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]),  # d(position)/dt = velocity
    Q=torch.tensor([[0.0, 0.0], [0.0, 2.0]]),  # white acceleration: 2 (m/s²)²/Hz
    H=torch.tensor([[1.0, 0.0]]),  # the position is measured ...
    R=torch.tensor([[0.1**2]]),  # ... with white noise of 0.1 m
    continuous=True,
    dt=1 / rate,
)
kalman = fwnkf.EKF(system)

# %%
# The FW-NKF has the same system and additional noise states: an oscillator for each line in the spectrum
# of the noise, here one. Networks are parts as well (``encoder=…``, ``residual=…``);
# this filter has none, so there is nothing to train.

shaped = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=23.0, bandwidth_hz=0.13, std=0.2))

# %%
# Both filters run over all records at once. A trajectory has the mean and the covariance of every
# step.

with torch.no_grad():  # no training here
    results = {"Kalman filter": kalman.run(y), "FW-NKF": shaped.run(y)}
for name, trajectory in results.items():
    error = (trajectory.mean[:, 200:, 0] - position[200:]).std()
    stated = trajectory.cov[:, 200:, 0, 0].mean().sqrt()
    print(f"{name}: error {error:.3f} m, stated {stated:.3f} m")

# %%
# The error of the Kalman filter is larger than its covariance states. The FW-NKF is more accurate,
# and its error is within its stated standard deviation.

figure, axis = plt.subplots()
part = slice(600, 720)
axis.plot(time[part], y[0, part, 0], ".", color="#8c8c8c", label="measured")
for name, trajectory in results.items():
    axis.plot(time[part], trajectory.mean[0, part, 0], label=name)
axis.plot(time[part], position[part], "k", label="truth")
axis.set(xlabel="time (s)", ylabel="position (m)")
axis.legend(ncols=2)

# %%
# Where the difference comes from
# -------------------------------
# The innovations, measurement minus prediction, of a filter with the right model are white: no
# frequency is left in them.

figure, axis = plt.subplots()
for name, trajectory in results.items():
    innovation = trajectory.innovation[:, 200:, 0]
    power = torch.fft.rfft(innovation).abs().square().mean(0) / innovation.shape[-1]
    axis.semilogy(torch.fft.rfftfreq(innovation.shape[-1], 1 / rate), power, label=name)
axis.set(xlabel="frequency (Hz)", ylabel="power of the innovations (m²)")
axis.legend()

# %%
# Save it
# -------
# A checkpoint is a folder with a JSON file and a safetensors file. The loaded filter gives the same
# bits.

folder = tempfile.mkdtemp()
fwnkf.save(shaped, folder)
with torch.no_grad():
    again = fwnkf.load(folder).run(y)
print(torch.equal(again.mean, results["FW-NKF"].mean))

# %%
# Frequencies that are not known beforehand are fitted to a recording: see the next tutorial.
