"""Downloads against a server of our own that cuts, lies, redirects and stalls."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from fwnkf.data import sources
from fwnkf.data.sources import download
from fwnkf.errors import DataError

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Serves each path by a function; remembers what was asked for."""

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
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def serve(
    content: bytes = CONTENT, *, cut: int | None = None, ranges: bool = True, tag: str = '"v1"', length: bool = True
) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """A well-behaved answer, or one that stops ``cut`` bytes after where it began."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        wanted, start = handler.headers.get("Range"), 0
        same = handler.headers.get("If-Range") in (None, tag)
        if wanted and ranges and same:
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
        if tag:
            handler.send_header("ETag", tag)
        handler.end_headers()
        handler.wfile.write(content[start:] if cut is None else content[start : start + cut])

    return answer


def leftovers(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_and_is_not_fetched_twice(server, tmp_path):
    server.paths["/x"] = serve()
    seen: list[tuple[int, int | None]] = []
    target = download(
        [f"{server.url}/x"],
        tmp_path / "deep" / "x",
        sha256=DIGEST,
        size=len(CONTENT),
        progress=lambda *a: seen.append(a),
    )
    assert target.read_bytes() == CONTENT
    assert leftovers(target.parent) == ["x"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [have for have, _ in seen] == sorted(have for have, _ in seen)
    download([f"{server.url}/x"], target, sha256=DIGEST)
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_is_resumed(server, tmp_path, ranges):
    answers = [serve(cut=100_000, ranges=ranges), serve(cut=150_000, ranges=ranges), serve(ranges=ranges)]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["x"]
    # a server that knows no ranges starts anew, so its second cut comes later; each request goes on from what is there
    second, third = ("bytes=100000-", "bytes=250000-") if ranges else ("bytes=100000-", "bytes=150000-")
    assert [wanted for _, wanted in server.asked] == [None, second, third]


def test_what_was_fetched_serves_the_next_run(server, tmp_path):
    server.paths["/x"] = serve(cut=200_000)
    with pytest.raises(DataError, match=r"cut after 200,000 of 512,000 bytes"):
        download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, attempts=1)
    assert leftovers(tmp_path) == ["x.part", "x.part.json"]
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST)
    assert server.asked[-1] == ("/x", "bytes=200000-")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_not_mixed(server, tmp_path):
    server.paths["/x"] = serve(cut=200_000)
    with pytest.raises(DataError):
        download([f"{server.url}/x"], tmp_path / "x", attempts=1)
    newer = CONTENT[::-1]
    server.paths["/x"] = serve(newer, tag='"v2"')
    download([f"{server.url}/x"], tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == newer


def test_without_a_checksum_or_a_tag_nothing_is_resumed(server, tmp_path):
    (tmp_path / "x.part").write_bytes(b"from somewhere else")
    server.paths["/x"] = serve(tag="")
    download([f"{server.url}/x"], tmp_path / "x")
    assert server.asked == [("/x", None)]
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_damaged_part_is_dropped_and_fetched_anew(server, tmp_path):
    (tmp_path / "x.part").write_bytes(b"?" * 1000)
    (tmp_path / "x.part.json").write_text("[" * 10_000)
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert [wanted for _, wanted in server.asked] == ["bytes=1000-", None]
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("kept", [len(CONTENT), len(CONTENT) + 5])
def test_a_part_that_is_whole_or_too_long(server, tmp_path, kept):
    (tmp_path / "x.part").write_bytes((CONTENT + b"extra")[:kept])
    server.paths["/x"] = serve()
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.paths["/x"] = serve(CONTENT[:-1] + b"!")
    with pytest.raises(DataError, match=r"another or damaged \(SHA-256 .*, not "):
        download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert leftovers(tmp_path) == []
    assert len(server.asked) == 1


def test_mirrors_are_tried_in_order_and_resume_each_other(server, tmp_path):
    server.paths["/cut"] = serve(cut=300_000)
    server.paths["/wrong"] = serve(b"another file")
    server.paths["/good"] = serve()
    urls = ["http://127.0.0.1:9/closed", f"{server.url}/missing", f"{server.url}/cut", f"{server.url}/good"]
    download(urls, tmp_path / "x", sha256=DIGEST, attempts=1)
    assert server.asked == [("/missing", None), ("/cut", None), ("/good", "bytes=300000-")]
    assert (tmp_path / "x").read_bytes() == CONTENT
    download([f"{server.url}/wrong", f"{server.url}/good"], tmp_path / "y", sha256=DIGEST)
    assert (tmp_path / "y").read_bytes() == CONTENT


def test_when_all_fail_the_message_says_everything(server, tmp_path):
    urls = [
        "http://127.0.0.1:9/x",
        "http://no-such-host.invalid/x",
        f"{server.url}/x",
        "file:///etc/passwd",
        "ftp://a/b",
    ]
    with pytest.raises(DataError) as caught:
        download(urls, tmp_path / "x", manual="By hand: ask its authors.", pause=0)
    message = str(caught.value)
    for part in ("127.0.0.1:9", "cannot be reached", "no-such-host", "404", "file:///etc/passwd: neither", "ftp://"):
        assert part in message
    assert message.endswith("By hand: ask its authors.")
    with pytest.raises(DataError, match="no address is known"):
        download([], tmp_path / "x")
    for url in ("http://bad host/x", "http://[::1/x", "http:///x", "http://\udcff/x"):
        with pytest.raises(DataError, match="cannot be reached"):
            download([url], tmp_path / "x", pause=0)
    assert leftovers(tmp_path) == []


def test_too_much_is_refused(server, tmp_path):
    server.paths["/claims"] = serve()
    server.paths["/silent"] = serve(length=False)
    with pytest.raises(DataError, match="offers 512,000 bytes, more than the 1,000"):
        download([f"{server.url}/claims"], tmp_path / "x", max_bytes=1000)
    with pytest.raises(DataError, match="sends more than 100 bytes"):
        download([f"{server.url}/silent"], tmp_path / "x", size=100)
    assert leftovers(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    answers = [lambda handler: handler.send_error(503), serve()]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert len(server.asked) == 2


def test_a_server_that_goes_on_from_elsewhere_is_caught(server, tmp_path):
    def wrong_place(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.send_header("Content-Length", str(len(CONTENT) - 7))
        handler.end_headers()
        handler.wfile.write(CONTENT[7:])

    answers = [serve(cut=1000), wrong_place, serve()]
    server.paths["/x"] = lambda handler: answers.pop(0)(handler)
    download([f"{server.url}/x"], tmp_path / "x", sha256=DIGEST, pause=0)
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_stalled_connection_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "STALL_SECONDS", 0.2)

    def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b".")
            handler.wfile.flush()
            time.sleep(0.05)

    def silent(handler: http.server.BaseHTTPRequestHandler) -> None:
        time.sleep(2)

    server.paths["/trickle"], server.paths["/silent"] = trickle, silent
    began = time.monotonic()
    with pytest.raises(DataError, match="less than"):
        download([f"{server.url}/trickle"], tmp_path / "x", attempts=1)
    with pytest.raises(DataError, match="timed out"):
        download([f"{server.url}/silent"], tmp_path / "y", attempts=1, timeout=0.2)
    assert time.monotonic() - began < 3


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
        with pytest.raises(DataError, match="could not be fetched"):
            download([server.url + path], tmp_path / "y", pause=0)
    handler = sources._NoDowngrade()
    request = sources.urllib.request.Request("https://example.org/x")
    with pytest.raises(sources.urllib.error.URLError, match="from https to http:"):
        handler.redirect_request(request, None, 302, "", {}, "http://example.org/x")


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    server.paths["/x"] = serve()
    with pytest.raises(DataError, match="cannot write"):
        download([f"{server.url}/x"], tmp_path / "file" / "x")
    (tmp_path / "y.part").mkdir()
    with pytest.raises(DataError, match="cannot write"):
        download([f"{server.url}/x"], tmp_path / "y")
