"""
A car in a tunnel
=================

A car does not move across its wheels. With that knowledge an IMU bridges an outage of GNSS that it cannot bridge alone.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from fwnkf.navigation import NavigationRecording, Navigator, Readings, adapted, compare
from fwnkf.navigation.mounting import mounting, rolling
from fwnkf.systems import NavigationConfig, earth

# %%
# A drive on a plane: speed and rate of turning, and an IMU that is mounted 5 degrees off.

rng = np.random.default_rng(1)
time = np.arange(0.0, 200.0, 0.02)
speed = 12 + 4 * np.sin(0.11 * time)
turning = 0.25 * np.sin(0.07 * time) + 0.1 * np.sin(0.31 * time)
heading = np.cumsum(turning) * 0.02
velocity = np.stack((speed * np.cos(heading), speed * np.sin(heading), 0 * time), -1)
position = np.cumsum(velocity, 0) * 0.02
force = np.stack((np.gradient(speed, time), speed * turning, -9.806 + 0 * time), -1)
rate = np.stack((0 * time, 0 * time, turning), -1)
yaw = np.deg2rad(5.0)
turn = np.array(
    [[np.cos(yaw), np.sin(yaw), 0], [-np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]]
)
samples = np.concatenate(
    (rate @ turn.T + [0.002, -0.001, 0.003], force @ turn.T + [0.05, 0.1, -0.05]), 1
)
samples += rng.standard_normal(samples.shape) * ([0.01] * 3 + [0.1] * 3)
origin = (45.0, 7.0, 200.0)
fixes = earth.geodetic(position[::10] + 0.02 * rng.standard_normal((1000, 3)), origin)
doppler = velocity[::10] + 0.05 * rng.standard_normal((1000, 3))
drive = NavigationRecording.from_fixes(
    "drive",
    Readings(time, samples),
    Readings(time[::10], fixes),
    velocity=Readings(time[::10], doppler),
)

# %%
# Noises are fitted to the first 80 s. From where the car moves in the axes of the IMU follows how that is mounted.

plain = Navigator(
    adapted(NavigationConfig(gnss_position_std=0.05, gnss_height_std=0.1), drive)
)
learned = plain.learned(drive, 0.0, 80.0, delayed=())
first = plain.estimate(
    learned.recording, learned.moment, 80.0, learned.prior, learned.raw
)
angles = mounting(first)
print(f"mounted {np.rad2deg(-angles[2]):.1f} degrees off")

on_wheels = rolling(drive)
config = replace(
    plain.configured(learned.raw), mounting=tuple(map(float, angles)), rate=True
)
wheels = Navigator(adapted(config, on_wheels))
with_wheels = wheels.learned(on_wheels, 0.0, 80.0, delayed=())

# %%
# Half a minute without GNSS:

tunnel = [(140.0, 170.0)]
figure, axis = plt.subplots()
for name, navigator, known in (
    ("IMU alone", plain, learned),
    ("and wheels", wheels, with_wheels),
):
    shown = known.recording.hidden(tunnel, compare.GNSS)
    found = navigator.estimate(shown, known.moment, 170.0, known.prior, known.raw)
    errors = compare.hidden_errors(known.recording, found, tunnel)
    print(f"{name}: {np.linalg.norm(errors.error[-1, :2]):.1f} m after 30 s")
    axis.semilogy(errors.since, np.linalg.norm(errors.error[:, :2], axis=1), label=name)
axis.set(xlabel="time without GNSS (s)", ylabel="horizontal error (m)")
axis.legend()
