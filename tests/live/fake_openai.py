"""A server of the OpenAI API that answers by rule: what it says depends on the prompt alone, and it counts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from aiohttp import web


@dataclass
class FakeServer:
    """token_s: time a token takes. busy: so many requests are answered with 503 first. cut: so many streams break off
    in the middle. dead: refuses everything after so many requests. silent: answers nothing after so many."""

    token_s: float = 0.0
    busy: int = 0
    cut: int = 0
    dead: int = 1 << 60
    silent: int = 1 << 60
    metrics: bool = True
    first_fill_fails: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0
    running: int = 0
    left: int = 0  # streams that the client closed
    url: str = ""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        if self.metrics:
            app.router.add_get("/metrics", self._metrics)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = f'# TYPE x gauge\nvllm:num_requests_running{{engine="0"}} {self.running}.0\n'
        return web.Response(text=text + 'vllm:num_requests_waiting{engine="0"} 0.0\n')

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if len(self.bodies) > self.dead:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if len(self.bodies) > self.silent:
            await asyncio.sleep(3600)  # until the client leaves
        if self.busy > 0:
            self.busy -= 1
            return web.json_response({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "0"})
        if body.get("priority") and self.first_fill_fails:
            self.first_fill_fails = False
            return web.json_response({"error": {"message": "no priorities here"}}, status=400)
        said = answer(body["prompt"], body["max_tokens"])
        answering = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self.running += 1
        try:
            await answering.prepare(request)
            for i, word in enumerate(said):
                if self.token_s:
                    await asyncio.sleep(self.token_s)
                if self.cut > 0 and i == len(said) // 2:
                    self.cut -= 1
                    assert request.transport is not None
                    request.transport.abort()
                    return answering
                self.tokens += 1
                reason = "length" if i == len(said) - 1 else None
                await answering.write(_event({"choices": [{"text": word, "finish_reason": reason}]}))
            usage = {"prompt_tokens": len(body["prompt"].split()), "completion_tokens": len(said)}
            await answering.write(_event({"choices": [], "usage": usage}))
            await answering.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
        finally:
            self.running -= 1
        return answering


def answer(prompt: str, tokens: int) -> list[str]:
    """Return the words of an answer."""
    digest = blake2b(prompt.encode(), digest_size=32).hexdigest()
    return [f" {digest[i % 32]}{digest[i * 7 % 61]}{i}" for i in range(tokens)]


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


@contextmanager
def served(server: FakeServer) -> Iterator[FakeServer]:
    """Run the server in a thread of its own."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        runner = web.AppRunner(
            server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    def work() -> None:
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
