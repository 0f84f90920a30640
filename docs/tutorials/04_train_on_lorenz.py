"""
Training an FW-NKF on Lorenz
============================

The equations of motion are known, but the sensor drifts. An FW-NKF learns the spectrum of the drift
from records with ground truth. A full training takes a minute (``fwnkf train lorenz-coloured``);
here are a few steps of it on fewer records.
"""

import tempfile
from pathlib import Path

import fwnkf
from fwnkf.cli import main
from fwnkf.evaluation.runs import read_run

folder = Path(tempfile.mkdtemp()) / "run"
changes = [
    *("data.train=200", "data.test=40", "trainer.steps=4"),
    *("filter.options.encoder.units=8", "filter.options.noise.count=1"),
]
main(
    ["train", "lorenz-coloured", "--run", str(folder), "--no-plots"]
    + [word for change in changes for word in ("--set", change)]
)

# %%
# The table has the filter beside its baselines: ``hold`` repeats the last measurement, ``ekf`` has
# the equations and assumes white noise, ``oracle`` is given the true model of the noise. The filter
# comes close to the oracle, and its NEES and coverage show that it is consistent.
#
# The run is a folder with the configuration, the filter and the metrics of every step.

run = read_run(folder)
print(sorted(path.name for path in run.folder.iterdir()))

# %%
# What has it learned? The frequency, bandwidth and size of the noise states of each channel.

learned = fwnkf.load(run.model_folder())
noise = learned.noise_states
for channel in range(learned.observation_dim):
    hz, std = noise.hz[channel].item(), noise.std[channel].item()
    print(f"channel {channel}: {hz:.2f} Hz, std {std:.2f}")
