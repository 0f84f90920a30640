"""From an experiment to a trained filter in a folder of its own, that can be stopped and gone on from at any moment."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from ..checkpoint import load
from ..data.protocols import Protocol, Records, digest
from ..errors import ConfigError
from ..extras import need
from ..filters.base import Filter
from . import memory
from .batches import Batches, Place, Plan
from .checkpointing import STATE_FILE, CheckpointCallback, StoppedError
from .config import LOGGERS, Experiment
from .experiments import parse_experiment
from .losses import parse_terms
from .module import TrainingModule
from .noise_start import start_noise
from .pretrain import pretrain
from .progress import ProgressLine
from .resume import SafetensorsIO
from .setup import build_filter, load_data, measure, of_task, statistics

RUN_FILE = "run.json"
FORMAT = 1
_PACKAGES = ("fwnkf", "torch", "numpy", "safetensors", "lightning")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A finished run: the folder, the best filter by validation, and the records it was trained on."""

    folder: Path
    experiment: Experiment
    model: Filter
    data: Protocol
    record: dict[str, Any]


def fit(
    experiment: Experiment,
    folder: str | Path,
    *,
    resume: bool = False,
    command: str = "",
    say: Callable[[str], None] = lambda text: None,
    data: Protocol | None = None,
) -> Fitted | None:
    """Train, or go on training. ``None`` on helper processes of a run over several devices.

    Raises :class:`StoppedError` after Ctrl-C, when the state is saved; ``resume=True`` goes on from there.
    """
    folder, begin = Path(folder), time.process_time()
    options = experiment.trainer
    previous = _previous(folder, experiment, resume)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    made = load_data(experiment) if data is None else data
    task = made.split.train
    late = [term.from_step for term in parse_terms(experiment.loss, "")[0] if term.from_step >= task.y.shape[1]]
    if late:
        raise ConfigError(f"loss: from_step = {late[0]} leaves nothing of records of {task.y.shape[1]} steps")
    going_on = resume and (folder / STATE_FILE).is_file()
    model = prepare_filter(experiment, task, say, fresh=not going_on)
    plan = Plan(len(task), task.y.shape[1], options.batch_size, options.chunk, experiment.seed)
    every = plan.whole_groups(min(options.validate_every, options.steps))
    steps = -(-options.steps // every) * every
    if steps != options.steps:
        say(f"training for {steps} steps rather than {options.steps}, so that the run ends with a validation")
    say(memory.check(memory.estimate(model, task, plan, options), options))
    module = TrainingModule(model, experiment, plan, made.split.val, steps)
    checkpoints = CheckpointCallback(folder, options.monitor, options.patience, options.save_seconds, begin)
    trainer = _trainer(experiment, folder, steps, checkpoints)
    record = {**_record(experiment, made, model, command), "steps": 0, "cpu_seconds": 0.0}
    if previous is not None:
        _same_ground(previous, record, folder)
        record["started"] = previous["started"]
    if trainer.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
        write_record(folder, {**record, "status": "running"})
    loader = Batches(task, plan, every, lambda: Place(trainer.global_step, trainer.global_rank, trainer.world_size))
    status = "stopped"
    try:
        with _asked_to_stop(checkpoints), _quiet():
            trainer.fit(module, loader, [0], ckpt_path=str(folder / STATE_FILE) if going_on else None)
        status = "done"
    finally:
        if trainer.is_global_zero:
            record |= {"status": status, "steps": trainer.global_step, "cpu_seconds": round(checkpoints.cpu_seconds, 1)}
            record |= {"best_step": checkpoints.best_step, "best": checkpoints.best}
            write_record(folder, record)
    if not trainer.is_global_zero:
        return None
    return Fitted(folder, experiment, load(folder / "best"), made, record)


def prepare_filter(
    experiment: Experiment, task: Records, say: Callable[[str], None] = lambda text: None, *, fresh: bool = True
) -> Filter:
    """The filter before training: with the scales of its records, pretrained if so wanted, or a saved one.

    ``fresh=False`` leaves pretraining out: a saved state will replace the weights.
    """
    torch.manual_seed(experiment.seed)
    shape = of_task(task)
    section = experiment.filter
    model = build_filter(experiment, shape, None if section.equations else measure(task)).to(task.y.dtype)
    if section.start is None:
        model.normalize(statistics(task))
        if experiment.trainer.pretrain and fresh:
            share = section.process_share
            say(pretrain(model, task, experiment.trainer.pretrain, share, experiment.seed))
        if section.noise_from_spectrum and fresh:
            say(start_noise(model, task))
        return model
    saved = load(section.start).to(task.y.dtype)
    if saved.config != model.config:
        raise ConfigError(f"filter.start = {section.start!r} holds a filter of other options than this experiment's")
    model.load_state_dict(saved.state_dict())
    return model


def resume_experiment(folder: str | Path) -> Experiment:
    """The experiment of a run folder, to go on with."""
    return parse_experiment(read_record(Path(folder))["experiment"], str(Path(folder) / RUN_FILE))


def read_record(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} is no run: {RUN_FILE} cannot be read ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("experiment"), dict):
        raise ConfigError(f"{folder / RUN_FILE} is not of the form this version writes")
    return found


def write_record(folder: Path, record: dict[str, Any]) -> None:
    draft = folder / f"{RUN_FILE}.part"
    draft.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, folder / RUN_FILE)


# ---- parts ----------------------------------------------------------------------------------------------------------


def _previous(folder: Path, experiment: Experiment, resume: bool) -> dict[str, Any] | None:
    """The record of an earlier start in this folder, if there is one and it may be gone on with."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return None  # the first process has looked
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder for the run with --run")
    if not (folder / RUN_FILE).exists():
        if resume:
            raise ConfigError(f"{folder} holds no run to resume; start one without --resume")
        return None
    if not resume:
        raise ConfigError(f"{folder} holds a run already; go on with --resume, or name another folder with --run")
    found = read_record(folder)
    # parsed, so that a field that came later has its default in both
    earlier = parse_experiment(found["experiment"], str(folder / RUN_FILE)).as_dict()
    if json.dumps(experiment.as_dict(), sort_keys=True) != json.dumps(earlier, sort_keys=True):
        raise ConfigError(f"{folder} is a run of another experiment; resume it as it is, or start a new folder")
    return found


def _same_ground(previous: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    if previous["data_digest"] != record["data_digest"]:
        raise ConfigError(f"{folder}: the data have changed since this run started (their digests differ)")


def _record(experiment: Experiment, made: Protocol, model: Filter, command: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": experiment.name,
        "seed": experiment.seed,
        "experiment": json.loads(json.dumps(experiment.as_dict())),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "machine": {"system": platform.platform(), "threads": torch.get_num_threads()},
        "commit": _commit(),
        "data_digest": digest(*made.split),
        "test_digest": digest(made.split.test),
        "command": command,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the package's working copy, marked where files differ from it; None where there is none."""
    try:
        found = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _trainer(experiment: Experiment, folder: Path, steps: int, checkpoints: CheckpointCallback) -> lightning.Trainer:
    options = experiment.trainer
    several = options.devices > 1
    loggers = [_logger(name, folder, experiment) for name in options.loggers]
    with _quiet(), _told_as_config():
        return lightning.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            # a filter may have parameters that a loss does not reach, the encoder's last bias of a masked head say
            strategy="ddp_find_unused_parameters_true" if several else "auto",
            max_steps=steps,
            max_epochs=-1,  # steps alone count: a run resumed between two epochs would count one of them twice
            gradient_clip_val=experiment.optimizer.clip,
            num_sanity_val_steps=0,
            logger=loggers,
            log_every_n_steps=10,
            callbacks=[checkpoints, ProgressLine(experiment.name, steps)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            plugins=[SafetensorsIO()],
            default_root_dir=str(folder),
        )


def _logger(name: str, folder: Path, experiment: Experiment) -> Any:
    """A Lightning logger by its short name; whatever service it speaks to is the user's to install and to choose."""
    if name == "tensorboard":
        need("tensorboard", "train")
    cls = getattr(need("lightning.pytorch.loggers", "train"), LOGGERS[name])
    try:
        if name in ("tensorboard", "csv"):
            return cls(save_dir=str(folder), name=f"log_{name}", version="")
        return cls(save_dir=str(folder), **({"project": "fwnkf"} if name == "wandb" else {}))
    except ModuleNotFoundError as missing:
        raise ConfigError(f"trainer.loggers: {name} needs its own package: {missing}") from missing


@contextlib.contextmanager
def _told_as_config() -> Iterator[None]:
    """Lightning's complaint about a machine without the device that was asked for, in one line."""
    try:
        yield
    except MisconfigurationException as error:
        raise ConfigError(f"trainer.accelerator or trainer.devices: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _asked_to_stop(checkpoints: CheckpointCallback) -> Iterator[None]:
    """Ctrl-C once: finish the step, save, stop. Twice: stop at once."""

    def ask(number: int, frame: Any) -> None:
        if checkpoints.stop_asked:
            raise KeyboardInterrupt
        checkpoints.stop_asked = True
        print("\nstopping after this step; Ctrl-C again to stop at once", file=sys.stderr)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: whoever runs us there handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice to its own users (workers, checkpoints, GPUs found) is not for ours."""
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
