"""Train the filter of an experiment in a run folder; a run can be stopped and resumed at any time."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from ..checkpoint import check_writable, load
from ..data.protocols import Protocol, Records, digest
from ..errors import ConfigError
from ..extras import need
from ..filters.base import Filter
from . import memory, provenance
from .batches import Batches, Plan, Position
from .checkpointing import STATE_FILE, CheckpointCallback, StoppedError, cpu_time
from .config import LOGGERS, Experiment
from .experiments import parse_experiment
from .losses import parse_terms
from .module import TrainingModule
from .noise_start import start_noise
from .pretrain import pretrain
from .progress import ProgressLine
from .resume import SafetensorsIO
from .setup import build_filter, is_linear, load_data, measure_for, signature_of_records, statistics

RUN_FILE = "run.json"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Fitted:
    """A finished run.

    >>> "record" in Fitted.__dataclass_fields__
    True
    """

    folder: Path
    """The folder of the run."""
    experiment: Experiment
    """What was asked for."""
    model: Filter
    """The best filter by validation."""
    data: Protocol
    """The records."""
    record: dict[str, Any]
    """What ``run.json`` holds."""


def fit(
    experiment: Experiment,
    folder: str | Path,
    *,
    resume: bool = False,
    command: str = "",
    say: Callable[[str], None] = lambda text: None,
    data: Protocol | None = None,
    model: Filter | None = None,
    progress: bool = True,
) -> Fitted | None:
    """Train a filter, or resume training.

    Args:
        experiment: what to train on what, and how.
        folder: of the run; it is created.
        resume: continue from the state saved there.
        command: the command line, for the record of the run.
        say: called with status lines.
        data: the records, instead of those that the experiment describes.
        model: the filter to train, instead of the untrained one that the experiment describes.
        progress: show steps and the time left on standard error.

    Returns:
        The finished run; None on processes of nonzero rank.

    Raises:
        StoppedError: Ctrl-C; the state is saved.
        ConfigError: the experiment does not fit the data, or the folder holds another run.

    >>> import tempfile
    >>> from fwnkf.training.experiments import parse_experiment
    >>> data = {"name": "simulated", "train": 2, "val": 1, "test": 1, "steps": 5}
    >>> filter = {"name": "fwnkf", "options": {"residual": {"width": 4}}}
    >>> values = {"data": data, "system": {"name": "pendulum"}, "filter": filter, "trainer": {"steps": 1}}
    >>> fit(parse_experiment(values), tempfile.mkdtemp()).model.name
    'fwnkf'
    """
    folder, begin = Path(folder), cpu_time()
    options = experiment.trainer
    previous = _previous(folder, experiment, resume)
    check_writable(folder)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    protocol = load_data(experiment) if data is None else data
    records = protocol.split.train
    length = records.y.shape[1]
    too_late = [term.from_step for term in parse_terms(experiment.loss, "")[0] if term.from_step >= length]
    if too_late:
        raise ConfigError(f"loss: from_step = {too_late[0]} must be below the length of the records, {length} steps")
    has_state = resume and (folder / STATE_FILE).is_file()
    prepared = cpu_time()
    if model is None:
        model = prepare_filter(experiment, records, say, fresh=not has_state)
    preparation_seconds = cpu_time() - prepared
    plan = Plan(len(records), length, options.batch_size, options.chunk, experiment.seed)
    every = plan.whole_groups(min(options.validate_every, options.steps))
    steps = -(-options.steps // every) * every
    if steps != options.steps:
        say(f"training for {steps} steps instead of {options.steps}, so that the run ends with a validation")
    say(memory.check(memory.estimate(model, records, plan, options), options))
    module = TrainingModule(model, experiment, plan, protocol.split.val, steps)
    say(f"the filter is run by engine {module.engine!r}")
    checkpoints = CheckpointCallback(folder, options.monitor, options.patience, options.save_seconds, begin)
    trainer = _trainer(experiment, folder, steps, checkpoints, progress)
    record = {**_record(experiment, protocol, model, command), "steps": 0, "cpu_seconds": 0.0}
    record["preparation_seconds"] = round(preparation_seconds, 1)
    if previous is not None:
        _check_same_data(previous, record, folder)
        record["started"] = previous["started"]
        if has_state:  # pretrained by the run that was stopped
            record["preparation_seconds"] = previous.get("preparation_seconds", 0.0)
    if trainer.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
        write_record(folder, {**record, "status": "running"})
    loader = Batches(
        records, plan, every, lambda: Position(trainer.global_step, trainer.global_rank, trainer.world_size)
    )
    status = "stopped"
    try:
        with _stop_on_interrupt(checkpoints), _quiet():
            trainer.fit(module, loader, [0], ckpt_path=str(folder / STATE_FILE) if has_state else None)
        status = "done"
    finally:
        if trainer.is_global_zero:
            record |= {"status": status, "steps": trainer.global_step, "cpu_seconds": round(checkpoints.cpu_seconds, 1)}
            record |= {"compilation_seconds": round(checkpoints.compilation_seconds, 1)}
            record |= {"best_step": checkpoints.best_step, "best": checkpoints.best}
            write_record(folder, record)
    if not trainer.is_global_zero:
        return None
    return Fitted(folder, experiment, load(folder / "best"), protocol, record)


def prepare_filter(
    experiment: Experiment, records: Records, say: Callable[[str], None] = lambda text: None, *, fresh: bool = True
) -> Filter:
    """The filter before training: normalised with the statistics of the records, and pretrained if configured.

    With ``filter.start``, the weights of a saved filter.

    Args:
        experiment: what to train.
        records: the training records.
        say: called with status lines.
        fresh: False skips pretraining, for a run whose weights are about to be replaced by a saved state.

    Returns:
        The filter.

    >>> from fwnkf.training.experiments import parse_experiment
    >>> data = {"name": "simulated", "train": 2, "val": 1, "test": 1, "steps": 5}
    >>> experiment = parse_experiment({"data": data, "system": {"name": "pendulum"}})
    >>> prepare_filter(experiment, load_data(experiment).split.train).name
    'fwnkf'
    """
    torch.manual_seed(experiment.seed)
    data_signature = signature_of_records(records)
    section = experiment.filter
    model = build_filter(experiment, data_signature, measure_for(experiment, records)).to(records.y.dtype)
    if section.start is None:
        model.normalize(statistics(records))
        if experiment.trainer.pretrain and fresh and not is_linear(section):  # whose regression has a closed form
            trainer, share = experiment.trainer, section.process_share
            say(pretrain(model, records, trainer.pretrain, share, experiment.seed, trainer.refine))
        if section.noise_from_spectrum and fresh:
            say(start_noise(model, records))
        return model
    saved = load(section.start).to(records.y.dtype)
    same_system = getattr(saved.system, "config", None) == getattr(model.system, "config", None)
    if saved.config != model.config or not same_system:
        raise ConfigError(
            f"filter.start = {section.start!r} holds a filter with other options than filter.options of this experiment"
        )
    model.load_state_dict(saved.state_dict())
    return model


def resume_experiment(folder: str | Path) -> Experiment:
    """The experiment of an existing run folder.

    Args:
        folder: the folder of the run.

    Returns:
        The experiment.

    Raises:
        ConfigError: it is not a run folder.

    >>> import tempfile
    >>> values = {"data": {"name": "lorenz"}, "filter": {"name": "kalmannet"}}
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_record(folder, {"format": FORMAT, "experiment": values})
    >>> resume_experiment(folder).filter.name
    'kalmannet'
    """
    return parse_experiment(read_record(Path(folder))["experiment"], str(Path(folder) / RUN_FILE))


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run, ``run.json``.

    Args:
        folder: the folder of the run.

    Returns:
        Its values.

    Raises:
        ConfigError: it is not a run folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_record(folder, {"format": FORMAT, "experiment": {}})
    >>> read_record(folder)["experiment"]
    {}
    """
    try:
        record = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} is not a run folder: {RUN_FILE} cannot be read ({error})") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("experiment"), dict):
        raise ConfigError(f"{folder / RUN_FILE} does not have the format that this version writes")
    return record


def write_record(folder: Path, record: dict[str, Any]) -> None:
    temporary = folder / f"{RUN_FILE}.part"
    temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, folder / RUN_FILE)


# ---- helpers --------------------------------------------------------------------------------------------------------


def _previous(folder: Path, experiment: Experiment, resume: bool) -> dict[str, Any] | None:
    """The record of the run in this folder, if there is one that can be resumed."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return None  # checked by the process of rank 0
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a folder for the run with --run")
    if not (folder / RUN_FILE).exists():
        if resume:
            raise ConfigError(f"{folder} has no run to resume; start one without --resume")
        return None
    if not resume:
        raise ConfigError(f"{folder} already has a run; continue it with --resume, or choose another folder with --run")
    record = read_record(folder)
    # parsed first, so that fields added in later versions get their defaults on both sides
    earlier = parse_experiment(record["experiment"], str(folder / RUN_FILE)).as_dict()
    if json.dumps(experiment.as_dict(), sort_keys=True) != json.dumps(earlier, sort_keys=True):
        raise ConfigError(
            f"{folder} is a run of a different experiment; resume it unchanged, or choose another folder with --run"
        )
    return record


def _check_same_data(previous: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    if previous["data_digest"] != record["data_digest"]:
        raise ConfigError(
            f"{folder}: the data have changed since this run started (their digests differ); "
            "restore them, or start a new run"
        )


def _record(experiment: Experiment, protocol: Protocol, model: Filter, command: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": experiment.name,
        "seed": experiment.seed,
        "experiment": json.loads(json.dumps(experiment.as_dict())),
        "versions": provenance.versions(),
        "machine": {"system": platform.platform(), "threads": torch.get_num_threads()},
        "commit": provenance.commit(),
        "data_digest": digest(*protocol.split),
        "test_digest": digest(protocol.split.test),
        "command": command,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def _trainer(
    experiment: Experiment, folder: Path, steps: int, checkpoints: CheckpointCallback, progress: bool
) -> lightning.Trainer:
    options = experiment.trainer
    distributed = options.devices > 1
    loggers = [_logger(name, folder, experiment) for name in options.loggers]
    with _quiet(), _misconfiguration_as_config_error():
        return lightning.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            # a loss need not depend on every parameter, for example on the bias of a masked head
            strategy="ddp_find_unused_parameters_true" if distributed else "auto",
            max_steps=steps,
            max_epochs=-1,  # limited by steps: a run resumed between two epochs would count one of them twice
            gradient_clip_val=experiment.optimizer.clip,
            num_sanity_val_steps=0,
            logger=loggers,
            log_every_n_steps=10,
            callbacks=[checkpoints, *([ProgressLine(experiment.name, steps)] if progress else [])],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            plugins=[SafetensorsIO()],
            default_root_dir=str(folder),
        )


def _logger(name: str, folder: Path, experiment: Experiment) -> Any:
    """A Lightning logger by its short name; packages of external services are installed by the user."""
    if name == "tensorboard":
        need("tensorboard", "train")
    cls = getattr(need("lightning.pytorch.loggers", "train"), LOGGERS[name])
    try:
        if name in ("tensorboard", "csv"):
            return cls(save_dir=str(folder), name=f"log_{name}", version="")
        return cls(save_dir=str(folder), **({"project": "fwnkf"} if name == "wandb" else {}))
    except ModuleNotFoundError as missing:
        raise ConfigError(f"trainer.loggers: {name} needs a package that is not installed: {missing}") from missing


@contextlib.contextmanager
def _misconfiguration_as_config_error() -> Iterator[None]:
    """Turn Lightning's error about a missing device into a ConfigError of one line."""
    try:
        yield
    except MisconfigurationException as error:
        raise ConfigError(f"trainer.accelerator or trainer.devices: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _stop_on_interrupt(checkpoints: CheckpointCallback) -> Iterator[None]:
    """First Ctrl-C: finish the step, save and stop. Second: stop immediately."""

    def request_stop(number: int, frame: Any) -> None:
        if checkpoints.stop_requested:
            raise KeyboardInterrupt
        checkpoints.stop_requested = True
        print("\nstopping after this step; press Ctrl-C again to stop immediately", file=sys.stderr)

    try:
        previous = signal.signal(signal.SIGINT, request_stop)
    except ValueError:  # not the main thread, where signal handlers cannot be set
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's hints (data loader workers, checkpoints, available GPUs), which do not apply here."""
    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


__all__ = ["Fitted", "StoppedError", "fit", "prepare_filter", "read_record", "resume_experiment"]
