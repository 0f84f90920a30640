"""Ablations: variants differ in what they say, equal ones are trained once, sentences follow the figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

pytest.importorskip("lightning")

from fwnkf.errors import ConfigError, NumericalFailureError
from fwnkf.training import fit as training
from tasks.__main__ import main
from tasks.simulated import ablations, ablations_page
from tasks.simulated.ablations import LIKELIHOODS, NOISE_STATES, PAPER, POSTERIOR, STUDIES
from tasks.simulated.ablations_page import Difference, by_chance, difference, markdown, sentences


def flat(values, path=""):
    """Leaves by their path."""
    if isinstance(values, dict):
        return {key: leaf for name, value in values.items() for key, leaf in flat(value, f"{path}.{name}").items()}
    if isinstance(values, list | tuple) and path == ".loss":
        return {key: leaf for term in values for key, leaf in flat(term, f"{path}.{term['kind']}").items()}
    return {path[1:]: values}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.task)
def test_variants_differ_from_the_paper_in_what_they_say_and_in_nothing_else(study):
    def changed(name, base=PAPER):
        here, there = (flat(study.read(study.variant(one), 7).as_dict()) for one in (name, base))
        return {key: here.get(key) for key in here.keys() | there.keys() if here.get(key) != there.get(key)}

    paper = study.read(study.variant(PAPER), 7)
    assert paper.filter.options["phi"]["sections"] > 0
    assert paper.filter.options["encoder"]["units"] > 0
    assert paper.seed == 7
    assert [term["kind"] for term in paper.loss] == ["state", "spectral"]
    for name, part in (("no Φ", "phi"), ("no GRU", "encoder")):
        without = study.read(study.variant(name), 7)
        assert without.filter.options[part] is None
        assert all(key.startswith(f"filter.options.{part}") for key in changed(name))
    noise = study.read(study.variant(NOISE_STATES), 7)
    lines, phi = noise.filter.options["noise"], paper.filter.options["phi"]
    assert (lines["part"], lines["count"], lines["pole_radius"]) == ("lines", phi["sections"], phi["pole_radius"])
    assert noise.filter.noise_from_spectrum
    kinds = ("filter.options.phi", "filter.options.noise", "filter.noise_from_spectrum")
    assert all(key.startswith(kinds) for key in changed(NOISE_STATES))
    assert changed("λ_Φ = 0") == {"loss.spectral.weight": 0.0}
    assert changed("λ_Φ = 0.01") == {}
    assert changed("λ_Φ = 0.1") == {"loss.spectral.weight": 0.1}
    assert changed("λ_Φ = 1") == {"loss.spectral.weight": 1.0}
    assert changed(POSTERIOR, "λ_Φ = 0.1") == {"loss.spectral.which": "posterior"}
    if paper.data.protocol == "strict":  # a start that is given exactly has no likelihood
        added = changed(LIKELIHOODS, NOISE_STATES)
        assert added.pop("loss.posterior_nll.weight") == added.pop("loss.innovation_nll.weight") == 0.3
        assert set(added) == {"loss.posterior_nll.kind", "loss.innovation_nll.kind"}
    else:
        assert LIKELIHOODS not in [variant.name for variant in study.variants]


def test_tasks_are_what_they_say():
    experiments = {study.task: study.read(study.variants[0], 0) for study in STUDIES}
    one, two, three = (
        experiments[name] for name in ("lorenz-algorithm3-pretrained", "lorenz-high-band", "pendulum-drift")
    )
    assert (one.data.name, one.data.protocol, one.data.scenario) == ("lorenz", "paper", "white")
    assert not one.filter.equations
    assert one.filter.options["encoder"]["reads"] == "current"
    assert one.filter.options["transition"] == {"rank": 3}
    assert (two.data.name, two.data.protocol, two.data.scenario) == ("lorenz", "strict", "high_band")
    assert (three.data.name, three.data.protocol, three.data.scenario) == ("pendulum", "strict", "drift")
    for given in (two, three):
        assert given.filter.equations
        assert given.filter.options["moments"] == "linear"
        assert "residual" not in given.filter.options
        assert ablations.settings(given).endswith("; the equations are given, without a residual network")
    assert "equations" not in ablations.settings(one)
    with pytest.raises(ConfigError, match=r"no ablation is called lorenz; there are: lorenz-algorithm3-pretrained"):
        ablations.chosen(["lorenz"])


def test_every_part_names_methods_that_differ_and_are_measured():
    known = {variant.name for study in STUDIES for variant in study.variants} | set(ablations.REFERENCES)
    for part in ablations_page.PARTS:
        assert {part.with_it, part.without} <= known
        assert part.with_it != part.without


@pytest.fixture
def tiny(short_records):
    """The pendulum's study with three variants, two of which are one experiment."""
    study = ablations.chosen(["pendulum-drift"])[0]
    return replace(study, variants=tuple(study.variant(name) for name in (PAPER, "λ_Φ = 0.01", NOISE_STATES)))


def test_equal_experiments_are_trained_once_kept_and_not_trained_again(tiny, tmp_path, monkeypatch):
    trained = []

    def counted(experiment, folder, **options):
        trained.append(folder.name)
        return fit(experiment, folder, **options)

    fit = training.fit
    monkeypatch.setattr(training, "fit", counted)
    assert ablations.owners(tiny) == {PAPER: PAPER, "λ_Φ = 0.01": PAPER, NOISE_STATES: NOISE_STATES}
    options = {"seeds": (0, 1), "quick": True, "runs": tmp_path, "say": lambda text: None}
    first, last = ablations.measure([tiny], **options)
    assert trained == [f"pendulum-drift-{name}-{seed}" for seed in (0, 1) for name in ("paper-form", "noise-states")]
    assert [row["seeds"] for row in first] == [[0]] * len(first)
    rows = {row["method"]: row for row in last}
    assert rows["λ_Φ = 0.01"]["same_as"] == PAPER
    assert rows["λ_Φ = 0.01"]["mse_by_seed"] == rows[PAPER]["mse_by_seed"]
    assert rows[PAPER]["mse"] == pytest.approx(sum(rows[PAPER]["mse_by_seed"]) / 2)
    # before training, the filter is the EKF it extends; noise states are not
    assert rows["untrained"]["mse"] == pytest.approx(rows["ekf"]["mse"], rel=1e-5)
    assert rows["noise states, untrained"]["mse"] != pytest.approx(rows["ekf"]["mse"], rel=1e-2)
    assert list(ablations.measure([tiny], **options))[-1] == last
    assert len(trained) == 4

    other = replace(tiny, overrides=(*tiny.overrides, "optimizer.learning_rate=0.5"))
    with pytest.raises(ConfigError, match="holds a run of another experiment"):
        list(ablations.measure([other], **options))


def test_a_run_that_fails_is_a_result(tiny, tmp_path, monkeypatch):
    def failing(experiment, folder, **options):
        fit(experiment, folder, **options)
        raise NumericalFailureError("no factor at step 3\nmore")

    fit = training.fit
    monkeypatch.setattr(training, "fit", failing)
    one = replace(tiny, variants=tiny.variants[:1] + tiny.variants[2:])
    options = {"seeds": (0,), "quick": True, "runs": tmp_path, "say": lambda text: None}
    for rows in (list(ablations.measure([one], **options))[-1], list(ablations.measure([one], **options))[-1]):
        paper = next(row for row in rows if row["method"] == PAPER)
        assert math.isinf(paper["mse"])
        assert paper["failed"] == ["no factor at step 3"]
        page = markdown(rows)
        assert "failed with 1 of 1 seeds: no factor at step 3" in page
        assert "both failed" in page


def test_the_command_writes_the_page_of_its_rows(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ablations, "STUDIES", (tiny,))
    monkeypatch.setattr(ablations_page, "STUDIES", (tiny,))
    page, rows = tmp_path / "page.md", tmp_path / "rows.json"
    words = ["--quick", "--seeds", "0", "--runs", str(tmp_path), "--markdown", str(page), "--store", str(rows)]
    assert main(["ablations", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(rows.read_text(encoding="utf-8"))
    assert page.read_text(encoding="utf-8") == markdown(printed, quick=True)
    text = page.read_text(encoding="utf-8")
    assert "Its figures mean nothing" in text
    assert "single seed, no test" in text
    for row in printed:
        assert f"{row['mse']:.4g}" in text
    assert main(["ablations", "--seeds", "x"]) == 2
    assert main(["ablations", "x"]) == 1


# ---- sentences ------------------------------------------------------------------------------------------------------


def row(method, mse, kind="trained", coverage=0.95, **more):
    """A row as `measure` gives it, with these errors by seed."""
    study = STUDIES[1]
    scores = [
        {
            "seed": i,
            "mse": one,
            "mse_from_10": one / 2,
            "nees_from_10": 1.0,
            "coverage95": coverage,
            "cpu_seconds": 60.0,
        }
        for i, one in enumerate(mse)
    ]
    return {**ablations.over_seeds(study, method, "description", kind, scores), "settings": "settings", **more}


def test_differences_are_paired_by_seed_and_judged_by_their_standard_error():
    effect = difference(row("a", [1.1, 2.1, 3.4]), row("b", [1.0, 2.0, 3.0]))
    assert effect.mean == pytest.approx(0.2)
    assert effect.error == pytest.approx(0.1)  # of 0.1, 0.1, 0.4
    assert difference(row("a", [1.0, 2.0]), row("b", [2.0])).seeds == 1
    assert difference(row("a", [1.0]), row("b", [2.0], seeds=[5])) is None
    assert Difference(-0.21, 0.1, 3).verdict == "better"
    assert Difference(0.21, 0.1, 3).verdict == "worse"
    assert Difference(-0.19, 0.1, 3).verdict == "not significant"
    assert Difference(0.0, 0.0, 3).verdict == "not significant"
    assert Difference(-1.0, None, 1).verdict == "single seed"
    assert Difference(math.inf, None, 3).verdict == "worse"


def test_chance_is_that_of_students_t():
    assert by_chance(2) == pytest.approx(1 - 2 * math.atan(2) / math.pi, abs=1e-6)  # Cauchy
    assert by_chance(3) == pytest.approx(1 - 2 / math.sqrt(6), abs=1e-6)


def test_sentences_follow_the_figures():
    rows = [
        row("untrained", [0.5, 0.5, 0.5], "reference"),
        row(PAPER, [0.4, 0.41, 0.42], coverage=0.7),
        row("no Φ", [0.41, 0.40, 0.425]),
        row("no GRU", [0.3, 0.31, 0.33], coverage=0.94),
        row("λ_Φ = 0", [0.4, 0.41, 0.42]),
        row("λ_Φ = 1", [0.4, math.inf, 0.42]),
    ]
    lines = sentences(rows)
    lines_by_part = {line.split("**")[1]: line for line in lines if line.startswith("- ")}
    assert (
        "MSE 0.41 ± 0.01 with, 0.5 ± 0 without; difference -0.09 ± 0.0058 (18.0% less), significantly better"
        in (lines_by_part["Training as a whole"])
    )
    assert "within the spread over seeds: not significant" in lines_by_part["Φ"]
    assert "significantly better" not in lines_by_part["Φ"]
    assert "difference +0.097 ± 0.0033 (30.9% more), significantly worse" in lines_by_part["The GRU"]
    assert "Coverage 0.700 with, 0.940 without" in lines_by_part["The GRU"]
    assert "the filter with it failed" in lines_by_part["Spectral loss, λ_Φ = 1"]
    assert "Noise states instead of Φ" not in lines_by_part  # not among the rows
    short = next(line for line in lines if line.startswith("**Summary.**"))
    assert "Significantly better by MSE: Training as a whole (18.0% less)." in short
    assert "Significantly worse: The GRU (30.9% more); Spectral loss, λ_Φ = 1." in short
    assert "Not significant: Φ (0.4% less)." in short
    assert "no Φ has the coverage nearest to 95%" in lines[-1]
    equal = sentences([row(PAPER, [0.4, 0.5]), row("no Φ", [0.4, 0.5])])
    assert equal[0].split("; ")[1].startswith("no difference.")


def test_a_page_says_how_many_seeds_and_what_they_cost():
    rows = [
        row(PAPER, [0.4, 0.41, 0.42]),
        row("no Φ", [0.4, 0.41]),
        row("λ_Φ = 0.01", [0.4, 0.41, 0.42], same_as=PAPER),
    ]
    page = markdown(rows)
    assert "over 2 to 3 seeds" in page
    assert "5 trainings, 5 min of one processor" in page  # a run that is shared costs once
    assert "| **λ_Φ = 0.01** | the same run as paper form | 0.41 ± 0.01 |" in page
    assert "`python -m tasks ablations lorenz-high-band --markdown " in page
    assert "ablations lorenz-high-band --seeds 0,1 --quick --m" in markdown([row(PAPER, [0.4, 0.5])], quick=True)
