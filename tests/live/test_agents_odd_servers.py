"""Servers that answer nonsense: a request fails for that reason, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from live.agents.load import gauge
from live.agents.server import Completion, Failed, Patience, Server
from traces.errors import InputError

GOOD = {"choices": [{"text": "x", "finish_reason": "stop"}]}
ODD = [
    json.dumps({**GOOD, "usage": [1]}),
    json.dumps({**GOOD, "usage": {"prompt_tokens": "x"}}),
    json.dumps({**GOOD, "usage": {"prompt_tokens": 10**30}}),
    json.dumps({**GOOD, "usage": {"prompt_tokens": -1}}),
    json.dumps({**GOOD, "usage": {"prompt_tokens_details": [1]}}),
    '{"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": 1e999}}',
    '{"choices": 5}',
    '{"choices": [5]}',
    "[1]",
    "[" * 100_000,
    "x" * (3 << 20),
    '{"error": {"message": "no"}}',
    '{"choices": [{"text": "x"}]}',
    "",
]


@contextmanager
def answering(path: str, body: bytes, status: int = 200, pieces: int = 1) -> Iterator[str]:
    """Serve one body at a path, the list of models elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def _send(self, content: bytes, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            size = -(-len(content) // pieces) or 1
            for start in range(0, len(content), size):
                self.wfile.write(content[start : start + size])
                self.wfile.flush()
                if pieces > 1:
                    threading.Event().wait(0.05)

        def do_GET(self) -> None:
            odd = self.path == path
            self._send(body if odd else b'{"data": [{"id": "m"}]}', status if odd else 200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(body, status)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(url: str) -> Completion:
    async def ask() -> Completion:
        async with Server(url, "", Patience(0, 0.0, 10.0), 0) as server:
            return await server.complete("p", 4, 0)

    return asyncio.run(ask())


@pytest.mark.parametrize("line", ODD)
def test_an_odd_stream_fails_the_request_with_a_reason(line: str) -> None:
    with (
        answering("/v1/completions", f"data: {line}\n\n".encode()) as url,
        pytest.raises(Failed, match="1 try"),
    ):
        asked(url)


def test_a_half_of_a_surrogate_pair_can_be_written_down() -> None:
    event = b'data: {"choices": [{"text": "a\\ud800", "finish_reason": "stop"}]}\n\n'
    with answering("/v1/completions", event) as url:
        assert asked(url).text == "a?"
    body = b'{"error": {"message": "bad \\ud800"}}'
    with answering("/v1/completions", body, 400) as url, pytest.raises(Failed) as error:
        asked(url)
    assert "bad" in str(error.value).encode().decode()


@pytest.mark.parametrize(
    "body", [b"[[[", b"[" * 100_000, b"\xff\xfe", b'{"data": 5}', b'{"data": [{}]}', b""]
)
def test_an_odd_list_of_models_is_one_line(body: bytes) -> None:
    with answering("/v1/models", body) as url, pytest.raises(InputError, match="no list of models"):
        asked(url)


def test_metrics_that_come_in_pieces_are_read_whole() -> None:
    text = "# comment\n" * 300 + "vllm:num_requests_running 12.0\n"

    async def read(url: str) -> str | None:
        async with Server(url, "", Patience(), 0) as server:
            return await server.metrics()

    with answering("/metrics", text.encode(), pieces=4) as url:
        found = asyncio.run(read(url))
    assert found is not None
    assert gauge(found, "num_requests_running") == 12.0


def test_a_key_that_no_header_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a\nb")
    with pytest.raises(InputError, match="OPENAI_API_KEY") as error:
        asked("http://127.0.0.1:1")
    assert "a" not in str(error.value).removeprefix(
        "OPENAI_API_KEY: holds a character that no header may have"
    )
