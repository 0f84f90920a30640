"""The checklist of a release, as far as a script can go through it.

    python benchmarks/release.py --out FOLDER               build twice, compare, check, licences, SBOM, audit: a minute
    python benchmarks/release.py --out FOLDER --first-minutes   also from an empty environment to an open report, timed
    python benchmarks/release.py --rehearse --markdown docs/results/release.md      the whole way of a release, minutes:
        a clean clone, built, uploaded to a package index on this machine, installed from it, the lines of the README

Prints a line for each point, and writes the distributions, ``licences.md``, ``sbom.json`` (CycloneDX) and the recipe
for conda-forge, with the digest of the sdist, to the folder.
The exit code is 1 if a point fails. Points that need what is not here (twine, a database of vulnerabilities) say so.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata as metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # started as a file, Python looks for modules beside the file only

from benchmarks.install import EXTRAS  # noqa: E402

EPOCH = "1767225600"
"""Time of the files in a distribution, so that two builds are equal."""
MINUTES = 5.0
NAME = re.compile(r"^[A-Za-z0-9._-]+")
EXTRA = re.compile(r"extra *== *['\"]([\w-]+)['\"]")
USER_EXTRAS = (*EXTRAS, "native")


class Checklist:
    """Prints points as they are checked and remembers whether one failed."""

    def __init__(self) -> None:
        self.failed = False

    def point(self, name: str, ok: bool | None, said: str) -> None:
        """One line; ``ok`` is None for a point that cannot be checked here."""
        self.failed |= ok is False
        print(f"{'–' if ok is None else 'ok' if ok else 'FAILED':6} {name}: {said}", flush=True)


def build(folder: Path) -> dict[str, str]:
    """Wheel and sdist in a folder, and the digest of each."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def needed(name: str, extras: tuple[str, ...] = (), seen: set[str] | None = None) -> Iterator[metadata.Distribution]:
    """The installed distributions that a package needs, with those of its extras, each once."""
    seen = set() if seen is None else seen
    for requirement in metadata.distribution(name).requires or ():
        condition = EXTRA.search(requirement)
        match = NAME.match(requirement)
        if match is None or (condition is not None and condition[1] not in extras):
            continue
        found = match[0].lower().replace("_", "-")
        if found in seen or found == "fwnkf":
            continue
        seen.add(found)
        try:
            distribution = metadata.distribution(found)
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python, or an extra that is not installed
        yield distribution
        yield from needed(found, (), seen)


def licence(distribution: metadata.Distribution) -> str:
    """As the package states it: expression, field, or classifier."""
    values = distribution.metadata
    expression = values.get("License-Expression")
    classifiers = [
        item.split(" :: ")[-1] for item in values.get_all("Classifier") or () if item.startswith("License ::")
    ]
    field = (values.get("License") or "").strip().splitlines()
    return expression or "; ".join(classifiers) or (field[0][:60] if field else "not stated")


def write_lists(folder: Path) -> list[str]:
    """``licences.md`` and ``sbom.json``; returns the packages that state no licence."""
    packages = sorted(needed("fwnkf", USER_EXTRAS), key=lambda item: item.metadata["Name"].lower())
    rows = [(item.metadata["Name"], item.version, licence(item)) for item in packages]
    table = ["| package | version | licence |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    (folder / "licences.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower()}@{version}",
            "licenses": [{"license": {"name": terms}}],
        }
        for name, version, terms in rows
    ]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    (folder / "sbom.json").write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return [name for name, _, terms in rows if terms == "not stated"]


def write_recipe(folder: Path, sdist: Path) -> Path:
    """The recipe for conda-forge with the digest of this sdist."""
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    filled, places = re.subn(r'^  sha256: ".*"$', f'  sha256: "{digest}"', text, flags=re.MULTILINE)
    if places != 1:
        raise SystemExit("recipe/recipe.yaml: wanted one line of the context with the digest")
    target = folder / "recipe.yaml"
    target.write_text(filled, encoding="utf-8")
    return target


def first_minutes(wheel: Path, torch: str) -> tuple[float, float]:
    """Minutes to install the wheel into an empty environment, and from there to a report on a simulated flight."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        venv.create(Path(folder) / "env", with_pip=True)
        python = str(Path(folder) / "env" / "bin" / "python")
        for packages in ([torch], [f"{wheel}[logs,plot]"]):
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, capture_output=True)
        installed = time.monotonic()
        program = str(Path(folder) / "env" / "bin" / "fwnkf")
        for words in (["data", "example", "flight.csv"], ["diagnose", "flight.csv", "-o", "report.html"]):
            subprocess.run([program, *words], cwd=folder, check=True, capture_output=True)
        assert (Path(folder) / "report.html").stat().st_size > 0
        return (installed - begin) / 60, (time.monotonic() - installed) / 60


def audit() -> tuple[bool | None, str]:
    """Known vulnerabilities, where pip-audit and its database can be reached."""
    if shutil.which("pip-audit") is None:
        return None, "pip-audit is not installed"
    done = subprocess.run(["pip-audit", "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    skipped = len(re.findall("could not be audited", done.stdout))
    if skipped:
        return None, f"{skipped} packages could not be audited: the index here has no list of vulnerabilities"
    last = ((done.stderr + done.stdout).strip().splitlines() or [""])[-1]
    if "ConnectionError" in done.stderr or "Max retries" in done.stderr or "ServiceError" in done.stderr:
        return None, "the database of vulnerabilities cannot be reached"
    return done.returncode == 0, last


def main() -> int:
    """Go through the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for the distributions and lists")
    parser.add_argument("--rehearse", action="store_true", help="a release from a clean clone to a local index")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a page about the rehearsal")
    parser.add_argument("--first-minutes", action="store_true", help="from an empty environment to a report, timed")
    parser.add_argument("--torch", default="torch==2.13.0", help="installed first (default: %(default)s)")
    options = parser.parse_args()
    if options.rehearse:
        from benchmarks.rehearsal import rehearse

        return int(not rehearse(options.torch, options.markdown))
    if options.out is None:
        parser.error("--out FOLDER, or --rehearse")
    options.out.mkdir(parents=True, exist_ok=True)
    checklist = Checklist()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = build(Path(one)), build(Path(two))
        different = [name for name in first if first[name] != second.get(name)]
        checklist.point("reproducible", not different, f"{', '.join(different) or 'wheel and sdist'}, built twice")
        built = [Path(shutil.copy(Path(one) / name, options.out / name)) for name in first]
    if shutil.which("twine") is None:
        checklist.point("twine check", None, "twine is not installed")
    else:
        done = subprocess.run(
            ["twine", "check", "--strict", *map(str, built)], capture_output=True, text=True, check=False
        )
        checklist.point("twine check", done.returncode == 0, done.stdout.strip().splitlines()[-1])
    recipe = write_recipe(options.out, next(path for path in built if path.suffix == ".gz"))
    checklist.point("conda recipe", True, f"{recipe.name} with the digest of the sdist")
    unstated = write_lists(options.out)
    checklist.point("licences", None if unstated else True, f"not stated: {', '.join(unstated)}" if unstated else "all")
    checklist.point("audit", *audit())
    if options.first_minutes:
        wheel = next(path for path in built if path.suffix == ".whl").resolve()
        install, report = first_minutes(wheel, options.torch)
        said = f"install {install:.1f} min, simulated flight to report {report:.1f} min"
        checklist.point("first five minutes", install + report < MINUTES, said)
    return int(checklist.failed)


if __name__ == "__main__":
    sys.exit(main())
