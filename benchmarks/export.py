"""The speed of generated C: against nn.GRU in PyTorch, against C and Eigen written by hand, and on a Cortex-M4F.

    python benchmarks/export.py [--rounds 31] [--steps 1000000] [--markdown docs/results/export_speed.md]
    python benchmarks/export.py --device [--markdown docs/results/export_device.md]

- the FW-NKF of the paper's size (GRU of 2 x 256, 3 states, 2 observations) against a step of a bare ``nn.GRU`` of
  that size in PyTorch, and against ``device/gru.c``, a loop over the same GRU alone, written by hand; ``micro`` has a
  GRU of 16;
- an inertial EKF of 15 states and 12 noise states against ``device/ekf.cpp``, the same filter by hand in Eigen;
- the 99.9th percentile of the time of a step over its median.

``--device``: memory, flash and instructions of a step on a Cortex-M4F.

One thread, interleaved, medians of processor time; gcc -O3 -march=native. What needs a missing tool is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import write

import fwnkf
from fwnkf.evaluation.timing import interleave
from fwnkf.export.c import flash
from fwnkf.export.c_source import generate
from fwnkf.export.rounding import Grid, rounded
from fwnkf.export.trace import StepProgram, trace
from fwnkf.systems import Strapdown, StrapdownConfig

DEVICE = Path(__file__).resolve().parent / "device"
FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]
CORTEX = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "--specs=rdimon.specs"]
CLOCK = 168e6
RATE = 1e3


def build(hidden: int, layers: int) -> fwnkf.Filter:
    system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3), Q=torch.eye(3), R=torch.eye(2), dt=0.01)
    parts = {"transition": fwnkf.LocallyLinear(1), "phi": fwnkf.Phi()}
    model = fwnkf.FWNKF(system, encoder=fwnkf.GRU(hidden, layers), **parts)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def inertial() -> fwnkf.Filter:
    """Position, velocity, orientation and two biases, with two oscillators in each channel."""
    lines = fwnkf.Lines(hz=[12.0, 35.0], bandwidth_hz=2.0, std=0.02, shared=True, pole_radius=0.999)
    return fwnkf.FWNKF(Strapdown(StrapdownConfig()), noise=lines)


class Generated:
    """The C of a filter in a folder."""

    def __init__(
        self,
        name: str,
        model: fwnkf.Filter,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        grid: Grid | None = None,
    ) -> None:
        self.name, self.folder = name, folder
        self.program: StepProgram = trace(model, dtype)
        self.source = generate(self.program, name, grid)
        (folder / f"{name}.c").write_text(self.source.source)
        (folder / f"{name}.h").write_text(self.source.header)
        sizes = {field.name: field.size for field in self.program.step.inputs}
        self.channels, self.controls = sizes["y"], sizes.get("u", 0)

    def arguments(self, dt: str) -> str:
        """Of a call of ``step``."""
        given = ["u"] * self.program.takes_control + [dt] * self.program.takes_dt
        return ", ".join(["&state", "y", "0", *given, "&out"])


class Compiled(Generated):
    """A generated filter with a loop over its step, timed inside C."""

    def __init__(self, name: str, model: fwnkf.Filter, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(name, model, folder, dtype)
        (folder / f"{name}_loop.c").write_text(self._loop())
        call = ["gcc", "-std=gnu99", *FLAGS, "-o", f"{name}.so", f"{name}_loop.c", "-lm"]
        subprocess.run(call, cwd=folder, check=True)
        self.functions: Any = ctypes.CDLL(str(folder / f"{name}.so"))
        self.real: Any = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
        self.y = (self.real * self.channels)(*[0.1] * self.channels)
        self.u = (self.real * max(1, self.controls))(*[0.01] * self.controls)
        self.restart()

    def restart(self) -> None:
        getattr(self.functions, f"{self.name}_restart")()

    def _loop(self) -> str:
        name, arguments = self.name, self.arguments("dt")
        return f"""\
#include <time.h>
#include "{name}.c"
static {name}_state state;
static {name}_output out;
void {name}_restart(void) {{ {name}_init(&state); }}
void {name}_mean(real *mean) {{ for (unsigned i = 0; i < sizeof out.mean / sizeof *mean; ++i) mean[i] = out.mean[i]; }}
void {name}_loop(const real *y, const real *u, real dt, int steps) {{
    (void)u, (void)dt;
    for (int t = 0; t < steps; ++t) {name}_step({arguments});
}}
void {name}_times(const real *y, const real *u, real dt, float *times, int steps) {{
    struct timespec a, b;
    (void)u, (void)dt;
    for (int t = 0; t < steps; ++t) {{
        clock_gettime(CLOCK_MONOTONIC, &a);
        {name}_step({arguments});
        clock_gettime(CLOCK_MONOTONIC, &b);
        times[t] = (float)((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec));
    }}
}}
"""

    def loop(self, steps: int, dt: float = 0.01) -> None:
        getattr(self.functions, f"{self.name}_loop")(self.y, self.u, self.real(dt), steps)

    def tail(self, steps: int) -> float:
        """The 99.9th percentile of a step over the median."""
        times = np.zeros(steps, np.float32)
        pointer = times.ctypes.data_as(ctypes.c_void_p)
        getattr(self.functions, f"{self.name}_times")(self.y, self.u, self.real(0.01), pointer, steps)
        return float(np.quantile(times, 0.999) / np.median(times))


def hand_gru(folder: Path) -> Callable[[int], None]:
    call = ["gcc", "-std=gnu99", *FLAGS, "-o", str(folder / "gru.so"), str(DEVICE / "gru.c"), "-lm"]
    subprocess.run(call, check=True)
    functions: Any = ctypes.CDLL(str(folder / "gru.so"))
    random = np.random.default_rng(0)
    sizes = {"input_0": 5 * 768, "hidden_0": 256 * 768, "input_1": 256 * 768, "hidden_1": 256 * 768, "bias": 4 * 768}
    for name, size in sizes.items():
        (ctypes.c_float * size).in_dll(functions, name)[:] = (0.06 * random.standard_normal(size)).tolist()
    x, h = (ctypes.c_float * 5)(*[0.1] * 5), (ctypes.c_float * 512)()
    return lambda steps: functions.gru_steps(x, h, steps)


class HandParameters(ctypes.Structure):
    """As in ``device/ekf.cpp``, in double precision."""

    _fields_ = [
        (name, ctypes.c_double * size)
        for name, size in (("radius", 6), ("frequency", 6), ("C", 36), ("R", 3), ("rest", 6))
    ]


def hand_ekf(model: fwnkf.Filter, folder: Path) -> Any:
    call = ["g++", "-std=c++14", *FLAGS, "-DREAL=double", "-I/usr/include/eigen3", "-DNDEBUG"]
    subprocess.run([*call, "-o", str(folder / "ekf_hand.so"), str(DEVICE / "ekf.cpp")], check=True)
    functions: Any = ctypes.CDLL(str(folder / "ekf_hand.so"))
    states, config = model.noise_states, model.system.config
    with torch.no_grad():
        prepared = model.double().prepare()
        given = HandParameters()
        given.radius[:] = states.radius().flatten().tolist()
        given.frequency[:] = states.frequency().flatten().tolist()
        given.C[:] = prepared.noise.C.flatten().tolist()
        given.R[:] = prepared.R.variance.tolist()
    squares = (config.accelerometer_density, config.gyro_density, config.gyro_walk, config.accelerometer_walk)
    given.rest[:] = [*(value**2 for value in squares), config.gravity[2], model.system.dt]
    functions.ekf_hand_init(ctypes.byref(given))
    return functions


def instructions(filter: Generated) -> int | None:
    """Instructions of a step on a Cortex-M4F in QEMU."""
    if not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")):
        return None
    name, image = filter.name, filter.folder / f"{filter.name}.elf"
    arguments = filter.arguments("0.01f")
    defines = [f'-DFILTER_HEADER="{name}.h"', f"-DFILTER(x)={name}_##x", f"-DSTEP_ARGUMENTS={arguments}"]
    defines += [f"-DCHANNELS={filter.channels}", f"-DCONTROLS={filter.controls}"]
    sources = ["-T", str(DEVICE / "cortex_m4.ld"), str(DEVICE / "cortex_m4.c"), f"{name}.c", "-o", str(image), "-lm"]
    call = ["arm-none-eabi-gcc", "-std=gnu99", "-O2", *CORTEX, "-I.", *defines, *sources]
    subprocess.run(call, cwd=filter.folder, check=True)
    qemu = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    run = [*qemu, "-icount", "shift=0", "-kernel", str(image)]
    shown = subprocess.run(run, capture_output=True, text=True, timeout=300)
    return int(shown.stdout.split()[-1])


def device_rows() -> Iterator[dict[str, object]]:
    """What each filter needs on a Cortex-M4F in single precision."""
    racer = Path(__file__).resolve().parents[1] / "models" / "racer"
    filters: dict[str, Callable[[], fwnkf.Filter]] = {
        "micro (GRU 16)": lambda: build(16, 1),
        "small (GRU 64)": lambda: build(64, 1),
        "paper size (GRU 2 x 256)": lambda: build(256, 2),
        "inertial EKF, 15 + 12 states": inertial,
        "models/racer": lambda: fwnkf.load(racer),
    }
    cases = [(case, "float") for case in filters] + [("models/racer", "int16"), ("models/racer", "int8")]
    with tempfile.TemporaryDirectory() as made, torch.no_grad():
        for number, (case, weights) in enumerate(cases):
            model, grid = rounded(filters[case](), weights)
            made_c = Generated(f"filter_{number}", model, Path(made), grid=grid)
            source, count = made_c.source, instructions(made_c)
            yield {
                "filter": case,
                "weights": weights,
                "state (bytes)": source.state_bytes,
                "output (bytes)": source.output_bytes,
                "scratch on the stack (bytes)": source.scratch_bytes,
                "constants (bytes)": source.constant_bytes,
                "code and constants, -Os (bytes)": flash(Path(made) / f"{made_c.name}.c").get("Cortex-M4F"),
                "instructions of a step, -O2": count,
                "of 168 MHz at 1 kHz": None if count is None else count * RATE / CLOCK,
            }


def write_device(path: Path | None) -> None:
    rows = []
    for row in device_rows():
        rows.append(row)
        print(row, flush=True)
    note = (
        "C in single precision (`fwnkf export --to c`) for a Cortex-M4F. Flash: arm-none-eabi-gcc -Os. Instructions: "
        "-O2, counted by QEMU (`-icount`, mps2-an386), and their share of a core of 168 MHz at 1,000 steps a second if "
        "each took one cycle; QEMU knows no cycles, so that divisions, square roots and waits for flash cost more than "
        "is counted here. The first three filters have 3 states and 2 observations and are not trained. A step of "
        "`models/racer` reads four frames: at 1,000 frames a second it takes a quarter of that share."
    )
    if path:
        write(path, "Exported filters on a Cortex-M4F", note, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of which the slowest are looked at")
    parser.add_argument("--device", action="store_true", help="the table of the Cortex-M4F, and nothing else")
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if options.device:
        write_device(options.markdown)
        return
    rows: list[dict[str, object]] = []

    def row(case: str, value: float, limit: float | None, unit: str = "ratio") -> None:
        rows.append(
            {"case": case, "value": value, "unit": unit, "limit": limit, "held": limit is None or value <= limit}
        )
        print(f"{case}: {value:.4g} {unit}" + (f" (limit {limit})" if limit is not None else ""), flush=True)

    with tempfile.TemporaryDirectory() as made, torch.no_grad():
        folder = Path(made)
        paper, micro = Compiled("paper", build(256, 2), folder), Compiled("micro", build(16, 1), folder)
        hand = hand_gru(folder)
        bare, x, h = torch.nn.GRU(5, 256, 2), torch.randn(1, 1, 5), torch.zeros(2, 1, 256)
        candidates: dict[str, Callable[[], object]] = {
            "bare": lambda: [bare(x, h) for _ in range(20)],
            "hand": lambda: hand(20),
            "paper": lambda: paper.loop(20),
            "micro": lambda: micro.loop(20),
        }
        taken = interleave(candidates, options.rounds, clock=time.process_time)
        row("nn.GRU in PyTorch, one step", 1e6 * taken["bare"] / 20, None, "µs")
        row("paper size in C / nn.GRU in PyTorch", taken["paper"] / taken["bare"], 0.40)
        row("paper size in C / GRU alone by hand in C", taken["paper"] / taken["hand"], 1.3)
        row("micro in C / nn.GRU (2 x 256) in PyTorch", taken["micro"] / taken["bare"], 0.02)
        for name, one in (("micro", micro), ("paper size", paper)):
            row(f"{name} in C: p99.9 / median of {options.steps:,} steps", one.tail(options.steps), 3.0)

        model = inertial()
        if shutil.which("g++") and Path("/usr/include/eigen3").is_dir():
            double = Compiled("ekf_double", model, folder, torch.float64)
            eigen = hand_ekf(model, folder)
            dt = ctypes.c_double(model.system.dt)
            double.loop(100, model.system.dt)
            eigen.ekf_hand_steps(double.y, double.u, dt, 100)
            mine, theirs = (ctypes.c_double * 16)(), (ctypes.c_double * 16)()
            double.functions.ekf_double_mean(mine)
            eigen.ekf_hand_state(theirs)
            far = max(abs(a - b) for a, b in zip(mine, theirs, strict=True)) / max(map(abs, theirs))
            row("inertial EKF: C / Eigen by hand, difference of the means after 100 steps", far, 1e-9, "relative")
            steps = {
                "eigen": lambda: eigen.ekf_hand_steps(double.y, double.u, dt, 100),
                "ours": lambda: double.loop(100, model.system.dt),
            }
            taken = interleave(steps, options.rounds, clock=time.process_time)
            row("inertial EKF, 15 + 12 states, in Eigen by hand, one step", 1e4 * taken["eigen"], None, "µs")
            row("inertial EKF: C / Eigen by hand, double", taken["ours"] / taken["eigen"], 1.5)
    if options.markdown:
        note = " ".join(str(__doc__).split("\n\n", 2)[2].split())
        write(options.markdown, "Speed of exported filters", note, rows)


if __name__ == "__main__":
    main()
