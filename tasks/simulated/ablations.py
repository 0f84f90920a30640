"""Ablations: the same training with one part of the FW-NKF removed, added or exchanged, over several seeds.

Three studies, each of the paper's form and its variants; everything else (records, steps, batch, learning rate, loss)
is equal within a study. Two variants that are the same experiment are trained once. A seed draws training records,
initial weights and (protocol ``paper``) the split, so variants are compared seed by seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fwnkf.checkpoint import load
from fwnkf.data.protocols import Protocol, Records
from fwnkf.errors import ConfigError, NumericalFailureError
from fwnkf.evaluation.baselines import oracle
from fwnkf.evaluation.evaluate import estimate
from fwnkf.evaluation.rows import Row
from fwnkf.evaluation.runs import mean_and_std
from fwnkf.filters.base import Filter
from fwnkf.filters.factory import build
from fwnkf.metrics.accuracy import summarize
from fwnkf.plain import number, plain

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment

RUNS = Path("runs/ablations")
SEEDS = (0, 1, 2)
FIGURES = ("mse", "mse_from_10", "nees", "nees_from_10", "coverage95")
REFERENCES = {
    "ekf": "equations known, noise assumed white",
    "oracle": "equations and noise model known",
    "untrained": "the paper's form before any training: the classical filter it extends",
    "pretrained": "its transition fitted by regression on known states, not trained through the filter",
    "noise states, untrained": "noise states fitted to the spectrum of the noise, not trained",
}
LATE = 10
"""Steps until the initial state no longer matters; an initial state that is given exactly has no finite NEES."""
EXPERIMENTS = Path(__file__).parent / "experiments"
SCORE_FILE = "score.json"
PAPER = "paper form"
"""The variant that all others are changes of."""
NOISE_STATES = "noise states"
QUICK = (
    "trainer.steps=2",
    "trainer.validate_every=2",
    "trainer.compile=false",
    "trainer.batch_size=4",
    "data.train=8",
    "data.val=2",
    "data.test=4",
)


@dataclass(frozen=True)
class Variant:
    """One row: what differs from the paper's form, in words and as overrides of the experiment."""

    name: str
    description: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """One table: an experiment (a name of the package or a file) in the paper's form, and its variants."""

    task: str
    title: str
    experiment: str | Path
    overrides: tuple[str, ...]
    variants: tuple[Variant, ...]

    def read(self, variant: Variant, seed: int, *, quick: bool = False) -> Experiment:
        """The experiment of one run."""
        from fwnkf.training.experiments import read_experiment

        words = [*self.overrides, *variant.overrides, *(QUICK if quick else ())]
        if quick and any(word.startswith("trainer.pretrain=") for word in words):
            words.append("trainer.pretrain=2")
        return read_experiment(self.experiment, [*words, f"name=ablation-{self.task}", f"seed={seed}"])

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)


def loss(spectral: float, which: str = "prior", likelihoods: float = 0.0) -> str:
    """Algorithm 1's loss with a weight ``λ_Φ`` of the spectral term, as an override."""
    terms = ["{kind: state}", f"{{kind: spectral, weight: {spectral}, which: {which}}}"]
    if likelihoods:
        terms += [f"{{kind: {kind}, weight: {likelihoods}}}" for kind in ("posterior_nll", "innovation_nll")]
    return f"loss=[{', '.join(terms)}]"


def spectral_name(weight: float) -> str:
    return f"λ_Φ = {weight:g}"


NO_PHI = "filter.options.phi=null"
WEIGHTS = (0.0, 0.01, 0.1, 1.0)
POSTERIOR = f"{spectral_name(0.1)}, posterior"
LIKELIHOODS = f"{NOISE_STATES}, likelihoods"


def with_noise(lines: int, pole_radius: float) -> tuple[str, ...]:
    """Overrides that replace Φ by as many noise states."""
    part = f"{{part: lines, count: {lines}, shared: true, pole_radius: {pole_radius}}}"
    return (NO_PHI, f"filter.options.noise={part}", "filter.noise_from_spectrum=true")


def phi(sections: int) -> str:
    """An override that adds Φ, with a pole radius as that of the noise states of these experiments."""
    return f"filter.options.phi={{sections: {sections}, pole_radius: 0.9999}}"


def variants(noise: tuple[str, ...], *, likelihoods: bool = True) -> tuple[Variant, ...]:
    """The variants of a study whose noise states have these overrides.

    Without ``likelihoods`` for an initial state that is given exactly, where the posterior has no density.
    """
    exact = Variant(
        LIKELIHOODS,
        "noise states, with the likelihoods of states and measurements in the loss",
        (*noise, loss(0.01, "prior", 0.3)),
    )
    return (
        Variant(PAPER, "GRU and Φ on the innovation, λ_Φ = 0.01 on the prior"),
        Variant("no Φ", "the innovation as it is", (NO_PHI,)),
        Variant(
            "no GRU",
            "no encoder: what it would condition, Q and R among it, is constant",
            ("filter.options.encoder=null",),
        ),
        Variant(NOISE_STATES, "noise states instead of a shaped innovation, started from the noise spectrum", noise),
        *(Variant(spectral_name(w), f"spectral loss of weight {w:g} on the prior", (loss(w),)) for w in WEIGHTS),
        Variant(POSTERIOR, "spectral loss of weight 0.1 on the posterior", (loss(0.1, "posterior"),)),
        *((exact,) if likelihoods else ()),
    )


_SHORT = ("trainer.batch_size=64", "trainer.validate_every=20", "trainer.compile=true", "trainer.loggers=[]")
_COLOURED = (
    "data.dtype=float32",
    "filter.options.noise=null",
    "filter.options.moments=linear",  # as the paper has it
    "filter.noise_from_spectrum=false",
    "optimizer.learning_rate=2e-3",
    "trainer.monitor=val_mse",
    loss(0.01),
)
STUDIES = (
    Study(
        "lorenz-algorithm3-pretrained",
        "Lorenz `paper`, no equations, Algorithm 3 after regression of its transition",
        EXPERIMENTS / "lorenz-algorithm3.yaml",
        (*_SHORT, "trainer.steps=100", "trainer.pretrain=300", loss(0.01)),
        variants(with_noise(1, 0.999), likelihoods=False),
    ),
    Study(
        "lorenz-high-band",
        "Lorenz `strict` with equations, noise in a high band",
        "lorenz-coloured",
        (*_SHORT, *_COLOURED, "trainer.steps=60", "data.scenario=high_band", phi(3)),
        variants(with_noise(3, 0.9999)),
    ),
    Study(
        "pendulum-drift",
        "Pendulum `strict` with equations, drifting noise",
        "lorenz-coloured",
        (
            *_SHORT,
            *_COLOURED,
            "trainer.steps=60",
            "data.name=pendulum",
            "data.scenario=drift",
            "data.val=200",
            phi(1),
        ),
        variants(with_noise(1, 0.9999)),
    ),
)
TASKS = tuple(study.task for study in STUDIES)


def chosen(tasks: Sequence[str] = ()) -> list[Study]:
    """The studies with these names, all if none is given."""
    unknown = [task for task in tasks if task not in TASKS]
    if unknown:
        raise ConfigError(f"no ablation is called {', '.join(unknown)}; there are: {', '.join(TASKS)}")
    return [study for study in STUDIES if not tasks or study.task in tasks]


def owners(study: Study, *, quick: bool = False) -> dict[str, str]:
    """For each variant the first one with the same experiment: that one is trained, the others share its figures."""
    first: dict[str, str] = {}
    owner = {}
    for variant in study.variants:
        experiment = json.dumps(study.read(variant, 0, quick=quick).as_dict(), sort_keys=True)
        owner[variant.name] = first.setdefault(experiment, variant.name)
    return owner


# ---- measuring ------------------------------------------------------------------------------------------------------


def measure(
    studies: Sequence[Study] = STUDIES,
    *,
    seeds: Sequence[int] = SEEDS,
    quick: bool = False,
    runs: Path = RUNS,
    say: Callable[[str], None] = print,
) -> Iterator[list[Row]]:
    """Train what is not done yet, seed by seed, and give all rows known so far after every seed of a study.

    A run that was stopped is resumed, one that is done is not repeated; its score is saved beside it.
    """
    runs = runs / "quick" if quick else runs
    scores: dict[str, dict[str, list[Row]]] = {study.task: {} for study in studies}
    for seed in seeds:
        for study in studies:
            by_method = scores[study.task]
            for name, score in _references(study, seed, quick, runs).items():
                by_method.setdefault(name, []).append(score)
            for name, owner in owners(study, quick=quick).items():
                if name == owner:
                    score = _trained(study, study.variant(name), seed, quick, runs, say)
                    by_method.setdefault(name, []).append(score)
                    say(f"{study.task}, {name}, seed {seed}: mse {score['mse']:.4g}")
            yield [row for one in studies if scores[one.task] for row in _rows(one, scores[one.task], quick)]


def _rows(study: Study, scores: dict[str, list[Row]], quick: bool) -> list[Row]:
    """References first, then every variant; one that is the same experiment as another names it in ``same_as``."""
    shared = owners(study, quick=quick)
    common = {"settings": settings(study.read(study.variants[0], 0, quick=quick))}
    rows = [
        {**over_seeds(study, name, description, "reference", scores[name]), **common}
        for name, description in REFERENCES.items()
        if name in scores
    ]
    for variant in study.variants:
        owner = shared[variant.name]
        row = {**over_seeds(study, variant.name, variant.description, "trained", scores[owner]), **common}
        rows.append(row if owner == variant.name else {**row, "same_as": owner})
    return rows


def over_seeds(study: Study, name: str, description: str, kind: str, scores: list[Row]) -> Row:
    """One row: mean and spread of a method's scores, and the scores by seed."""
    row: Row = {"task": study.task, "method": name, "description": description, "kind": kind}
    row["seeds"] = [score["seed"] for score in scores]
    row["records"] = scores[0].get("records")
    for figure in (*FIGURES, "cpu_seconds"):
        values = [score.get(figure) for score in scores]
        row[figure], row[f"{figure}_std"] = mean_and_std(values)
        row[f"{figure}_by_seed"] = values
    row["best_steps"] = [score.get("best_step") for score in scores]
    row["failed"] = [score["failed"] for score in scores if "failed" in score]
    row["command"] = f"python -m tasks ablations {study.task}"
    return row


def settings(experiment: Experiment) -> str:
    """What all rows of a task share, in words."""
    data, trainer, options = experiment.data, experiment.trainer, experiment.filter.options
    encoder, sections = options["encoder"], options["phi"]["sections"]
    given = "; the equations are given, without a residual network" if experiment.filter.equations else ""
    pretrained = f", after {trainer.pretrain} steps of regression" if trainer.pretrain else ""
    records = "as many training records as the paper" if data.train is None else f"{data.train} training records"
    return (
        f"{trainer.steps} steps on batches of {trainer.batch_size}, learning rate "
        f"{experiment.optimizer.learning_rate:g}{pretrained}; {records}, {data.dtype}; a GRU of {encoder['units']}, "
        f"which reads the {encoder.get('reads', 'previous')} measurement; {sections} "
        f"section{'s' if sections > 1 else ''} of Φ, as many oscillators as noise states{given}"
    )


def _trained(study: Study, variant: Variant, seed: int, quick: bool, runs: Path, say: Callable[[str], None]) -> Row:
    """The score of one run, which is trained first if it is not done."""
    from fwnkf.training.experiments import parse_experiment
    from fwnkf.training.fit import fit, read_record
    from fwnkf.training.setup import load_data

    experiment = study.read(variant, seed, quick=quick)
    folder = runs / f"{study.task}-{_slug(variant.name)}-{seed}"
    started = (folder / "run.json").is_file()
    if started and parse_experiment(read_record(folder)["experiment"], str(folder)) != experiment:
        raise ConfigError(f"{folder} holds a run of another experiment; move it away, or give another folder as --runs")
    score_file = folder / SCORE_FILE
    if started and score_file.is_file():
        return _read_score(score_file)
    score: Row = {"seed": seed}
    try:
        if not (started and read_record(folder)["status"] == "done"):
            torch.compiler.reset()  # torch keeps a limited number of compiled versions of one function
            command = f"python -m tasks ablations {study.task}"
            fit(experiment, folder, resume=started, command=command, say=lambda text: None)
        score |= evaluated(load(folder / "best"), load_data(experiment))
    except NumericalFailureError as error:  # also a result
        say(f"{study.task}, {variant.name}, seed {seed}: {error}")
        score |= {"mse": float("inf"), "failed": str(error).splitlines()[0]}
    record = read_record(folder)
    score |= {name: record.get(name) for name in ("cpu_seconds", "best_step", "parameters")}
    _write_score(score_file, score)
    return score


def _references(study: Study, seed: int, quick: bool, runs: Path) -> dict[str, Row]:
    """What needs no training through the filter, on the same test records."""
    from fwnkf.training.fit import prepare_filter
    from fwnkf.training.setup import load_data

    paper, noise = (study.read(study.variant(name), seed, quick=quick) for name in (PAPER, NOISE_STATES))
    experiments = json.dumps([paper.as_dict(), noise.as_dict()], sort_keys=True)
    score_file = runs / f"{study.task}-references-{seed}.json"
    if score_file.is_file():
        scores = _read_score(score_file)
        if scores.pop("experiments") == experiments:
            return scores
    protocol = load_data(paper)
    train, test = protocol.split.train, protocol.split.test
    assert test.system is not None
    system, scenario = test.system, paper.data.scenario
    unfitted = replace(paper, trainer=replace(paper.trainer, pretrain=0))
    methods: dict[str, Callable[[], Filter]] = {
        "ekf": lambda: build("ekf", system=system),
        "oracle": lambda: oracle(system, scenario, test),
        "untrained": lambda: prepare_filter(unfitted, train),
        "pretrained": lambda: prepare_filter(paper, train),
        "noise states, untrained": lambda: prepare_filter(noise, train),
    }
    if not paper.trainer.pretrain:
        del methods["pretrained"]
    if scenario == "white":
        del methods["oracle"], methods["noise states, untrained"]
    scores = {name: {"seed": seed, **evaluated(make(), protocol)} for name, make in methods.items()}
    score_file.parent.mkdir(parents=True, exist_ok=True)
    _write_score(score_file, {**scores, "experiments": experiments})
    return scores


def evaluated(model: Filter, protocol: Protocol) -> Row:
    """Figures of one filter on the test records."""
    records = protocol.split.test
    estimated = estimate(model, records)
    both = (estimated.mean, estimated.cov)
    whole = summarize(records.layout, both, records.truth, late=LATE)
    late = summarize(records.layout, both, records.truth, valid=_late_steps(records))
    return {
        "records": len(records),
        **{name: whole[name] for name in ("mse", "mse_from_10", "nees", "coverage95", "failures")},
        "nees_from_10": late["nees"],
    }


def _late_steps(records: Records) -> torch.Tensor:
    return (torch.arange(records.truth.shape[1]) >= LATE).expand(records.truth.shape[:-1])


def _slug(name: str) -> str:
    plain_name = name.replace("Φ", "phi").replace("λ", "lambda").lower()
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in plain_name).split())


def _write_score(path: Path, score: Row) -> None:
    path.write_text(json.dumps(plain(score), indent=1) + "\n", encoding="utf-8")


def _read_score(path: Path) -> Row:
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {key: number(item) for key, item in value.items()} if isinstance(value, dict) else number(value)
        for name, value in content.items()
    }
