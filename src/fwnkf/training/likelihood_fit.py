"""Train the encoder of an FW-NKF by the likelihood of the innovations, on a filter that was fitted without truth."""

from __future__ import annotations

import copy
import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import load
from ..core.trajectory import Trajectory
from ..data.protocols import Protocol, Records, Split
from ..errors import ConfigError, NumericalFailureError
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts import GRU
from ..identify.fit_report import Consistency, consistency_of
from ..identify.fitting import Fit
from ..identify.likelihood import Measurements
from ..types import Gaussian
from .checkpointing import StoppedError
from .config import DataSection, Experiment, OptimizerSection, TrainerSection
from .fit import fit
from .setup import statistics

__all__ = ["EncoderFit", "EncoderReport", "fit_encoder"]

CHUNK = 50
"""Time steps for one step of the optimizer; the state of the filter is carried from chunk to chunk."""
VALIDATION = 0.2
"""Share of the fitted records that choose the best step of training."""


@dataclasses.dataclass(frozen=True)
class EncoderReport:
    """What an encoder adds on records that neither the fit nor the training has seen.

    >>> "gain" in EncoderReport.__dataclass_fields__
    True
    """

    hidden: int
    """Units of the encoder."""
    trained_records: int
    """Records it was trained on."""
    validation_records: int
    """Records that chose the best of the training steps."""
    before: Consistency
    """On the held-out records, without the encoder."""
    after: Consistency
    """On the held-out records, with the encoder."""
    gain: float
    """Log-likelihood per sample that the encoder adds on the held-out records."""
    gain_by_record: tuple[float, ...]
    """The same of each held-out record."""
    standard_error: float
    """Of the gain, from its spread over the held-out records; infinite for a single record."""
    used: bool
    """Whether the filter has the encoder: the gain is above zero and above its standard error, where there is one."""
    seconds: float
    """CPU time."""
    stopped: bool = False
    """Whether training was stopped before its end."""

    def as_dict(self) -> dict[str, Any]:
        """The report as values of JSON.

        Returns:
            Fields by name.
        """
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """The report as text.

        Returns:
            One string for each line.
        """
        lines = [
            f"held out, {title}: log-likelihood {part.log_likelihood:.4f} per sample, NIS {part.nis:.3f} (by channel "
            + ", ".join(f"{value:.3f}" for value in part.nis_by_channel)
            + ")"
            for title, part in (("without encoder", self.before), ("with encoder", self.after))
        ]
        error = f" ± {self.standard_error:.2g}" if math.isfinite(self.standard_error) else ""
        verdict = "the filter has the encoder" if self.used else "no clear gain, so the filter is left without it"
        lines.append(f"encoder of {self.hidden} units: gain {self.gain:.4f}{error} per sample; {verdict}")
        if self.stopped:
            lines.append("the training of the encoder was stopped before its end")
        return lines


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderFit:
    """The result of :func:`fit_encoder`.

    >>> "filter" in EncoderFit.__dataclass_fields__
    True
    """

    filter: Filter
    """The filter with the encoder if that gains on held-out records, else without."""
    trained: Filter
    """The filter with the encoder, whatever it gains."""
    report: EncoderReport
    """What the encoder adds."""


def fit_encoder(
    fitted: Fit,
    *,
    hidden: int = 16,
    steps: int = 400,
    learning_rate: float = 3e-2,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> EncoderFit:
    """Let an encoder vary ``Q_t`` and ``R_t`` of a fitted filter; no true states needed.

    The fitted filter becomes an ``fwnkf`` with an encoder, which before training computes the same estimates. A fifth
    of the fitted records chooses the best of the training steps; the held-out records, which nothing was chosen on,
    decide whether the encoder is used. Parameters of the fit stay as they are.

    Args:
        fitted: the result of :func:`fwnkf.fit`, with records held out.
        hidden: units of the GRU.
        steps: training steps.
        learning_rate: the highest.
        seed: of the initial weights and the batches.
        progress: called with a line of text now and then.

    Returns:
        The filter and the report.

    Raises:
        ConfigError: there are too few records, or the filter cannot have an encoder.

    >>> import fwnkf
    >>> generator = torch.Generator().manual_seed(0)
    >>> y = torch.randn(4, 20, 1, generator=generator, dtype=torch.float64)
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> result = fwnkf.fit(fwnkf.build("kf", F=0.5 * one, H=one, Q=one, R=one), y, learn=("R",), held_out=0.25)
    >>> fit_encoder(result, hidden=2, steps=1).report.validation_records
    1
    """
    began = time.process_time()
    held_out = fitted.held_out_records
    check(hidden, steps, len(fitted.fitted_records.y), 0 if held_out is None else len(held_out.y))
    assert held_out is not None
    start = with_encoder(fitted.filter, hidden, seed)
    rows = torch.arange(len(fitted.fitted_records.y))
    count = math.ceil(VALIDATION * len(rows))
    training, validation = (fitted.fitted_records.take(part) for part in (rows[:-count], rows[-count:]))
    train, val, test = (training_records(fitted.filter, part) for part in (training, validation, held_out))
    start.normalize(statistics(_with_estimates(fitted.filter, training, train)))
    experiment = Experiment(
        data=DataSection(name="records", dtype="float64" if start.dtype == torch.float64 else "float32"),
        name="encoder",
        seed=seed,
        loss=({"kind": "innovation_nll"},),
        # the first prefix that fits counts: what the fit has determined does not move
        optimizer=OptimizerSection(learning_rate=learning_rate, rates={"encoder.": 1.0, "head_": 1.0, "": 0.0}),
        trainer=TrainerSection(
            steps=steps,
            batch_size=min(len(train), 64),
            chunk=CHUNK,
            validate_every=20,
            monitor="val_innovation_nll",
            accelerator="cpu",
            threads=None,
            loggers=(),
        ),
    )
    protocol = Protocol("strict", "records", seed, Split(train, val, test))
    report, stopped = progress or (lambda text: None), False
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit(experiment, folder, say=report, data=protocol, model=start)
        except StoppedError:
            stopped = True
        except NumericalFailureError as failure:
            report(f"training ends with the best encoder so far: {failure}")
        trained = load(Path(folder) / "best").eval()
    before, by_record = _score(fitted.filter, held_out)
    after, by_record_after = _score(trained, held_out)
    gains = by_record_after - by_record
    gain = after.log_likelihood - before.log_likelihood
    error = float(gains.std() / math.sqrt(len(gains))) if len(gains) > 1 else math.inf
    used = gain > (error if math.isfinite(error) else 0.0)
    seconds = time.process_time() - began
    by_record_gain = tuple(gains.tolist())
    summary = EncoderReport(
        hidden, len(train), len(val), before, after, gain, by_record_gain, error, used, seconds, stopped
    )
    return EncoderFit(trained if used else fitted.filter, trained, summary)


def check(hidden: int, steps: int, fitted: int, held_out: int) -> None:
    """Raise a ConfigError for an encoder without units or steps, or too few records to train, validate and test it."""
    if hidden < 1 or steps < 1:
        raise ConfigError(f"an encoder has at least one unit and one training step, not {hidden} and {steps}")
    if fitted < 2 or held_out < 1:
        raise ConfigError(
            f"an encoder needs two records to train and validate, and one held out to test; there are {fitted} to fit "
            f"and {held_out} held out: cut the recordings into more records (files), or change the share held out"
        )


def with_encoder(fitted: Filter, hidden: int, seed: int = 0) -> FrequencyWeightedNeuralKalmanFilter:
    """An ``fwnkf`` that computes what the fitted filter computes, with an encoder that has not been trained."""
    if fitted.system is None or fitted.preprocess is not None or fitted.name not in ("kf", "ekf", "fwnkf"):
        raise ConfigError(
            f"an encoder can be added to a kf, ekf or fwnkf on a system without preprocessing; this is a {fitted.name}"
        )
    plain = copy.deepcopy(fitted)
    if not isinstance(plain, FrequencyWeightedNeuralKalmanFilter):
        assert plain.system is not None
        plain = FrequencyWeightedNeuralKalmanFilter(plain.system).to(fitted.dtype)
    config = plain.config
    if config.encoder is not None or config.residual is not None or config.transition is not None:
        raise ConfigError("this fwnkf has networks already; train it with `fwnkf train` and the loss innovation_nll")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return plain.with_parts(encoder=GRU(hidden))


@torch.no_grad()
def _run(model: Filter, data: Measurements, steps: int) -> Trajectory:
    """Run over the first steps, in the dtype of the filter."""

    def cast(item: Any) -> Any:
        return item.to(model.dtype) if isinstance(item, Tensor) and item.is_floating_point() else item

    inputs = {name: cast(item) for name, item in data.first(steps).items()}
    return model.run(**{**inputs, "prior": Gaussian(*map(cast, data.prior))})


def training_records(model: Filter, data: Measurements) -> Records:
    """Measurements as records of the training, without any true state."""
    assert model.system is not None
    dtype, (count, length) = model.dtype, data.y.shape[:2]
    first = _run(model, data, 1)
    dt = data.dt
    if dt is None:
        dt = data.y.new_full((count, length), model.system.dt)
        dt[:, 0] = 0.0
    return Records(
        "records",
        y=data.y.to(dtype),
        truth=data.y.new_full((count, length, model.layout.size), math.nan, dtype=dtype),
        mask=data.present,
        dt=dt.to(dtype),
        u=None if data.u is None else data.u.to(dtype),
        # the belief at the time of the first sample, also where the prior belongs to the step before it
        start=Gaussian(first.prior_mean[:, 0], first.prior_cov[:, 0]),
        layout=model.layout,
        spans=(),
        system=model.system,
    )


def _with_estimates(model: Filter, data: Measurements, records: Records) -> Records:
    """Complete records for the scales of the encoder's inputs: estimates for true states, predictions in gaps."""
    mean = _run(model, data, data.y.shape[1]).mean
    measured = data.present.any(-1).to(torch.int8)
    # after its last sample a record is padding
    recorded = measured.flip(1).cummax(1).values.flip(1).bool().unsqueeze(-1)
    return dataclasses.replace(
        records,
        truth=torch.where(recorded, mean, math.nan),
        y=torch.where(records.mask, records.y, model.observe(mean)),
        mask=torch.ones_like(records.mask),
    )


def _score(model: Filter, data: Measurements) -> tuple[Consistency, Tensor]:
    """Consistency of the innovations, and the log-likelihood per sample of each record."""
    track = _run(model, data, data.y.shape[1])
    weight = data.present.to(track.innovation)
    by_record = track.log_likelihood
    skip = min(data.y.shape[1] // 10, 100)
    summary = consistency_of(track.innovation, track.innovation_cov, weight, float(by_record.sum()), skip)
    return summary, by_record / weight.sum((1, 2)).clamp_min(1)
