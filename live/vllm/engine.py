"""A vLLM engine in this process, set up so that equal inputs give equal events."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from live.tiny.model import MAX_POSITIONS
from live.vllm import compat
from live.vllm.draftsettings import DraftSettings
from live.vllm.settings import EvictionSettings
from traces.errors import InputError

_SHUTDOWN_S = 60.0
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_PLUGINS": "",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


class Answer(NamedTuple):
    """Tokens of a greedy answer and the sum of their log probabilities, which also shows what no token does."""

    tokens: list[int]
    logprob: float


class Engine:
    """Serves greedily, in fp32. A context manager; mutated by `serve`, or by `send` and `step`.

    blocks     KV blocks of the pool, as policies count them (vLLM's own count has one more, never used)
    settings   an evictor to load; None leaves the engine as it is installed
    drafting   a drafter to load; None decodes a token a step
    given      further arguments of vLLM's
    Variables of the environment that are set already are kept (`VLLM_ENABLE_V1_MULTIPROCESSING=1` puts the engine
    core, and with it the evictor, into a process of its own).
    """

    def __init__(
        self,
        model: Path,
        block_tokens: int,
        blocks: int,
        settings: EvictionSettings | None,
        *,
        max_num_seqs: int = 1,
        max_num_batched_tokens: int = 2048,
        drafting: DraftSettings | None = None,
        **given: Any,
    ) -> None:
        for name, value in _ENVIRONMENT.items():  # before anything of vLLM is imported
            os.environ.setdefault(name, value)
        compat.require()
        if not (model / "config.json").is_file():
            raise InputError(f"{model}: no model; make one with: python -m live make-model {model}")
        from live.vllm.proposer import worker_class

        vllm: Any = importlib.import_module("vllm")
        if drafting:
            given |= {**drafting.engine_arguments(), "worker_cls": worker_class()}
        if settings:
            given["kv_transfer_config"] = settings.transfer_config()
        self._params: Any = vllm.SamplingParams
        self._engine: Any = _made(
            vllm.LLM,
            str(model),
            dtype="float32",
            enforce_eager=True,
            block_size=block_tokens,
            num_gpu_blocks_override=blocks + 1,
            max_model_len=min(MAX_POSITIONS, blocks * block_tokens),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=True,
            disable_log_stats=True,
            async_scheduling=False,
            distributed_executor_backend="uni",
            seed=0,
            **given,
        )

    def serve(
        self, prompt: Sequence[int], output_tokens: int, sender: dict[str, Any] | None = None
    ) -> Answer:
        """Return the `output_tokens` tokens that follow `prompt`. sender: see `live.vllm.attribution`."""
        params = self._sampling(output_tokens, sender)
        done = self._engine.generate([{"prompt_token_ids": list(prompt)}], [params], use_tqdm=False)
        return _answer(done[0])

    def send(
        self, name: str, prompt: Sequence[int], output_tokens: int, sender: dict[str, Any] | None = None
    ) -> None:
        """Add a request; `step` serves it."""
        params = self._sampling(output_tokens, sender)
        self._engine.llm_engine.add_request(name, {"prompt_token_ids": list(prompt)}, params)

    def step(self) -> list[tuple[str, Answer]]:
        """Run one step, if there is anything to do; return who ended in it."""
        engine = self._engine.llm_engine
        if not engine.has_unfinished_requests():
            return []
        return [(out.request_id, _answer(out)) for out in engine.step() if out.finished]

    def _sampling(self, output_tokens: int, sender: dict[str, Any] | None) -> Any:
        return self._params(
            temperature=0,
            max_tokens=output_tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
            extra_args=sender,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the engine; a host that records writes its log now."""
        # The default of 5 s may end an engine core of its own before its log is written.
        self._engine.llm_engine.engine_core.shutdown(timeout=_SHUTDOWN_S)


def _answer(output: Any) -> Answer:
    answer = output.outputs[0]
    return Answer([int(t) for t in answer.token_ids], float(answer.cumulative_logprob))


def _made(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an engine. A drafter is loaded in its worker and nowhere before: vLLM's start stumbles over numba."""
    try:
        return kind(*args, **kwargs)
    except RuntimeError as e:
        if "custom proposer" in str(e):
            raise InputError(str(e).split("': ", 1)[-1].partition(" The class constructor")[0]) from e
        raise
