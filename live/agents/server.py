"""A server that speaks the OpenAI API, as a client sees it: streamed completions, retries, deadlines.

A request that nobody wants any more is cancelled by closing its connection: that is the only way the API has, and
servers stop generating when they notice.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from traces import draws
from traces.errors import InputError

_LINE_BYTES_MAX = 1 << 20
_TEXT_CHARS_MAX = 1 << 22
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Completion:
    """What a server answered. cached_tokens: of the prompt, found in its prefix cache, 0 where it does not say."""

    text: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    first_token_ns: int
    tries: int


class Failed(Exception):
    """A request has no answer and will have none; the message says why."""


class _Again(Exception):
    """It may work another time. after_s: what the server asked for, if it did."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True)
class Patience:
    """How long a canonical request is tried for.

    retries      further tries after a failure that may pass: refused, cut off, busy (408, 409, 425, 429, 5xx)
    backoff_s    mean wait before the first of them; doubles each time, drawn uniformly up to twice that
    deadline_s   for all tries together
    """

    retries: int = 3
    backoff_s: float = 0.5
    deadline_s: float = 300.0


class Server:
    """One server, or one address in front of several. An async context manager.

    url     of the server, with or without `/v1`
    model   "" asks the server which model it serves
    seed    of the jitter between tries
    """

    def __init__(self, url: str, model: str, patience: Patience, seed: int) -> None:
        root = url.rstrip("/").removesuffix("/v1")
        if not root.startswith(("http://", "https://")):
            raise InputError(f"server={url}: expected http://HOST:PORT or https://HOST[:PORT]")
        self.root, self.model = root, model
        self._patience, self._seed = patience, seed
        self._session: aiohttp.ClientSession | None = None

    async def complete(
        self,
        prompt: str,
        output_tokens: int,
        number: int,
        *,
        priority: int = 0,
        sender: dict[str, Any] | None = None,
        once: bool = False,
    ) -> Completion:
        """Return the greedy answer, of at most `output_tokens` tokens.

        number: the request's, for the draws of its retries. sender: who asks, for hosts inside the server
        (`live.vllm.attribution`). once: one try. Raises Failed.
        """
        body: dict[str, Any] = {
            "model": self.model, "prompt": prompt, "max_tokens": output_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        if priority:
            body["priority"] = priority
        if sender:
            body["vllm_xargs"] = sender
        tries = 1 if once else 1 + self._patience.retries
        reason = ""
        try:
            async with asyncio.timeout(self._patience.deadline_s):
                for at in range(tries):
                    try:
                        return await self._once(body, at + 1)
                    except _Again as e:
                        reason = str(e)
                        after_s = e.after_s
                    if at + 1 < tries:
                        drawn = draws.uniform(self._seed, "retry", number, at)
                        wait_s = self._patience.backoff_s * 2**at * 2 * drawn
                        await asyncio.sleep(max(wait_s, after_s or 0.0))
        except TimeoutError:
            last = f"; the last try: {reason}" if reason else ""
            raise Failed(f"no answer within {self._patience.deadline_s:g} s{last}") from None
        raise Failed(f"{reason} ({tries} {'try' if tries == 1 else 'tries'})")

    async def metrics(self) -> str:
        """Return the text of the server's own metrics. Raises Failed where it has none."""
        try:
            async with self._get(f"{self.root}/metrics") as answer:
                if answer.status != 200:
                    raise Failed(f"/metrics: status {answer.status}")
                text: bytes = await answer.content.read(_TEXT_CHARS_MAX)
                return text.decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError) as e:
            raise Failed(f"/metrics: {_said(e)}") from e

    async def __aenter__(self) -> Server:
        key = os.environ.get("OPENAI_API_KEY", "")
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=_LINE_BYTES_MAX,
        )
        try:
            await self._find_model()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def _find_model(self) -> None:
        try:
            async with self._get(f"{self.root}/v1/models") as answer:
                if answer.status != 200:
                    raise InputError(f"server={self.root}: /v1/models answers with status {answer.status}")
                listed = json.loads(await answer.content.read(_TEXT_CHARS_MAX))
                names = [str(m["id"]) for m in listed["data"]]
        except (aiohttp.ClientError, TimeoutError) as e:
            raise InputError(f"server={self.root}: {_said(e)}") from e
        except (json.JSONDecodeError, KeyError, TypeError) as e:
            raise InputError(f"server={self.root}: /v1/models is no list of models") from e
        if not self.model and len(names) == 1:
            self.model = names[0]
        if self.model not in names:
            given = f"model {self.model!r} is" if self.model else "no model was chosen;"
            raise InputError(f"server={self.root}: {given} not one of those served: {', '.join(names)}")

    def _get(self, url: str) -> Any:
        assert self._session is not None
        return self._session.get(url, timeout=aiohttp.ClientTimeout(total=10))

    async def _once(self, body: dict[str, Any], tries: int) -> Completion:
        assert self._session is not None
        loop = asyncio.get_running_loop()
        texts: list[str] = []
        usage: dict[str, Any] = {}
        finished = False
        first_ns = -1
        size = 0
        try:
            async with self._session.post(f"{self.root}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    said = (await answer.content.read(2000)).decode("utf-8", "replace")
                    raise _refused(answer, said)
                async for event in _events(answer):
                    if "error" in event:
                        raise _Again(f"the server broke off: {str(event['error'])[:200]}")
                    usage = event.get("usage") or usage
                    for choice in event.get("choices") or ():
                        text = str(choice.get("text") or "")
                        if text and first_ns < 0:
                            first_ns = round(loop.time() * _NS_PER_S)
                        size += len(text)
                        if size > _TEXT_CHARS_MAX:
                            raise Failed(f"an answer of more than {_TEXT_CHARS_MAX} characters")
                        texts.append(text)
                        finished |= choice.get("finish_reason") is not None
        except aiohttp.ClientError as e:
            raise _Again(_said(e)) from e
        except (ValueError, AttributeError, TypeError) as e:
            raise _Again(f"no stream of completions: {type(e).__name__}") from e
        if not finished:
            raise _Again("the stream ended before the answer did")
        said = "".join(texts).encode("utf-8", "replace").decode()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        prompt, output = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        return Completion(said, int(prompt), int(output), int(cached), first_ns, tries)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects of a stream of server-sent events, up to its end."""
    async for raw in answer.content:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)


def _refused(answer: aiohttp.ClientResponse, said: str) -> Exception:
    try:
        given = json.loads(said)
        said = str((given.get("error") or given).get("message", said))
    except (json.JSONDecodeError, AttributeError):
        pass
    reason = f"status {answer.status}: {' '.join(said.split())[:200]}"
    if answer.status not in _AGAIN:
        return Failed(reason)
    try:
        after_s = min(float(answer.headers.get("Retry-After", "")), 60.0)
    except ValueError:
        after_s = 0.0
    return _Again(reason, after_s)


def _said(e: BaseException) -> str:
    return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}" if str(e) else type(e).__name__
