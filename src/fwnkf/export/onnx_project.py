"""What stands beside the ONNX files of a filter: golden vectors, and a program in Python that runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .c_project import results
from .reference import Sample
from .trace import StepProgram


def write(folder: Path, program: StepProgram, name: str, golden: list[Sample], limit: float) -> list[Path]:
    """Write both; returns their paths."""
    vectors = {f"start_{part}": value.numpy() for part, value in program.prior._asdict().items()}
    for key in golden[0].inputs:
        if any(field.name == key for field in program.step.inputs):
            vectors[f"input_{key}"] = torch.cat([sample.inputs[key] for sample in golden]).numpy()
    for field in (*results(program), program.step.outputs[-1]):
        found = [getattr(sample.out, field.name).reshape(1, *field.shape) for sample in golden]
        vectors[f"result_{field.name}"] = torch.cat(found).numpy()
    paths = [folder / f"{name}_golden.npz", folder / f"{name}_example.py"]
    np.savez(paths[0], **vectors)
    paths[1].write_text(EXAMPLE.replace("@NAME@", name).replace("@LIMIT@", repr(limit)), encoding="utf-8")
    return paths


EXAMPLE = '''\
"""Filters the golden inputs with ONNX Runtime and compares with the filter in PyTorch: python @NAME@_example.py"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).resolve().parent


class Filter:
    """One stream. All arrays have a batch axis of one; the state stays here between calls."""

    def __init__(self, mean, cov):
        self.sessions = {
            method: onnxruntime.InferenceSession(str(FOLDER / f"@NAME@_{method}.onnx"))
            for method in ("start", "update", "step")
        }
        self.state = {}
        self._call("start", {"mean": mean, "cov": cov})

    def update(self, **inputs):
        """Condition on a measurement without predicting: y, mask and, where the filter reads them, u and dt."""
        return self._call("update", inputs)

    def step(self, **inputs):
        """Predict, then condition on a measurement."""
        return self._call("step", inputs)

    def _call(self, method, inputs):
        session = self.sessions[method]
        given = {**self.state, **inputs}
        wanted = [item.name for item in session.get_inputs()]
        names = [item.name for item in session.get_outputs()]
        found = dict(zip(names, session.run(names, {name: given[name] for name in wanted})))
        self.state.update((f"state_{name[5:]}", found.pop(name)) for name in names if name.startswith("next_"))
        return found  # the outputs and status


def main():
    golden = np.load(FOLDER / "@NAME@_golden.npz")
    inputs = {name[6:]: golden[name] for name in golden.files if name.startswith("input_")}
    wanted = {name[7:]: golden[name] for name in golden.files if name.startswith("result_")}
    stream = Filter(golden["start_mean"][None], golden["start_cov"][None])
    errors, failures = dict.fromkeys(wanted, 0.0), 0
    for t in range(len(inputs["y"])):
        advance = stream.update if t == 0 else stream.step
        out = advance(**{name: values[t : t + 1] for name, values in inputs.items()})
        for name in wanted:
            difference = out[name].reshape(wanted[name][t].shape) - wanted[name][t]
            errors[name] = np.maximum(errors[name], np.abs(difference).max())
    for name, error in errors.items():
        size = np.abs(wanted[name]).max() or 1.0
        if not error <= (0 if name == "status" else @LIMIT@ * size):  # also where it is NaN
            print(f"{name}: differs by {error / size:.2e} of its largest value")
            failures += 1
    print(f"{len(inputs['y'])} steps: {'FAILED' if failures else 'OK'}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
'''
