"""The README's table is what the cards say, misses included."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tasks.readme import BEGIN, END, Line

from fwnkf.cli import main
from fwnkf.errors import CheckpointError, DataError
from tasks import readme as summary
from tasks import table

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
SHIPPED = sorted(path.parent.name for path in MODELS.glob("*/figures.json"))
PAGE = f"before\n{BEGIN}\nold\n{END}\nafter\n"


def copied(folder: Path, task: str, **changes: object) -> Path:
    """A folder of models with one task in it, some of its figures changed."""
    (folder / task).mkdir(parents=True)
    figures = json.loads((MODELS / task / "figures.json").read_text(encoding="utf-8"))
    (folder / task / "figures.json").write_text(json.dumps(figures | changes), encoding="utf-8")
    return folder


def test_the_readme_has_what_the_command_would_write():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    between = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    assert between == summary.summary(MODELS, ROOT), f"the cards have changed: {summary.COMMAND}"


def test_every_task_has_a_reader_and_every_shipped_one_a_line():
    assert {task for made in table.GROUPS.values() for task in made} - set(summary.READERS) == set()
    assert sorted(line.task for line in summary.lines(MODELS)) == SHIPPED
    assert "lorenz" in SHIPPED


@pytest.mark.parametrize("task", SHIPPED)
def test_a_line_is_what_the_figures_say(task):
    """Mean and spread were kept when the filter was trained; the line takes them from the seeds."""
    kept = json.loads((MODELS / task / "figures.json").read_text(encoding="utf-8"))
    (line,) = (line for line in summary.lines(MODELS) if line.task == task)
    keys = {"dido": "ratio", "dido-attitude": "inclination_deg", "euroc": "mse", "euroc-strict": "rmse_p_5s"}
    keys |= {"broad": "mean", "broad-magnetometer": "mean", "uipdb": "both"}
    mean = kept["mean"][keys[task]] if task in keys else kept["mean"]
    assert line.mean == pytest.approx(mean)
    assert len(line.values) == len(kept.get("runs") or kept["seeds"])


@pytest.mark.parametrize(
    ("values", "target", "above", "others", "said"),
    [
        ((1.0, 2.0), 2.0, False, (), "yes"),
        ((1.0, 3.0), 2.5, False, (), "in the mean, 1 of 2 seeds"),
        ((1.0, 3.0), 1.5, False, (), "**no**"),
        ((1.0, 3.0), 1.5, True, (), "in the mean, 1 of 2 seeds"),
        ((1.0, 3.0), 2.5, True, (), "**no**"),
        ((1.0, 2.0), 2.0, False, (True, True), "yes"),
        ((1.0, 2.0), 2.0, False, (True, False), "**no**, 2 of 3 targets"),
        ((3.0, 3.0), 2.0, False, (True, False), "**no**, 1 of 3 targets"),
    ],
)
def test_a_miss_is_shown_as_a_miss(values, target, above, others, said):
    line = Line("made", "what", "reference", values, target, above, others)
    assert line.verdict() == said
    assert line.markdown("card").endswith(f"| {'≥' if above else '≤'} {target:g} | {said} |")


def test_of_many_targets_all_count(tmp_path):
    kept = json.loads((MODELS / "euroc-strict" / "figures.json").read_text(encoding="utf-8"))
    (line,) = summary.lines(copied(tmp_path / "a", "euroc-strict"))
    assert len(line.others) == len(kept["targets"]) - 1
    easy = dict.fromkeys(kept["targets"], 1e9)
    (line,) = summary.lines(copied(tmp_path / "b", "euroc-strict", targets=easy))
    assert line.verdict() == "yes"


def test_the_table_follows_the_figures_and_leaves_the_rest_of_a_page(tmp_path, capsys):
    models, page = copied(tmp_path / "models", "lorenz"), tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert main(["bench", "accuracy", "--readme", str(page), "--models", str(models)]) == 0
    text = page.read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in text
    assert (text.startswith(f"before\n{BEGIN}\n"), text.endswith(f"\n{END}\nafter\n"), "old" in text) == (1, 1, 0)
    (row,) = re.findall(r"^\| \[.*$", text, re.M)
    assert row.startswith("| [`lorenz`](models/lorenz/README.md) | ")
    assert row.endswith("| 0.2755 ± 0.0679 | EKF, equations given 0.000211 | **0.0040 ± 0.0033** | ≤ 0.01 | yes |")
    runs = [{"value": 0.5}, {"value": 0.7}]
    assert summary.summary(copied(tmp_path / "worse", "lorenz", runs=runs), tmp_path).count("**no**") == 1
    assert main(["bench", "accuracy", "--readme", str(page), "--models", str(models), "--json"]) == 0
    assert [found["task"] for found in json.loads(capsys.readouterr().out)] == ["lorenz"]
    assert page.read_text(encoding="utf-8") == text  # written twice, it stays as it is


def test_words_that_do_not_go_together_and_pages_without_marks(tmp_path, capsys):
    page = tmp_path / "page.md"
    for text in ("nothing", END + BEGIN, PAGE + PAGE):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="accuracy:begin"):
            summary.insert(page, MODELS)
        assert page.read_text(encoding="utf-8") == text
    assert main(["bench", "accuracy", "--readme", str(page), "--task", "lorenz"]) == 2
    with pytest.raises(CheckpointError, match=r"figures\.json is not of the form"):
        summary.lines(copied(tmp_path, "lorenz", runs=[{}]))
    capsys.readouterr()


@pytest.mark.parametrize("words", [["accuracy"], ["accuracy", "--readme", "x.md"], ["harm"]])
def test_without_trained_filters_one_is_told_where_they_are(tmp_path, monkeypatch, capsys, words):
    """As installed from a wheel, which has none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.md").write_text(PAGE, encoding="utf-8")
    assert main(["bench", *words]) == 1
    said = capsys.readouterr().err
    assert "sdist" in said
    assert "--models" in said


def test_references_are_those_of_the_page_of_results():
    text = (ROOT / "docs" / "results" / "references.md").read_text(encoding="utf-8")
    for task, (_, value) in summary.WITH_EQUATIONS.items():
        data, protocol = task.split("-")[0], "strict" if task.endswith("strict") else "paper"
        (row,) = re.findall(rf"^\| {data} \| {protocol} \| white \| \d+ \| ekf \| ([^|]*) \|", text, re.M)
        assert float(row) == value, task
