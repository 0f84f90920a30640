"""
From a checkpoint to C on a device
==================================

A filter becomes one C file and one header: C99 without heap, weights as constants, the state in a
struct. The export compares the C code with the filter in double precision and prints the memory
that it needs.
"""

import subprocess
import tempfile
from pathlib import Path

import torch

import fwnkf
from fwnkf.export.c import export_c

# %%
# A filter for a position with a sensor that vibrates, as in the first tutorial.

system = fwnkf.LinearSystem.of(
    F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]),
    Q=torch.tensor([[0.0, 0.0], [0.0, 2.0]]),
    H=torch.tensor([[1.0, 0.0]]),
    R=torch.tensor([[0.01]]),
    continuous=True,
    dt=0.005,
)
model = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=23.0, bandwidth_hz=0.13, std=0.2))

# %%
# Export it
# ---------
# From the shell: ``fwnkf export my-filter --to c``.

folder = Path(tempfile.mkdtemp()) / "device"
facts = export_c(model, folder, name="height", steps=200)
print([Path(name).name for name in facts["files"]])
print("RAM in bytes:", facts["ram"])
if facts["parity"]:
    largest, limit = facts["parity"]["largest"], facts["parity"]["limit"]
    print(f"parity: {largest:.1e} relative, limit {limit:.0e}")

# %%
# The interface is two functions and a struct:

header = (folder / "height.h").read_text()
for line in header.splitlines():
    if "(" in line and line.endswith(";"):
        print(line)

# %%
# Build and test it
# -----------------
# The folder has a test program with golden vectors; build it with your compiler for your device.

done = subprocess.run(
    ["sh", "-c", "cc -std=c99 -O2 -Wall -Werror *.c -lm -o check && ./check"],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
)
print(done.stdout or done.stderr)
