"""Downloads from a local server that closes connections, sends wrong content, redirects and stalls."""

from __future__ import annotations

import hashlib
import http.server
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from fwnkf.data.sets.sources import _Part, download
from fwnkf.errors import ConfigError, DataError

pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Answers each path with a function, and records the requests."""

    def __init__(self) -> None:
        self.paths: dict[str, Callable[[http.server.BaseHTTPRequestHandler], None]] = {}
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Range")))
                outer.paths.get(self.path, lambda handler: handler.send_error(404))(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture(autouse=True)
def no_proxy_and_no_pauses(monkeypatch):
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def serve(
    content: bytes = CONTENT, *, cut: int | None = None, ranges: bool = True, length: bool = True
) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """A regular response, or one whose connection closes after ``cut`` bytes."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        wanted, start = handler.headers.get("Range"), 0
        if wanted and ranges:
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            if start >= len(content):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(content)}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            handler.send_response(200)
        if length:
            handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start:] if cut is None else content[start : start + cut])

    return answer


def leftovers(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once(server, tmp_path):
    server.paths["/x"] = serve()
    seen: list[tuple[int, int | None]] = []
    target = download(
        [f"{server.url}/x"],
        tmp_path / "deep" / "x",
        sha256=DIGEST,
        progress=lambda *a: seen.append(a),
    )
    assert target.read_bytes() == CONTENT
    assert leftovers(target.parent) == ["x"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [have for have, _ in seen] == sorted(have for have, _ in seen)
    download([f"{server.url}/x"], target, sha256=DIGEST)
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_closed_connection_is_resumed(server, tmp_path, ranges):
    # cut within a chunk of 65,536 bytes, of which only whole ones are kept
    answers = [serve(cut=100_000, ranges=ranges), serve(cut=150_000, ranges=ranges), serve(ranges=ranges)]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["x"]
    # without support of ranges the server sends the whole file again
    second, third = ("bytes=65536-", "bytes=196608-") if ranges else ("bytes=65536-", "bytes=131072-")
    assert [wanted for _, wanted in server.asked] == [None, second, third]


def test_a_partial_download_is_resumed_by_the_next_call(server, tmp_path):
    server.paths["/x"] = serve(cut=200_000)
    with pytest.raises(DataError, match=r"IncompleteRead|Connection broken"):
        download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, attempts=1)
    assert leftovers(tmp_path) == ["x.part"]
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert server.asked[-1] == ("/x", "bytes=196608-")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_without_a_checksum_nothing_is_resumed(server, tmp_path):
    server.paths["/x"] = serve(cut=200_000)
    with pytest.raises(DataError):
        download([f"{server.url}/x"], tmp_path / "x", attempts=1)
    assert leftovers(tmp_path) == []
    (tmp_path / "x.part").write_bytes(b"of another version")
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x")
    assert [wanted for _, wanted in server.asked] == [None, None]
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"?" * 1000, CONTENT, CONTENT + b"extra"], ids=["damaged", "complete", "too long"])
def test_a_part_that_does_not_fit_is_downloaded_again(server, tmp_path, part):
    (tmp_path / "x.part").write_bytes(part)
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert [wanted for _, wanted in server.asked] == [f"bytes={len(part)}-", None]
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["x"]


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.paths["/x"] = serve(CONTENT[:-1] + b"!")
    with pytest.raises(DataError, match=r"SHA256 hash of downloaded file .* does not match"):
        download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert leftovers(tmp_path) == []
    assert len(server.asked) == 3


def test_an_existing_file_with_a_wrong_checksum_is_replaced_only_by_the_right_one(server, tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(DataError, match="404"):
        download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert (tmp_path / "x").read_bytes() == b"old"
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_mirrors_are_tried_in_order_and_resume_each_other(server, tmp_path):
    server.paths["/cut"] = serve(cut=300_000)
    server.paths["/wrong"] = serve(b"another file")
    server.paths["/good"] = serve()
    urls = ["http://127.0.0.1:9/closed", f"{server.url}/missing", f"{server.url}/cut", f"{server.url}/good"]
    download(urls, tmp_path / "x", sha256=DIGEST, attempts=1)
    assert server.asked == [("/missing", None), ("/cut", None), ("/good", "bytes=262144-")]
    assert (tmp_path / "x").read_bytes() == CONTENT
    download([f"{server.url}/wrong", f"{server.url}/good"], tmp_path / "y", sha256=DIGEST)
    assert (tmp_path / "y").read_bytes() == CONTENT


def test_the_error_names_every_mirror_and_the_manual_download(server, tmp_path):
    urls = [
        "http://127.0.0.1:9/x",
        "http://no-such-host.invalid/x",
        f"{server.url}/x",
        "file:///etc/passwd",
        "ftp://a/b",
    ]
    with pytest.raises(DataError) as caught:
        download(urls, tmp_path / "x", manual="Manual download: ask the authors.")
    message = str(caught.value)
    for part in ("127.0.0.1:9", "refused", "no-such-host", "responded 404", "file:///etc/passwd", "ftp://"):
        assert part in message
    assert message.endswith("Manual download: ask the authors.")
    assert [path for path, _ in server.asked] == ["/x"]  # 404 is final
    with pytest.raises(DataError, match="no URL is known"):
        download([], tmp_path / "x")
    for url in ("http://bad host/x", "http://[::1/x", "http:///x", "http://\udcff/x"):
        with pytest.raises(DataError, match="could not be downloaded"):
            download([url], tmp_path / "x")
    assert leftovers(tmp_path) == []


def test_the_size_is_limited(server, tmp_path):
    server.paths["/announced"] = serve()
    server.paths["/unannounced"] = serve(length=False)
    with pytest.raises(DataError, match=r"offers 512,000 bytes; the limit is 1,000"):
        download([f"{server.url}/announced"], tmp_path / "x", max_bytes=1000, sha256=DIGEST)
    with pytest.raises(DataError, match="more than the limit of 100 bytes"):
        download([f"{server.url}/unannounced"], tmp_path / "x", max_bytes=100, sha256=DIGEST)
    assert leftovers(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    answers = [lambda handler: handler.send_error(503), serve()]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert len(server.asked) == 2


def test_a_server_that_resumes_at_another_byte_is_noticed(server, tmp_path):
    def wrong_place(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.send_header("Content-Length", str(len(CONTENT) - 7))
        handler.end_headers()
        handler.wfile.write(CONTENT[7:])

    answers = [serve(cut=1000), wrong_place, serve()]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_silent_server_times_out(server, tmp_path):
    server.paths["/silent"] = lambda handler: time.sleep(2)
    began = time.monotonic()
    with pytest.raises(DataError, match="timed out"):
        download([f"{server.url}/silent"], tmp_path / "y", attempts=1, timeout=0.2)
    assert time.monotonic() - began < 1.5


def test_redirections_are_followed_but_not_to_files(server, tmp_path):
    def redirect(place: str) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", place)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer

    server.paths["/x"] = serve()
    server.paths["/to"], server.paths["/file"] = redirect(f"{server.url}/x"), redirect("file:///etc/passwd")
    server.paths["/round"] = redirect(f"{server.url}/round")
    download([f"{server.url}/to"], tmp_path / "x", sha256=DIGEST)
    for path in ("/file", "/round"):
        with pytest.raises(DataError, match="could not be downloaded"):
            download([server.url + path], tmp_path / "y", attempts=1)


def test_https_is_not_redirected_to_http():
    class Response:
        url, status_code, headers, reason = "http://example.org/x", 302, {}, "Found"

    with pytest.raises(OSError, match="redirected from https to http:"):
        _Part(None, "https://example.org/x", 10, None, 0).begin(Response())


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("a file, not a folder")
    server.paths["/x"] = serve()
    with pytest.raises(DataError, match="file/x could not be downloaded"):
        download([f"{server.url}/x"], tmp_path / "file" / "x")
    (tmp_path / "y.part").mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        download([f"{server.url}/x"], tmp_path / "y")


def test_without_pooch_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ConfigError, match=r"pip install 'fwnkf\[data\]'"):
        download(["http://127.0.0.1:9/x"], tmp_path / "x")
