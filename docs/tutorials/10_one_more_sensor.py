"""
A vehicle with one more sensor
==============================

Navigation is a motion and sensors. Another sensor is a function of parts of the state: here a sonar that measures the
height above the ground along the axis of the vehicle.
"""

import numpy as np
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.navigation import Navigator, Readings, timeline
from fwnkf.navigation.estimate import adapted
from fwnkf.navigation.simulated import Flight
from fwnkf.systems import NavigationConfig

recording = Flight(seconds=40.0).recording(np.random.default_rng(0))
base = Navigator(adapted(NavigationConfig(), recording))
moment, prior = base.started(recording, *recording.span)


# %%
# The sensor, and the system with it:


def sonar(position, orientation):
    return -position[2] / rotation.to_matrix(orientation)[2, 2]


system = base.model.system.with_sensor(
    "sonar", fwnkf.Sensor(sonar, R=0.05**2, channels=1)
)
model = fwnkf.EKF(system).double()

# %%
# Its readings stand beside those of the others, each at its own time:

truth = recording.truth
place = np.arange(0, len(truth.time), 20)
tilt = rotation.to_matrix(torch.from_numpy(truth.orientation[place]))[:, 2, 2].numpy()
heard = -truth.position[place, 2] / tilt + 0.05 * np.random.default_rng(
    1
).standard_normal(len(place))
sensors = {name: recording.sensors[name] for name in base.config.sensors}
sensors["sonar"] = Readings(truth.time[place], heard[:, None])
steps = timeline.steps(recording.imu, sensors, moment, recording.span[1])

y = torch.from_numpy(steps.y)[None]
first = fwnkf.Gaussian(prior.mean, prior.cov)
track = model.run(
    y,
    torch.from_numpy(steps.u)[None],
    y.isfinite(),
    torch.from_numpy(steps.dt)[None],
    first,
)
print(f"height known to {float(track.cov[0, -1, 2, 2].sqrt()):.2f} m")
