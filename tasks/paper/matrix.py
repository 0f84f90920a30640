"""The matrix of runs: recipes × data × protocols × weights of the spectral loss × seeds, read from one plain file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fwnkf.errors import ConfigError
from fwnkf.extras import need
from fwnkf.registry import import_modules
from tasks.interface import data_sets

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment
    from tasks.paper.search import Search

RECIPES = Path(__file__).parent / "recipes.yaml"
REFERENCES = "references"
"""Stands for methods that are not trained, where a group has a recipe."""
_FIELDS = {"seeds", "common", "search", "budget", "recipes", "tables"}
_MERGED = ("filter", "optimizer", "trainer")
"""Sections of an experiment that are merged field by field."""
_BUDGET_FIELDS = {*_MERGED, "data", "system", "loss", "strict"}
"""``strict`` are fields of ``data`` under that protocol, whose sizes the paper does not say."""
_RECIPE_FIELDS = {*_MERGED, "title", "about", "loss", "spectral", "on_data"}
"""``loss`` replaces the squared error, ``spectral`` are options of the spectral loss."""


@dataclass(frozen=True)
class Cell:
    """One run: a recipe on the records of one seed, with one weight of the spectral loss."""

    data: str
    protocol: str
    recipe: str
    weight: float
    seed: int

    @property
    def key(self) -> str:
        """The name of the run in the store.

        >>> Cell("lorenz", "paper", "kf", 0.01, 2).key
        'lorenz/paper/kf/0.01/2'
        """
        return f"{self.data}/{self.protocol}/{self.recipe}/{self.weight:g}/{self.seed}"


@dataclass(frozen=True)
class Group:
    """The runs of one recipe on one data set under one protocol, which are trained together."""

    data: str
    protocol: str
    recipe: str
    cells: tuple[Cell, ...] = ()
    seeds: tuple[int, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()
    """The grid that the recipe was trained by before, with other cells or less budget; it is not searched again."""
    patience: int | None = None
    """The patience that other cells of the recipe were trained with, which these join; None: what the rule finds."""

    @property
    def name(self) -> str:
        return f"{self.data}/{self.protocol}/{self.recipe}"


@dataclass(frozen=True, eq=False)
class Matrix:
    """Every run that the file of recipes describes."""

    values: Mapping[str, Any]
    source: str = "recipes"
    modules: tuple[str, ...] = ()
    """Modules of ``--import``, which register data beside those of the tasks."""

    def register_data(self) -> None:
        """Make the data of the tasks and of ``modules`` known by name."""
        data_sets()
        import_modules(self.modules)

    def groups(self, data: Sequence[str] = (), only: Sequence[str] = ()) -> list[Group]:
        """Groups in the order of the file: the references of each table before its first recipe.

        ``data`` selects data sets; ``only`` selects groups by recipe or by a pattern of ``data/protocol/recipe``. The
        groups of its first pattern come first.
        """
        tables, groups = self.values["tables"], dict[str, Group]()
        for table in tables:
            where, seeds = (table["data"], table["protocol"]), tuple(table.get("seeds", self.values["seeds"]))
            own = [other for other in tables if (other["data"], other["protocol"]) == where]
            every = sorted({seed for other in own for seed in other.get("seeds", self.values["seeds"])})
            references = Group(*where, REFERENCES, seeds=tuple(every))
            groups.setdefault(references.name, references)
            for recipe in table["recipes"]:
                cells = tuple(Cell(*where, recipe, float(w), seed) for w in table["weights"] for seed in seeds)
                group = Group(*where, recipe, cells, seeds)
                if group.name in groups:
                    raise ConfigError(f"{self.source}: {group.name} is in two tables; write it into one of them")
                groups[group.name] = group
        known = {group.data for group in groups.values()}
        unknown = [name for name in data if name not in known]
        if unknown:
            raise ConfigError(f"no table has data {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
        chosen = [group for group in groups.values() if not data or group.data in data]
        if not only:
            return chosen
        selected: dict[str, Group] = {}
        for pattern in only:
            matching = {group.name: group for group in chosen if _matches(group, pattern)}
            if not matching:
                raise ConfigError(f"--only {pattern}: no group; see --list")
            selected |= matching
        return list(selected.values())

    def search(self) -> Search | None:
        """How rate, batch and length of trainings are chosen; None where recipes say them."""
        from tasks.paper.search import Search

        values = self.values.get("search")
        return None if values is None else Search.read(values)

    def row_config(self, cell: Cell) -> dict[str, Any]:
        """What the row of a run depends on: its experiment, and the rule of its budget."""
        return {**self.config(cell), **({"search": self.values["search"]} if "search" in self.values else {})}

    def title(self, recipe: str) -> str:
        return str(self.values["recipes"].get(recipe, {}).get("title", recipe))

    def rows(self, data: str, protocol: str) -> list[tuple[str, float]]:
        """Recipes and weights of the tables of a data set under a protocol, in the order of the file."""
        tables = [table for table in self.values["tables"] if (table["data"], table["protocol"]) == (data, protocol)]
        return [(recipe, float(w)) for table in tables for recipe in table["recipes"] for w in table["weights"]]

    def config(self, cell: Cell) -> dict[str, Any]:
        """The experiment of a run as plain values, defaults left out."""
        recipe, budget = self.values["recipes"][cell.recipe], self.values["budget"][cell.data]
        # of weight zero too: runs that are trained together have the same terms
        spectral = {"kind": "spectral", **recipe.get("spectral", {}), "weight": cell.weight}
        on_data = recipe.get("on_data", {}).get(cell.data, {})
        sections = [self.values.get("common", {}), budget, recipe, on_data]
        merged = {
            name: {key: value for section in sections for key, value in section.get(name, {}).items()}
            for name in _MERGED
        }
        return {
            "name": f"{cell.data}-{cell.protocol}-{cell.recipe}",
            "seed": cell.seed,
            **self._records(cell.data, cell.protocol),
            "filter": merged["filter"],
            "loss": [*recipe.get("loss", [{"kind": "state"}]), *budget.get("loss", []), spectral],
            "optimizer": merged["optimizer"],
            "trainer": merged["trainer"],
        }

    def experiment(self, cell: Cell) -> Experiment:
        need("lightning", extra="train")
        from fwnkf.training.experiments import read_experiment

        self.register_data()
        return read_experiment(self.config(cell))

    def reference_config(self, group: Group, seed: int) -> dict[str, Any]:
        """What the records of references depend on."""
        return {**self._records(group.data, group.protocol), "seed": seed}

    def _records(self, data: str, protocol: str) -> dict[str, Any]:
        """The sections of an experiment that say which records."""
        budget = self.values["budget"][data]
        system = {"system": budget["system"]} if "system" in budget else {}
        own = budget.get("strict", {}) if protocol == "strict" else {}
        return {"data": {**budget["data"], **own, "protocol": protocol}, **system}


def read(path: Path = RECIPES, modules: Sequence[str] = ()) -> Matrix:
    """The matrix of a file of recipes; every name in its tables is checked. ``modules`` are imported for their data."""
    need("yaml", extra="train")
    from fwnkf.training.experiments import parse_yaml

    try:
        values = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    faults = list(_faults(values))
    if faults:
        raise ConfigError("\n".join(f"{path}: {fault}" for fault in faults))
    return Matrix(values, str(path), tuple(modules))


def _faults(values: Any) -> Iterator[str]:
    if not isinstance(values, Mapping):
        yield "must be a mapping with seeds, budget, recipes and tables"
        return
    yield from (f"{name} is missing" for name in sorted(_FIELDS - {"common", "search"} - set(values)))
    yield from (f"{name} is not known; sections: {', '.join(sorted(_FIELDS))}" for name in set(values) - _FIELDS)
    for data, section in values.get("budget", {}).items():
        yield from _unknown(f"budget.{data}", section, _BUDGET_FIELDS)
    for recipe, section in values.get("recipes", {}).items():
        yield from _unknown(f"recipes.{recipe}", section, _RECIPE_FIELDS)
        for data, own in section.get("on_data", {}).items():
            yield from _unknown(f"recipes.{recipe}.on_data.{data}", own, _MERGED)
    for number, table in enumerate(values.get("tables", [])):
        missing = {"data", "protocol", "recipes", "weights"} - set(table)
        if missing:
            yield f"tables.{number}: {', '.join(sorted(missing))} is missing"
            continue
        if table["data"] not in values.get("budget", {}):
            yield f"tables.{number}: data {table['data']!r} has no budget"
        for recipe in table["recipes"]:
            if recipe not in values.get("recipes", {}):
                yield f"tables.{number}: there is no recipe {recipe!r}"


def _unknown(where: str, section: Mapping[Any, Any], fields: Collection[str]) -> Iterator[str]:
    # of any type: YAML 1.1 reads a plain word like `on` as true
    for name in section:
        if name not in fields:
            yield f"{where}.{name} is not known; fields: {', '.join(sorted(fields))}"


def _matches(group: Group, pattern: str) -> bool:
    return pattern in (group.recipe, group.name) or fnmatch(group.name, pattern)
