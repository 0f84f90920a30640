"""One file of a fleet, from its samples to estimates, states and statistics."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, FwnkfError
from ..extras import need
from ..logs.results import component_names
from ..runtime.inputs import absolute
from ..types import numpy_dtype
from .filtering import Estimates, filter_segments
from .index import read_table
from .manifest import FLEET, PARTS, STATES
from .reading import path_device, read_samples
from .rows import Fault, Samples, Segments, cut
from .settings import Settings, get_filter
from .states import Snapshots, StateBytes, latest, read_states, states_table
from .store import Store


class PartRunner:
    """Filters one file after the other; holds the filter of a run.

    The files it writes are functions of the input, the states and the settings alone: whoever runs a part, and however
    often, writes the same bytes under the same names. The record of a part is written last, and says that it is done.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.input, self.output = Store(settings.input), Store(settings.output)
        self.model = get_filter(settings)
        self.codec = StateBytes(self.model)
        self.dtype = numpy_dtype(self.model.dtype)
        self.parquet = need("pyarrow.parquet", "scale")

    def __call__(self, name: str, size: int, before: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
        """Filter the file ``name`` from the states in the files ``before``; returns its record with its timings.

        ``before`` has names and digests.
        """
        began = time.perf_counter()
        known = latest([self._states(path, digest) for path, digest in before])
        faults: list[Fault] = []
        record: dict[str, Any] = {"input": name, "size": size, "rows": 0, "sessions": 0, "steps": 0}
        clocks = {}
        try:
            samples = read_samples(self.input, name, self.settings, self.dtype)
        except CheckpointError:
            raise
        except (FwnkfError, OSError, ValueError, KeyError) as error:
            faults.append(Fault(_device(name, self.input), str(error)))
            samples = None
        clocks["read"] = time.perf_counter() - began
        if samples is not None:
            clock = self.settings.clock
            count = len(self.settings.channels)
            segments, faults = cut(samples, count, clock, known, self.model.initial_steps)
            if len(segments.device):
                estimates = filter_segments(self.model, samples, segments, known, clock, self.settings.batch_size)
                clocks["filter"] = time.perf_counter() - began - sum(clocks.values())
                failed = _not_finite(samples, segments, estimates)
                faults += [Fault(str(samples.devices[place]), "its estimates are not finite") for place in failed]
                kept = ~np.isin(segments.device, failed)
                if kept.any():
                    record |= self._write(name, samples, segments, estimates, kept)
        record["faults"] = [fault._asdict() for fault in sorted(faults)]
        about = self.output.json_bytes({**record, "settings": self.settings.kept()})
        self.output.write(f"{PARTS}/{_named(name, self.input)}.json", about)
        clocks["write"] = time.perf_counter() - began - sum(clocks.values())
        return {**record, "seconds": clocks}

    def _states(self, path: str, digest: str | None) -> Snapshots:
        table = read_table(self.output, path, digest)
        return read_states(table, self.codec, self.settings.digest, f"{self.output.uri}: {path}")

    def _write(
        self, name: str, samples: Samples, segments: Segments, out: Estimates, kept: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """Write estimates, statistics and states; returns what the record says of them."""
        rows = np.repeat(kept, np.diff(segments.first))
        place = f"{_named(name, self.input)}.parquet"
        table = self._estimates(samples, segments, out, rows)
        digest = self._put(place, table, {"use_dictionary": [self.settings.device]})
        fleet, state = f"{FLEET}/{place}", f"{STATES}/{place}"
        statistics = self._put(fleet, self._fleet(samples, segments, out, kept), {})
        after = _after(samples, segments, out, kept)
        states = self._put(state, states_table(after, self.codec, self.settings.digest), {})
        total = {"rows": int(rows.sum()), "sessions": int(kept.sum()), "steps": int(segments.steps[kept].sum())}
        files = {"output": place, "sha256": digest, "fleet": fleet, "fleet_sha256": statistics}
        return {**total, **files, "state": state, "state_sha256": states}

    def _put(self, name: str, table: Any, options: dict[str, Any]) -> str:
        arrow = need("pyarrow", "scale")
        sink = arrow.BufferOutputStream()
        self.parquet.write_table(table, sink, **options)
        data = sink.getvalue()
        self.output.write(name, data)
        return hashlib.sha256(data).hexdigest()

    def _estimates(self, samples: Samples, segments: Segments, out: Estimates, rows: NDArray[np.bool_]) -> Any:
        arrow = need("pyarrow", "scale")
        used = segments.rows[rows]
        owner = np.repeat(segments.device, np.diff(segments.first))[rows]
        device = arrow.DictionaryArray.from_arrays(
            arrow.array(owner.astype(np.int32)), arrow.array(samples.devices, arrow.string())
        )
        parts = self.model.layout.describe()
        columns = {self.settings.device: device, self.settings.time: samples.time[used]}
        mean = absolute(out.mean[rows], self.model.layout.origins)
        columns |= {item: mean[:, k] for k, item in enumerate(component_names(parts))}
        columns |= {f"{item}_std": out.std[rows, k] for k, item in enumerate(component_names(parts, tangent=True))}
        return arrow.table(columns)

    def _fleet(self, samples: Samples, segments: Segments, out: Estimates, kept: NDArray[np.bool_]) -> Any:
        """A row for each session: where it is, and what its innovations say."""
        arrow = need("pyarrow", "scale")
        first, last = segments.rows[segments.first[:-1]], segments.rows[segments.first[1:] - 1]
        rate = 1 / self.settings.step if self.settings.step else 1.0
        names = np.array(self.settings.channels, object)
        single = len(names) == self.model.observation_dim  # not so after a preprocessing
        with np.errstate(invalid="ignore", divide="ignore"):
            nis = out.squares / out.measured
        columns = {
            "device": samples.devices[segments.device], "start": samples.time[first], "stop": samples.time[last],
            "samples": np.diff(segments.first), "steps": segments.steps, "flagged": out.flagged, "nis": nis,
            "measured": out.measured, "drift": out.lines.drift,
            "drift_channel": names[out.lines.drift_channel] if single else out.lines.drift_channel.astype(str),
            "peak_hz": out.lines.peak * rate, "peak_ratio": out.lines.ratio,
            "peak_channel": names[out.lines.peak_channel] if single else out.lines.peak_channel.astype(str),
        }  # fmt: skip
        return arrow.table({name: values[kept] for name, values in columns.items()})


def _named(name: str, store: Store) -> str:
    """The name of a file in the output, without the suffix of Parquet."""
    whole = name or store.root.rpartition("/")[2]
    return whole.removesuffix(".parquet")


def _device(name: str, store: Store) -> str:
    return path_device(name, store) if not (name or store.root).endswith(".parquet") or "device=" in name else ""


def _not_finite(samples: Samples, segments: Segments, out: Estimates) -> NDArray[np.int64]:
    """Devices with an estimate that is not a number."""
    bad = ~(np.isfinite(out.mean).all(1) & np.isfinite(out.std).all(1))
    if not bad.any():
        return np.empty(0, np.int64)
    return np.unique(np.repeat(segments.device, np.diff(segments.first))[bad])


def _after(samples: Samples, segments: Segments, out: Estimates, kept: NDArray[np.bool_]) -> Snapshots:
    """The states of all devices that were filtered; of the others the earlier file stays the last."""
    chosen = np.flatnonzero(segments.last & kept)
    last = segments.rows[segments.first[1:][chosen] - 1]
    return Snapshots(
        samples.devices[segments.device[chosen]], samples.time[last], out.control[chosen], out.state[chosen]
    )
