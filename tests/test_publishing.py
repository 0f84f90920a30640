"""What a maintainer presses: workflows, the conda recipe, metadata of archives, the menu of versions, the rehearsal."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="tomllib comes with Python 3.11")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"
pytestmark = pytest.mark.skipif(not WORKFLOWS.is_dir(), reason="an sdist has no workflows")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import versions  # noqa: E402

from benchmarks import rehearsal, release, screenshots  # noqa: E402


@functools.cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def workflow(name: str) -> dict:
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


def steps(job: dict) -> list[str]:
    return [step.get("uses", step.get("run", "")) for step in job["steps"]]


# ---- workflows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_are_bounded_and_have_no_right_that_they_do_not_state(path):
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert read["permissions"] == {"contents": "read"}
    for name, job in read["jobs"].items():
        assert job.get("needs") in (None, *read["jobs"]), name
        assert all(("uses" in step) != ("run" in step) for step in job["steps"]), name
        # What comes from outside reaches a shell by the environment only: a tag can have any name.
        assert not any("${{" in step.get("run", "") for step in job["steps"]), name


def test_publishing_uses_no_password_and_attests():
    jobs = workflow("publish")["jobs"]
    upload = jobs["pypi"]
    assert upload["permissions"] == {"id-token": "write"}
    assert upload["environment"]["name"] == "pypi"
    (publish,) = [step for step in upload["steps"] if "pypi-publish" in step.get("uses", "")]
    assert publish["with"] == {"attestations": True}
    assert "secrets" not in (WORKFLOWS / "publish.yml").read_text(encoding="utf-8")
    # Only the job that uploads can get a token of PyPI, and it runs nothing of the repository.
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["pypi"]
    assert all(step.startswith(("actions/download-artifact", "pypa/")) for step in steps(upload))


@pytest.mark.parametrize(("prefix", "code"), [("v", 0), ("", 1), ("v1", 1)])
def test_a_tag_that_is_not_the_version_stops_the_release(prefix, code):
    (script,) = [step["run"] for step in workflow("publish")["jobs"]["build"]["steps"] if "TAG" in step.get("env", {})]
    environment = {**os.environ, "TAG": prefix + project()["version"], "PATH": f"{Path(sys.executable).parent}:/bin"}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == code, done


def test_commands_of_workflows_are_there():
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS.glob("*.yml"))
    scripts = set(re.findall(r"python ((?:benchmarks|docs)/\S+\.py)", text))
    assert {"benchmarks/release.py", "benchmarks/install.py", "docs/_ext/versions.py"} <= scripts
    assert all((ROOT / script).is_file() for script in scripts)
    extras = {name for found in re.findall(r"-e '\.\[([\w,]+)\]'", text) for name in found.split(",")}
    assert extras <= set(project()["optional-dependencies"])
    assert "docs" in extras


def test_dependabot_watches_actions_and_packages():
    read = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    assert {item["package-ecosystem"] for item in read["updates"]} == {"github-actions", "pip"}


# ---- recipe and archives ---------------------------------------------------------------------------------------------

CONDA = {"torch": "pytorch"}
"""Names on conda-forge that differ from those on PyPI."""


def test_the_recipe_has_the_dependencies_of_the_package():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    context, here = recipe["context"], project()
    assert context["version"] == here["version"]
    assert f">={context['python_min']}" == here["requires-python"]

    def named(requirement: str) -> str:
        name, bound = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        return f"{CONDA.get(name, name)} {bound}"

    run = recipe["requirements"]["run"]
    assert run[0] == "python >=${{ python_min }}"
    assert run[1:] == [named(item) for item in here["dependencies"]]
    scripts = [f"{name} = {target}" for name, target in here["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert {named(item) for item in backend} <= set(recipe["requirements"]["host"])
    assert recipe["about"]["license"] == here["license"]
    assert recipe["about"]["summary"] == here["description"]


def test_the_recipe_of_a_release_has_the_digest_of_its_sdist(tmp_path):
    sdist = tmp_path / "fwnkf.tar.gz"
    sdist.write_bytes(b"abc")
    written = yaml.safe_load(release.write_recipe(tmp_path, sdist).read_text(encoding="utf-8"))
    # SHA-256 of "abc", from FIPS 180-2.
    assert written["context"]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_archives_and_citations_say_what_the_package_says():
    zenodo = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    here = project()
    authors = [author["name"] for author in here["authors"]]
    assert [author["name"] for author in citation["authors"]] == authors
    assert [author["name"] for author in zenodo["creators"]] == authors
    assert zenodo["license"] == citation["license"] == here["license"]
    assert zenodo["title"] == citation["title"]
    assert zenodo["description"] == citation["abstract"] == f"{here['description']}."
    assert zenodo["keywords"] == citation["keywords"]
    paper = citation["references"][0]["identifiers"][0]["value"]
    assert [item["identifier"] for item in zenodo["related_identifiers"]] == [paper]
    # Zenodo takes the version from the tag where the file has none: one place less to change.
    assert "version" not in zenodo
    assert str(citation["version"]) == here["version"]


# ---- menu of versions ------------------------------------------------------------------------------------------------


def sites(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "index.html").write_text(name)
    return folder


def test_the_menu_has_the_newest_release_first_and_leads_there(tmp_path):
    sites(tmp_path, "0.9.0", "dev", "0.10.0", "0.11.0rc1")
    (tmp_path / ".git").mkdir()
    assert versions.write(tmp_path) == ["dev", "0.11.0rc1", "0.10.0", "0.9.0"]
    titles = {row["name"]: row["title"] for row in json.loads((tmp_path / "versions.json").read_text())}
    assert [name for name, title in titles.items() if "stable" in title] == ["0.10.0"]
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()


def test_before_the_first_release_the_menu_leads_to_development(tmp_path):
    versions.write(sites(tmp_path, "dev"))
    assert "url=dev/index.html" in (tmp_path / "index.html").read_text()
    with pytest.raises(SystemExit, match="no built site"):
        versions.write(sites(tmp_path / "other", "assets"))


@pytest.mark.skipif(screenshots.browser() is None, reason="no Chromium is installed")
def test_the_menu_opens_in_a_browser(tmp_path):
    """The script of the site, in a page as the theme makes it, served from a folder of versions."""
    sites(tmp_path, "dev", "0.2.0", "0.3.0")
    versions.write(tmp_path)
    menu = (ROOT / "docs" / "_templates" / "sidebar" / "versions.html").read_text(encoding="utf-8")
    script = (ROOT / "docs" / "_static" / "versions.js").read_text(encoding="utf-8")
    page = tmp_path / "0.2.0" / "howto" / "fit.html"
    page.parent.mkdir()
    page.write_text(f'<!DOCTYPE html><html data-content_root="../"><body>{menu}<script>{script}</script></body></html>')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom"]
        address = f"http://127.0.0.1:{server.server_address[1]}/0.2.0/howto/fit.html"
        command = [screenshots.browser(), *words, f"--user-data-dir={tmp_path / 'profile'}", address]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        server.shutdown()
    shown = dom[: dom.index("<script>")]
    assert re.findall(r'<option value="([^"]+)">([^<]+)', shown) == [
        ("dev", "development"),
        ("0.3.0", "0.3.0 (stable)"),
        ("0.2.0", "0.2.0"),
    ]
    assert "hidden" not in shown


# ---- rehearsal -------------------------------------------------------------------------------------------------------


def wheel(path: Path, *needed: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.4", "Name: fwnkf", *(f"Requires-Dist: {item}" for item in needed)]
        archive.writestr("fwnkf-1.dist-info/METADATA", "\n".join(lines))
    return path


def test_a_wheel_that_pins_torch_is_refused(tmp_path):
    free = wheel(tmp_path / "a.whl", "numpy>=1.26", "torch>=2.6", "torchaudio==2; extra == 'x'")
    assert rehearsal.torch_is_free(free) == "torch>=2.6"
    for pinned in ("torch==2.13.0", "torch>=2.6,<3", "torch~=2.6"):
        with pytest.raises(rehearsal.FaultError, match="pins torch"):
            rehearsal.torch_is_free(wheel(tmp_path / "b.whl", pinned))


def test_after_a_failure_no_step_is_said_to_have_passed():
    plan = rehearsal.Rehearsal()

    def fault() -> str:
        raise rehearsal.FaultError("no room\nat all")

    plan.step("one", lambda: "done")
    plan.step("two", fault)
    plan.step("three", lambda: "done")
    assert [step.passed for step in plan.steps] == [True, False, False]
    rows = [line for line in rehearsal.page(plan.steps).splitlines() if line.startswith("| t")]
    assert rows[0].startswith("| two | **no** | no room |")
    assert "left out" in rows[1]


def test_the_readme_has_what_the_rehearsal_runs():
    readme = ROOT / "README.md"
    assert "fwnkf.save" in rehearsal.blocks(readme, rehearsal.FILTER, "python")[0]
    assert rehearsal.blocks(readme, rehearsal.LOG, "sh")[0].count("fwnkf ") >= 3
    assert rehearsal.blocks(readme, rehearsal.INSTALL, "sh")[0].startswith("pip install ")
    with pytest.raises(rehearsal.FaultError, match="no julia"):
        rehearsal.blocks(readme, rehearsal.LOG, "julia")
