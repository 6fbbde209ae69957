"""A server that speaks the OpenAI API, as a client sees it: streamed completions, retries, deadlines.

A request that nobody wants any more is cancelled by closing its connection: that is the only way the API has, and
servers stop generating when they notice.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from live.agents.clock import NS_PER_S
from traces import draws
from traces.errors import InputError

_LINE_BYTES_MAX = 1 << 20
_TEXT_CHARS_MAX = 1 << 22
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
_COUNT_MAX = 1 << 30  # of tokens; a server that says more is not believed
_ODD = (
    ValueError,
    AttributeError,
    TypeError,
    OverflowError,
    RecursionError,
    KeyError,
)  # of what a server said


@dataclass(frozen=True)
class Completion:
    """What a server answered.

    cached_tokens    of the prompt, found in its prefix cache; 0 where it does not say
    first_token_ns   on the event loop's clock, -1 where no text came
    """

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

    retries      further tries after a failure that may pass: refused, cut off, or a status of 408, 409, 425, 429, 500,
                 502, 503 or 504
    backoff_s    mean wait before the first of them; doubles each time, drawn uniformly up to twice that
    deadline_s   for all tries together
    """

    retries: int = 3
    backoff_s: float = 0.5
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"retries={self.retries}, allowed: a whole number of at least 0")
        if not 0 <= self.backoff_s < math.inf:
            raise InputError(f"backoff_s={self.backoff_s}, allowed: a number of at least 0")
        if not 0 < self.deadline_s < math.inf:
            raise InputError(f"deadline_s={self.deadline_s}, allowed: a number above 0")


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

    async def metrics(self) -> str | None:
        """Return the text of the server's own metrics, None where it has none. Raises Failed for what may pass."""
        try:
            async with self._get(f"{self.root}/metrics") as answer:
                if answer.status in _AGAIN:
                    raise Failed(f"/metrics: status {answer.status}")
                if answer.status != 200:
                    return None
                return (await _body(answer)).decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError) as e:
            raise Failed(f"/metrics: {_said(e)}") from e

    async def __aenter__(self) -> Server:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not key.isprintable() or not key.isascii():
            raise InputError("OPENAI_API_KEY: holds a character that no header may have")
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
                listed = json.loads(await _body(answer))
                names = [_clean(str(m["id"])) for m in listed["data"]]
        except (aiohttp.ClientError, TimeoutError) as e:
            raise InputError(f"server={self.root}: {_said(e)}") from e
        except InputError:
            raise
        except _ODD as e:
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
        said = _Answer()
        try:
            async with self._session.post(f"{self.root}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    raise _refused(answer, (await answer.content.read(2000)).decode("utf-8", "replace"))
                async for event in _events(answer):
                    if "error" in event:
                        raise _Again(f"the server broke off: {_clean(str(event['error']))[:200]}")
                    said.hear(event, round(loop.time() * NS_PER_S))
                return said.completion(tries)
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError) as e:
            raise _Again(_said(e)) from e
        except _ODD as e:
            raise _Again(f"no stream of completions: {type(e).__name__}") from e


class _Answer:
    """A stream as far as it was heard. Methods raise ValueError, TypeError or AttributeError for what is none."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0
        self._usage: dict[str, Any] = {}
        self._finished = False
        self._first_ns = -1

    def hear(self, event: dict[str, Any], now_ns: int) -> None:
        """Take one event. Mutates."""
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            text = str(choice.get("text") or "")
            if text and self._first_ns < 0:
                self._first_ns = now_ns
            self._size += len(text)
            if self._size > _TEXT_CHARS_MAX:
                raise Failed(f"an answer of more than {_TEXT_CHARS_MAX} characters")
            self._texts.append(text)
            self._finished |= choice.get("finish_reason") is not None

    def completion(self, tries: int) -> Completion:
        """Return the whole answer."""
        if not self._finished:
            raise _Again("the stream ended before the answer did")
        details = self._usage.get("prompt_tokens_details") or {}
        return Completion(
            _clean("".join(self._texts)), _count(self._usage.get("prompt_tokens")),
            _count(self._usage.get("completion_tokens")), _count(details.get("cached_tokens")), self._first_ns, tries,
        )  # fmt: skip


def _count(given: Any) -> int:
    """Return a number of tokens; ValueError for what is none."""
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _COUNT_MAX:
        raise ValueError("no number of tokens")
    return given


def _clean(text: str) -> str:
    """Return text that can be written down: a server may send half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """Return the whole body, or as much of it as is reasonable."""
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _TEXT_CHARS_MAX:
            break
    return b"".join(parts)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects of a stream of server-sent events, up to its end."""
    async for raw in answer.content:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[len(b"data:") :].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if not isinstance(event, dict):
            raise TypeError("no object")
        yield event


def _refused(answer: aiohttp.ClientResponse, said: str) -> Exception:
    try:
        given = json.loads(said)
        said = str((given.get("error") or given).get("message", said))
    except _ODD:
        pass
    reason = _clean(f"status {answer.status}: {' '.join(said.split())[:200]}")
    if answer.status not in _AGAIN:
        return Failed(reason)
    try:
        after_s = min(float(answer.headers.get("Retry-After", "")), 60.0)
    except ValueError:
        after_s = 0.0
    return _Again(reason, after_s)


def _said(e: BaseException) -> str:
    return _clean(f"{type(e).__name__}: {' '.join(str(e).split())[:200]}") if str(e) else type(e).__name__
