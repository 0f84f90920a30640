"""Filters from a hub on this machine: the same bits, the same bounds, and errors that say what to do."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.checkpoint import CONFIG_LIMIT, FILE_LIMIT
from fwnkf.errors import CheckpointError, ConfigError, DataError
from fwnkf.hub import FILES, download, models_folder, shipped

from .server import Hub

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "hub.md"
MODELS = Path(__file__).parents[2] / "models"
SHIPPED = sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def put(hub: Hub, name: str, folder: Path) -> str:
    repo = f"lab/{name}"
    hub.files[repo] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return repo


def same(one: fwnkf.Filter, other: fwnkf.Filter) -> bool:
    """The same tensors to the bit, under the same names."""
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(value, theirs[name]) and value.dtype == theirs[name].dtype for name, value in mine.items()
    )


@pytest.fixture
def kf(tmp_path: Path) -> Path:
    eye = torch.eye(2)
    return fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=0.1 * eye, R=3 * eye), tmp_path / "kf")


# ---- loading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_filter_from_the_hub_is_the_loaded_one(hub: Hub, name: str) -> None:
    repo = put(hub, name, MODELS / name)
    hub.files[repo] |= {"run.py": b"raise SystemExit", "pytorch_model.bin": b"\x80\x04", "sub/config.json": b"{}"}
    filter, local = fwnkf.from_pretrained(repo), fwnkf.load(MODELS / name)
    assert type(filter) is type(local)
    assert filter.config == local.config
    assert same(filter, local)
    assert same(fwnkf.from_pretrained(name), local)  # by its name, without the hub
    assert set(hub.downloaded()) == {path.name for path in (MODELS / name).iterdir()} <= set(FILES)


def test_names_of_the_index_are_the_folders_of_the_filters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert models_folder() == MODELS
    assert sorted(shipped()) == SHIPPED
    monkeypatch.setenv("FWNKF_MODELS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"'lorenz' comes with the source .* FWNKF_MODELS .* owner/lorenz"):
        fwnkf.from_pretrained("lorenz")
    with pytest.raises(ConfigError, match=r"'lorentz' is neither a folder nor a shipped filter \(.*lorenz"):
        fwnkf.from_pretrained("lorentz")


def test_a_folder_comes_first_and_has_no_revision(kf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kf.parent)
    assert same(fwnkf.from_pretrained("kf"), fwnkf.load(kf))
    with pytest.raises(ConfigError, match="kf is a folder"):
        fwnkf.from_pretrained("kf", revision="v1")


def test_a_revision_stays_while_main_moves_on(hub: Hub, kf: Path) -> None:
    repo = put(hub, "kf", kf)
    commit, first = hub.commit(repo), fwnkf.load(kf)
    assert download(repo).name == commit
    eye = torch.eye(2)
    put(hub, "kf", fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), kf))
    assert not same(fwnkf.from_pretrained(repo), first)
    assert same(fwnkf.from_pretrained(repo, revision=commit, local_files_only=True), first)


def test_the_cache_serves_without_the_hub(hub: Hub, kf: Path, tmp_path: Path) -> None:
    repo = put(hub, "kf", kf)
    with pytest.raises(DataError, match=r"lab/kf: its files are not in the cache"):
        fwnkf.from_pretrained(repo, local_files_only=True)
    fwnkf.from_pretrained(repo, cache_dir=tmp_path / "mine")
    asked = len(hub.requests)
    assert same(fwnkf.from_pretrained(repo, cache_dir=tmp_path / "mine", local_files_only=True), fwnkf.load(kf))
    assert len(hub.requests) == asked
    with pytest.raises(DataError, match="not in the cache"):
        fwnkf.from_pretrained(repo, local_files_only=True)  # the default cache is another one


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_stated_too_large_is_not_downloaded(hub: Hub, kf: Path, name: str) -> None:
    repo = put(hub, "kf", kf)
    hub.files[repo].setdefault(name, b"{}")
    hub.stated[repo, name] = FILES[name] + 1
    with pytest.raises(CheckpointError, match=rf"lab/kf: {name} has {FILES[name] + 1:,} bytes.*not downloaded"):
        fwnkf.from_pretrained(repo)
    assert hub.downloaded() == []
    hub.stated[repo, name] = len(hub.files[repo][name])
    assert same(fwnkf.from_pretrained(repo), fwnkf.load(kf))


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("exploded",)


def pickled() -> bytes:
    return pickle.dumps(Bomb())


def torch_pickled() -> bytes:
    buffer = io.BytesIO()
    torch.save({"Q": Bomb()}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.safetensors", pickled(), "is not a safetensors file|its header would have"),
        ("model.safetensors", torch_pickled(), "is not a safetensors file|its header would have"),
        ("model.safetensors", (1 << 40).to_bytes(8, "little") + b"{}", "its header would have"),
        ("model.safetensors", bytes(FILE_LIMIT + 1), "at most .* are read"),
        ("config.json", pickled(), "is not JSON"),
        ("config.json", b"[" * 100_000, "is not JSON|more than"),
        ("config.json", b" " * (CONFIG_LIMIT + 1), "at most .* are read"),
        ("config.json", b"[" + b"1," * 100_000 + b"1]", "more than 50000 values"),
        ("config.json", json.dumps({"format": 3, "filter": "os.system"}).encode(), "missing .*; unexpected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_crafted_files_are_refused(
    hub: Hub, kf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    repo = put(hub, "kf", kf)
    hub.files[repo][name] = content
    with pytest.raises(CheckpointError, match=said):
        fwnkf.from_pretrained(repo)
    assert not (tmp_path / "exploded").exists()


def test_bounds_hold_where_the_hub_understates_a_size(hub: Hub, kf: Path) -> None:
    """The size in the listing passes, and the file has another one: the client or the loader refuses it."""
    repo = put(hub, "kf", kf)
    hub.files[repo]["config.json"] = b" " * (CONFIG_LIMIT + 1)
    hub.stated[repo, "config.json"] = 10
    with pytest.raises((CheckpointError, DataError)):
        fwnkf.from_pretrained(repo)


def test_a_repository_without_a_filter_says_what_it_has(hub: Hub) -> None:
    hub.files["lab/text"] = {"pytorch_model.bin": b"\x80\x04", "config.json": b"{}"}
    with pytest.raises(
        CheckpointError, match=r"lab/text has no model.safetensors.*it has config.json, pytorch_model.bin"
    ):
        fwnkf.from_pretrained("lab/text")
    assert hub.downloaded() == []


def test_errors_of_the_hub_say_what_to_do(hub: Hub, kf: Path) -> None:
    repo = put(hub, "kf", kf)
    hub.gated.add("lab/closed")
    for name, revision, said in (
        ("lab/none", None, rf"loading {hub.endpoint}/lab/none: there is no such repository.*hf auth login"),
        (repo, "v9", "it has no revision 'v9'; give a branch, a tag or a commit"),
        ("lab/closed", None, "gives access on request"),
        ("a/b/c", None, "'a/b/c' is no repository of a hub: write owner/name"),
        ("../models/none", None, "is no repository of a hub"),
    ):
        with pytest.raises((DataError, ConfigError), match=said):
            fwnkf.from_pretrained(name, revision=revision)


def test_a_hub_that_does_not_answer_is_named_and_the_cache_is_used_if_it_can(
    hub: Hub, kf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = put(hub, "kf", kf)
    fwnkf.from_pretrained(repo)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.warns(
        UserWarning, match=r"127.0.0.1:9/lab/kf: the hub cannot be reached .*the copy in the cache is used"
    ):
        assert same(fwnkf.from_pretrained(repo), fwnkf.load(kf))
    with pytest.raises(DataError, match=r"lab/other: the hub cannot be reached .*check the connection and HF_ENDPOINT"):
        fwnkf.from_pretrained("lab/other")


def test_a_cache_that_cannot_be_written_is_not_a_fault_of_the_connection(hub: Hub, kf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"lab/kf: .*(Not a directory|File exists)") as caught:
        fwnkf.from_pretrained(put(hub, "kf", kf), cache_dir=tmp_path / "file")
    assert "cannot be reached" not in str(caught.value)


# ---- uploading ------------------------------------------------------------------------------------------------------


def test_what_is_pushed_is_what_is_loaded(hub: Hub, kf: Path, tmp_path: Path) -> None:
    model = fwnkf.load(kf)
    address = model.push_to_hub("lab/mine", token="hf_write")
    assert address == f"{hub.endpoint}/lab/mine/commit/{hub.commit('lab/mine')}"
    assert set(hub.files["lab/mine"]) == {"config.json", "model.safetensors", "README.md"}
    assert same(fwnkf.from_pretrained("lab/mine"), model)
    card = hub.files["lab/mine"]["README.md"].decode()
    assert set(hub.cards) == {card}
    assert 'fwnkf.from_pretrained("lab/mine")' in card
    # a card that is there is kept; one beside the filter replaces it, with columns and figures and nothing else
    hub.files["lab/mine"]["README.md"] = b"mine"
    model.push_to_hub("lab/mine", token="hf_write")
    assert hub.files["lab/mine"]["README.md"] == b"mine"
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in ("README.md", "results.json", "notes.txt", "config.json"):
        (beside / name).write_text(f"{name} beside")
    model.push_to_hub("lab/mine", folder=beside, token="hf_write")
    assert hub.files["lab/mine"]["README.md"] == b"README.md beside"
    assert set(hub.files["lab/mine"]) == {"config.json", "model.safetensors", "README.md", "results.json"}
    assert same(fwnkf.from_pretrained("lab/mine"), model)


def test_an_upload_that_the_hub_refuses_says_so(hub: Hub, kf: Path, tmp_path: Path) -> None:
    model = fwnkf.load(kf)
    with pytest.raises(DataError, match=rf"uploading to {hub.endpoint}/lab/mine: .*401"):
        model.push_to_hub("lab/mine", token=False)
    with pytest.raises(ConfigError, match="'mine' is no repository of a hub"):
        model.push_to_hub("mine")
    with pytest.raises(ConfigError, match="is no folder"):
        model.push_to_hub("lab/mine", folder=tmp_path / "none", token="hf_write")
    assert hub.files == {}


def test_the_page_runs_as_written(hub: Hub, kf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    hub.tags.add("v1.2")
    put(hub, "my-filter", kf)
    hub.files["ada/my-filter"] = hub.files.pop("lab/my-filter")
    for folder in ("runs", "models"):
        shutil.copytree(kf, tmp_path / folder / "my_filter")
    (tmp_path / "models" / "my_filter" / "README.md").write_text("# Mine")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    found: dict[str, object] = {}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), found)
    assert isinstance(found["folder"], Path)
    assert fwnkf.load(found["folder"]).name == "kf"
    assert hub.files["ada/my-filter"]["README.md"] == b"# Mine"


# ---- the packages ---------------------------------------------------------------------------------------------------


def test_the_address_of_the_hub_is_hf_endpoint(hub: Hub, kf: Path, tmp_path: Path) -> None:
    """In a process of its own, because huggingface_hub reads its environment once; import fwnkf leaves it out."""
    put(hub, "kf", kf)
    code = (
        "import sys, fwnkf; fwnkf.Filter; assert 'huggingface_hub' not in sys.modules; "
        "print(fwnkf.from_pretrained('lab/kf').name)"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "kf", done.stderr
    offline = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**environment, "HF_HUB_OFFLINE": "1"}
    )
    assert offline.stdout.strip() == "kf", offline.stderr


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, kf: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: fwnkf.from_pretrained("lab/kf"), lambda: fwnkf.load(kf).push_to_hub("lab/kf")):
        with pytest.raises(ConfigError, match=r"pip install 'fwnkf\[hub\]'"):
            call()
    assert fwnkf.from_pretrained(kf).name == "kf"  # a folder needs no hub
