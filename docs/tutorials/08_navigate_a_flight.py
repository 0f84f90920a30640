"""
A flight through the navigation filter
======================================

``fwnkf navigate LOG`` does this for a log of PX4 or ArduPilot, and draws a page. Here the flight is simulated, so that
what is found can be compared with what was put in.
"""

import matplotlib.pyplot as plt
import numpy as np

from fwnkf.navigation.review import review_recording
from fwnkf.navigation.simulated import Flight
from fwnkf.settings import Vehicle, navigation_settings
from fwnkf.settings.navigation_noise import Estimate, NavigationNoise
from fwnkf.settings.suggestion import Gain

flight = Flight(seconds=80.0, gnss_delay=0.18)
recording = flight.recording(np.random.default_rng(0))

# %%
# Noises and the delay of GNSS are fitted to the first half, without truth. The rest shows what they are worth: fixes of
# some windows are hidden, and predicted.

found = review_recording(recording)
print(found.summary)
print(f"delay {1e3 * found.delay:.0f} ms; simulated: {1e3 * flight.gnss_delay:.0f} ms")

# %%
# Noises that an autopilot has parameters for become settings: values to type in, with the firmware's own limits.

assert found.held_out is not None
gain = Gain(found.held_out.usual - found.held_out.error, 0.0, None, "m, hidden fixes")
noise = NavigationNoise(
    gnss_delay=Estimate(found.delay, found.delay_error), gain={"gnss_delay": gain}
)
for row in navigation_settings(noise, Vehicle("PX4 1.16.1", {})):
    print(row.name, row.value, row.unit)

# %%
# Where the vehicle was, and what the filter stated:

figure, (plan, height) = plt.subplots(1, 2, figsize=(9, 3.5))
track, truth = found.filtered.mean, recording.truth
plan.plot(truth.position[:, 1], truth.position[:, 0], "k", linewidth=0.8, label="truth")
plan.plot(track[:, 1], track[:, 0], label="filter")
plan.set(xlabel="east (m)", ylabel="north (m)", aspect="equal")
plan.legend()
std = np.sqrt(found.filtered.cov[:, 2, 2])
height.fill_between(
    found.filtered.time, -track[:, 2] - 1.96 * std, -track[:, 2] + 1.96 * std, alpha=0.3
)
height.plot(found.filtered.time, -track[:, 2], label="filter, 95 %")
height.plot(truth.time, -truth.position[:, 2], "k", linewidth=0.8, label="truth")
height.set(xlabel="time (s)", ylabel="height (m)")
height.legend()
