"""A hub on this machine: the requests that huggingface_hub makes to load and upload the files of a model."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

REPO = r"(?P<repo>[^/]+/[^/]+)"


class Hub:
    """Repositories as files by name, their commit, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.stated: dict[tuple[str, str], int] = {}
        """Sizes that the hub states instead of the true ones, by repository and file."""
        self.tags: set[str] = set()
        """Revisions of every repository beside ``main`` and the commit."""
        self.gated: set[str] = set()
        self.requests: list[str] = []
        self.cards: list[str] = []
        """What was sent to be validated as a card."""
        self.endpoint = ""

    def commit(self, repo: str) -> str:
        """A hash of all bytes, as a commit is."""
        content = b"\0".join(name.encode() + b"\0" + data for name, data in sorted(self.files[repo].items()))
        return hashlib.sha1(repo.encode() + content).hexdigest()

    def size(self, repo: str, name: str) -> int:
        return self.stated.get((repo, name), len(self.files[repo][name]))

    def downloaded(self) -> list[str]:
        """Names of the files whose bytes were sent."""
        return [line.rpartition("/")[2] for line in self.requests if line.startswith("GET") and "/resolve/" in line]


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        for pattern, answer in (
            (rf"/api/models/{REPO}(/revision/(?P<rev>[^/]+))?", self.info),
            (rf"/api/models/{REPO}/tree/(?P<rev>[^/]+)", self.tree),
            (rf"/{REPO}/resolve/(?P<rev>[^/]+)/(?P<name>.+)", self.file),
            (r"/api/validate-yaml", self.validate),
            (r"/api/repos/create", self.create),
            (rf"/api/models/{REPO}/preupload/(?P<rev>[^/]+)", self.preupload),
            (rf"/api/models/{REPO}/commit/(?P<rev>[^/]+)", self.receive),
        ):
            match = re.fullmatch(pattern, path)
            if match:
                if self.found(match.groupdict()):
                    answer(body=body, **match.groupdict())
                return
        self.error(404, None)

    def found(self, asked: dict[str, str]) -> bool:
        repo, rev = asked.get("repo"), asked.get("rev")
        if repo is None:
            return True
        if repo in self.hub.gated:
            self.error(403, "GatedRepo")
        elif repo not in self.hub.files:
            self.error(404, "RepoNotFound")
        elif rev not in (None, "main", self.hub.commit(repo), *self.hub.tags):
            self.error(404, "RevisionNotFound")
        else:
            return True
        return False

    def error(self, status: int, code: str | None) -> None:
        self.send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code} if code else {})

    def send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(content)), "Content-Type": "application/json", **(headers or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def json(self, value: object) -> None:
        self.send(200, json.dumps(value).encode())

    def info(self, repo: str, **_: object) -> None:
        siblings = [{"rfilename": name, "size": self.hub.size(repo, name)} for name in self.hub.files[repo]]
        self.json({"id": repo, "sha": self.hub.commit(repo), "siblings": siblings, "private": False, "tags": []})

    def tree(self, repo: str, **_: object) -> None:
        self.json(
            [
                {"type": "file", "path": name, "size": self.hub.size(repo, name), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self.hub.files[repo].items()
            ]
        )

    def file(self, repo: str, name: str, **_: object) -> None:
        data = self.hub.files[repo].get(name)
        if data is None:
            self.error(404, "EntryNotFound")
            return
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        self.send(200, data, {"ETag": etag, "X-Repo-Commit": self.hub.commit(repo)})

    def validate(self, body: bytes, **_: object) -> None:
        self.hub.cards.append(json.loads(body)["content"])
        self.json({"errors": [], "warnings": []})

    def create(self, body: bytes, **_: object) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if self.headers.get("Authorization") != "Bearer hf_write":
            self.error(401, None)
        elif repo in self.hub.files:
            self.send(409, json.dumps({"url": f"{self.hub.endpoint}/{repo}"}).encode())
        else:
            self.hub.files[repo] = {}
            self.json({"url": f"{self.hub.endpoint}/{repo}"})

    def preupload(self, body: bytes, **_: object) -> None:
        asked = json.loads(body)["files"]
        self.json({"files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in asked]})

    def receive(self, repo: str, body: bytes, **_: object) -> None:
        for line in body.splitlines():
            one = json.loads(line)
            if one["key"] == "file":
                self.hub.files[repo][one["value"]["path"]] = base64.b64decode(one["value"]["content"])
        commit = self.hub.commit(repo)
        self.json({"success": True, "commitOid": commit, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{commit}"})


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free port of the loopback interface."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
