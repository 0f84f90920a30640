"""Filters before their training, whose regression of the dynamics is made once for all that have the same system.

KalmanNet and its relatives are built on the same learned system, with the same first weights, and regress it on the
same batches: the result has the same bits whichever filter made it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save, save_file

from fwnkf.data.protocols import Records, digest
from fwnkf.filters.base import Filter
from fwnkf.systems.learned import LearnedSystem
from fwnkf.training.config import Experiment
from fwnkf.training.fit import prepare_filter

Say = Callable[[str], None]


def prepare(experiment: Experiment, records: Records, folder: Path, say: Say = lambda text: None) -> Filter:
    """As :func:`fwnkf.training.fit.prepare_filter`, with the regressed systems in ``folder``."""
    untrained = prepare_filter(experiment, records, say, fresh=False)
    system = untrained.system
    if not isinstance(system, LearnedSystem) or system.network is None or experiment.filter.noise_from_spectrum:
        return prepare_filter(experiment, records, say)
    file = folder / f"{_key(experiment, records, system)}.safetensors"
    if not file.is_file():
        trained = prepare_filter(experiment, records, say).system
        assert trained is not None  # it is built as the untrained one is
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")  # several groups may regress the same system at a time
        save_file(trained.state_dict(), part)
        os.replace(part, file)
    system.load_state_dict(load_file(file))
    return untrained


def _key(experiment: Experiment, records: Records, system: LearnedSystem) -> str:
    """What the regression of a system depends on."""
    trainer, section = experiment.trainer, experiment.filter
    options = (experiment.seed, trainer.pretrain, trainer.refine, section.process_share, trainer.threads)
    values = save({name: value.contiguous() for name, value in system.state_dict().items()})
    return hashlib.sha256(values + digest(records).encode() + repr(options).encode()).hexdigest()[:16]
