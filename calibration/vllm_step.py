"""Steps of a real engine: vLLM's, driven one step at a time in this process, on prompts of counted token ids.

Times are wall times of the engine's step, so rows are of scope engine: kernels, scheduling, sampling and output. The
batch that a point asks for is set up by stepping until the engine has it (its scheduler is not bypassed); prefix
caching is on, so that a prefill with a prefix is a prompt whose first part was served before. Weights are random.
"""

from __future__ import annotations

import importlib
import os
import time
from itertools import count
from typing import Any

from calibration.measure import Unmeasurable
from calibration.measure_http import round_trips_ns
from calibration.measure_machine import machine
from calibration.measure_run import Limit, Request, RunResult, arrive, finished
from calibration.plan import Point, RunPoint
from traces import draws
from traces.errors import InputError

_MAX_SETUP_STEPS = 10_000
_VOCABULARY = 256  # token ids used: any model has as many
_LONG = 1 << 20
_TIMED_STEPS = 16


class VllmBackend:
    """One engine with a model. `options` go to vLLM's LLM class as they are.

    Mutates the engine's cache from point to point; requests are aborted when their point is done.
    """

    def __init__(self, model: str, **options: Any) -> None:
        # In this process: a step is one call, and its wall time is the engine's.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            vllm = importlib.import_module("vllm")
        except ImportError:
            raise InputError(
                "--backend vllm: vLLM is not installed; --backend torch needs torch alone"
            ) from None
        chosen = {
            "load_format": "dummy", "skip_tokenizer_init": True, "enable_prefix_caching": True,
            "max_num_seqs": 256, "max_num_batched_tokens": 8192, "disable_log_stats": True,
        }  # fmt: skip
        self._llm = vllm.LLM(model=model, **(chosen | options))
        self._engine = self._llm.llm_engine
        self._params = vllm.SamplingParams
        self._prompts = 0
        self._live: list[str] = []
        self._last: list[Any] = []
        config = self._engine.vllm_config
        self._max_len = int(config.model_config.max_model_len)
        self._max_tokens = int(config.scheduler_config.max_num_batched_tokens)
        self._max_seqs = int(config.scheduler_config.max_num_seqs)
        cache = config.cache_config
        self._kv_tokens = int(cache.num_gpu_blocks or 0) * int(cache.block_size)
        self.name = f"vllm {vllm.__version__} {os.path.basename(model.rstrip('/'))}"

    def machine(self) -> dict[str, Any]:
        """Return the host, the engine's version and its capacity."""
        return {
            **machine(),
            "backend": self.name,
            "steps": "LLMEngine.step in this process, random weights",
            "kv_tokens": self._kv_tokens,
            "max_num_seqs": self._max_seqs,
            "max_num_batched_tokens": self._max_tokens,
        }

    def refuses(self, point: Point) -> str | None:
        """Return why the point cannot be measured through the engine."""
        if point.kind in ("copy", "graph"):
            return "not visible through the engine; use the torch backend"
        if point.kind == "verify":
            return "needs a drafter in the engine; use the torch backend"
        if point.kind == "idle":
            return None
        if point.batch + (point.kind == "mixed") > self._max_seqs:
            return f"max_num_seqs is {self._max_seqs}"
        if point.mode == "async":
            return "the engine's own scheduling mode is measured as sync"
        chunk = point.new_tokens if point.kind in ("prefill", "mixed") else 0
        if chunk + point.batch * (point.kind == "mixed") > self._max_tokens:
            return f"max_num_batched_tokens is {self._max_tokens}"
        longest = max([*point.contexts(), point.prefix_tokens + chunk])
        if longest + 64 > self._max_len:
            return f"max_model_len is {self._max_len}"
        total = sum(point.contexts()) + point.prefix_tokens + chunk + 64 * point.batch
        return f"{total} KV tokens, the engine holds {self._kv_tokens}" if total > self._kv_tokens else None

    def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
        """Return wall times of the engine's step; raises Unmeasurable where the batch cannot be set up."""
        if point.kind == "idle":
            return {"client": round_trips_ns(repetitions)}
        try:
            if point.kind == "decode":
                self._fill(point)
                return {"engine": [self._timed_step() for _ in range(repetitions)]}
            return {"engine": [self._one(point) for _ in range(repetitions)]}
        finally:
            self._clear()

    def run(self, run: RunPoint, budget: Limit) -> RunResult:
        """Run the requests through the engine by the wall clock; its steps are its own and are not listed."""
        began = time.perf_counter_ns()
        numbers = count()
        live: dict[str, Request] = {}
        done: list[dict[str, Any]] = []

        def begin(now_ns: int) -> None:
            request = arrive(run, next(numbers), now_ns)
            live[self._add(self._prompt(request.prompt), request.output)] = request

        for _ in range(run.concurrency):
            begin(0)
        now = 0
        try:
            while now < run.duration_s * 1e9 and budget.allows():
                outputs = self._engine.step()
                now = time.perf_counter_ns() - began
                for output in outputs:
                    request = live[output.request_id]
                    request.made = len(output.outputs[0].token_ids)
                    request.first_ns = request.first_ns or now
                    if output.finished:
                        done.append(finished(live.pop(output.request_id), now))
                        begin(now)
        finally:
            self._clear()
        made = sum(r["output_tokens"] for r in done) + sum(r.made for r in live.values())
        return RunResult(done, [], now, made, "engine")

    def _one(self, point: Point) -> int:
        """Time the one step in which the point's chunk is computed (a decode step where it has none)."""
        if point.kind == "decode" or (point.kind == "mixed" and not self._live):
            self._fill(point)
        if point.kind == "decode":
            return self._timed_step()
        prefix = self._prompt(point.prefix_tokens)
        if prefix:
            # One token beyond the prefix: whole blocks of it are then in the cache.
            self._add([*prefix, 0], 1)
            self._step_until(lambda: len(self._unfinished()) == len(self._live) - 1)
            self._live.pop()
        self._add([*prefix, *self._prompt(point.new_tokens)], 1)
        took = self._timed_step()
        self._live.pop()
        return took

    def _fill(self, point: Point) -> None:
        contexts = point.contexts()
        # Setting the batch up takes steps, and timing it more, in which sequences grow: half of them too short by as
        # much, half too long, is right on average.
        grown = sum(contexts) // self._max_tokens // 2 + _TIMED_STEPS // 2
        for context in contexts:
            self._add(self._prompt(max(context - grown, 1)), _LONG)
        waiting = set(self._live)

        def decoding() -> bool:
            for output in self._last:
                waiting.discard(output.request_id)
            return not waiting

        self._step_until(decoding)

    def _step_until(self, done: Any) -> None:
        for _ in range(_MAX_SETUP_STEPS):
            self._last = self._engine.step()
            if done():
                return
        raise Unmeasurable(f"the engine did not reach the batch in {_MAX_SETUP_STEPS} steps")

    def _timed_step(self) -> int:
        began = time.perf_counter_ns()
        self._engine.step()
        return max(time.perf_counter_ns() - began, 1)

    def _add(self, tokens: list[int], output: int) -> str:
        self._prompts += 1
        name = f"m{self._prompts}"
        room = self._max_len - len(tokens)
        params = self._params(
            max_tokens=max(min(output, room), 1), ignore_eos=True, detokenize=False, temperature=0.0
        )
        self._engine.add_request(name, {"prompt_token_ids": tokens}, params)
        self._live.append(name)
        return name

    def _prompt(self, length: int) -> list[int]:
        """Return token ids that no other prompt begins with: nothing of it is in the cache."""
        self._prompts += 1
        number = draws.bits(0, "vllm prompt", self._prompts)
        return [(number >> (8 * (i % 8))) % _VOCABULARY if i < 8 else i % _VOCABULARY for i in range(length)]

    def _unfinished(self) -> list[str]:
        done = {o.request_id for o in self._last if o.finished}
        return [name for name in self._live if name not in done]

    def _clear(self) -> None:
        if self._live:
            self._engine.abort_request(self._live)
        self._live = []
        while self._engine.has_unfinished_requests():
            self._engine.step()
