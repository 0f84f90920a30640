"""
Smoothing a recording
=====================

A filter uses the measurements up to each sample. On a recording the later measurements are available
as well; a smoother uses both.
"""

import math

import matplotlib.pyplot as plt
import torch

import fwnkf

torch.manual_seed(0)
dt = 0.05
steps = 400
time = torch.arange(steps) * dt
position = (0.7 * time).sin() + 0.3 * (1.9 * time).cos()
# twenty recordings of the same motion
y = (position + 0.3 * torch.randn(20, steps)).unsqueeze(-1)
y[:, 150:200] = math.nan  # the sensor was off for two and a half seconds

model = fwnkf.KF(
    F=torch.tensor([[1.0, dt], [0.0, 1.0]]),
    H=torch.tensor([[1.0, 0.0]]),
    Q=0.5 * torch.tensor([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]]),
    R=torch.tensor([[0.09]]),
)

# %%
# ``smoothing=True`` stores what the backward pass needs. Missing samples are NaN and have no effect.

with torch.no_grad():
    filtered = model.run(y, smoothing=True)
    smoothed = fwnkf.smooth(model, filtered)
for name, estimate in (("filtered", filtered), ("smoothed", smoothed)):
    error = (estimate.mean[..., 0] - position).square().mean().sqrt()
    stated = estimate.cov[..., 0, 0].mean().sqrt()
    print(f"{name}: error {error:.3f} m, stated {stated:.3f} m")

# %%
# In the gap, the filter can only extrapolate. The smoother also uses the measurements after it.

figure, axis = plt.subplots()
axis.plot(time, y[0, :, 0], ".", color="#8c8c8c", markersize=3, label="measured")
for name, estimate in (("filtered", filtered), ("smoothed", smoothed)):
    mean, std = estimate.mean[0, :, 0], estimate.cov[0, :, 0, 0].sqrt()
    axis.plot(time, mean, label=name)
    axis.fill_between(time, mean - 1.96 * std, mean + 1.96 * std, alpha=0.2)
axis.plot(time, position, "k", linewidth=0.8, label="truth")
axis.set(xlabel="time (s)", ylabel="position (m)", xlim=(4, 14), ylim=(-2.5, 2.5))
axis.legend(ncols=4)

# %%
# With a fixed lag, an online estimator that may be late by a second has much of the gain:

delayed = fwnkf.smooth(model, filtered, lag=20)
error = (delayed.mean[..., 0] - position).square().mean().sqrt()
print(f"lag of one second: error {error:.3f} m")
