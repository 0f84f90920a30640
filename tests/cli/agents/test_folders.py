"""Which paths a call may name, and how results get to their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fwnkf.cli.agents.folders import Folders, opened
from fwnkf.cli.output import UsageError
from fwnkf.errors import DataError

from .hostile import set_traps, state

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of POSIX")


@pytest.fixture
def traps(tmp_path):
    return set_traps(tmp_path)


@pytest.mark.parametrize("name", ["log.csv", "./log.csv", "deep/../log.csv", "good.csv", "deep/up/inside/log.csv"])
def test_what_is_inside_is_found_without_its_links(traps, name):
    folders = Folders([traps.inside])
    assert folders.existing(name) == traps.inside.resolve() / "log.csv"
    assert folders.existing(str(traps.inside / name)) == traps.inside.resolve() / "log.csv"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "not below the folders") for name in ("/etc/passwd", "..", "../inside-not/secret.csv", "link.csv")),
        *((name, "not below the folders") for name in ("relative.csv", "link/secret.csv", "root/etc/passwd", "link")),
        *((name, "too many links") for name in ("circle", "a")),
        *((name, "neither a file nor a folder") for name in ("pipe.csv",)),
        *((name, "is not the name of a file") for name in ("", "log.csv\0", "\ud800", "x" * 5000)),
        *((name, "cannot be read") for name in ("x" * 300, "nothing.csv", "log.csv/x")),
    ],
)
def test_what_is_outside_or_no_file_is_refused(traps, name, message):
    with pytest.raises(DataError, match=message):
        Folders([traps.inside]).existing(name)


@pytest.mark.parametrize(
    "name", ["log.csv", "good.csv", "link", "deep", ".", "circle", "pipe.csv", "../new.csv", "/new"]
)
def test_a_result_replaces_nothing_and_stays_inside(traps, name):
    with pytest.raises(DataError):
        Folders([traps.inside]).new(name)


def test_results_are_placed_with_the_folders_they_are_in(traps, tmp_path):
    folders, made = Folders([traps.inside]), tmp_path / "made"
    (made / "filter").mkdir(parents=True)
    (made / "filter" / "config.json").write_text("{}")
    written = folders.place(made, folders.new("new/deeper/result"))
    assert written == [traps.inside.resolve() / "new/deeper/result/filter/config.json"]
    assert written[0].read_text() == "{}"
    with pytest.raises(DataError, match="nothing is overwritten"):
        folders.place(made, traps.inside.resolve() / "new/deeper/result")


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_a_link_that_appears_after_the_check_leads_nowhere(traps, tmp_path, swapped):
    folders, made, before = Folders([traps.inside]), tmp_path / "made.html", state(traps.outside)
    made.write_text("result")
    path = folders.new("reports/result.html")
    if swapped == "folder":
        (traps.inside / "reports").symlink_to(traps.outside)
    else:
        (traps.inside / "reports").mkdir()
        (traps.inside / "reports" / "result.html").symlink_to(traps.outside / "new.html")
    with pytest.raises(DataError):
        folders.place(made, path)
    assert state(traps.outside) == before


def test_a_folder_that_becomes_a_link_is_not_listed(traps, monkeypatch):
    folders = Folders([traps.inside])
    found = folders.existing("deep")
    (traps.inside / "deep" / "up").unlink()
    (traps.inside / "deep").rmdir()
    (traps.inside / "deep").symlink_to(traps.outside)
    monkeypatch.setattr(folders, "existing", lambda text: found)
    with pytest.raises(DataError, match="is not a folder"):
        folders.listed("deep")


def test_a_link_that_a_worker_made_is_not_followed(traps, tmp_path):
    made = tmp_path / "made.html"
    made.symlink_to(traps.outside / "secret")
    with pytest.raises(OSError, match="link"):
        opened(made)
    with pytest.raises(DataError):
        Folders([traps.inside]).place(made, traps.inside.resolve() / "result.html")
    assert not (traps.inside / "result.html").exists()


def test_a_list_has_files_and_folders_but_no_links(traps):
    rows = Folders([traps.inside]).listed(".")["entries"]
    assert {row["name"]: row["folder"] for row in rows} == {"log.csv": False, "deep": True, "tables": True}
    assert next(row["bytes"] for row in rows if not row["folder"]) == (traps.inside / "log.csv").stat().st_size


def test_several_folders_and_one_that_is_a_link(traps, tmp_path):
    (tmp_path / "also").mkdir()
    (tmp_path / "name").symlink_to(tmp_path / "also")
    folders = Folders([traps.inside, tmp_path / "name"])
    assert folders.new(str(tmp_path / "also" / "x.html")) == tmp_path.resolve() / "also" / "x.html"
    with pytest.raises(UsageError, match="is not a folder"):
        Folders([Path("nothing")])
