"""The drafter that vLLM loads (`method: custom_class`) and the workers that hand it their model runner.

vLLM tells a proposer which tokens each row sampled, and not whose they are; the worker's model runner knows. Start the
engine with `DraftSettings.engine_arguments()` and `worker_cls` from `worker_class()`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from live.vllm import compat
from live.vllm.drafting import DraftHost, Row, Sent
from live.vllm.draftsettings import KEY, parse_draft_settings
from policies.views import HostInfo

if TYPE_CHECKING:
    _CpuBase: Any = object
    _GpuBase: Any = object
else:
    try:
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            from vllm.v1.worker.cpu_worker import CPUWorker as _CpuBase

            _GpuBase = object
        else:
            from vllm.v1.worker.gpu_worker import Worker as _GpuBase

            _CpuBase = object
    except ImportError:  # no vLLM here, or one that `compat` refuses
        _CpuBase = _GpuBase = object


class PolicyProposer:
    """Drafts with a policy of ours; every exception is contained."""

    def __init__(self, vllm_config: Any) -> None:
        compat.require()
        self._config = vllm_config
        given = dict(vllm_config.additional_config.get(KEY, {}))
        settings = parse_draft_settings(given)
        model = vllm_config.model_config
        info = HostInfo(
            profile=settings.load_profile(model.max_model_len),
            block_tokens=vllm_config.cache_config.block_size or 16,
            capacity_tokens=0,
            max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
            max_num_batched_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
            agents=settings.agents,
            seed=settings.seed,
            token_text=_TokenText(model.tokenizer),
        )
        self._info = info
        self._vocabulary = model.get_vocab_size()
        self.host = DraftHost(settings, info, self._vocabulary)
        self._runner: Any = None

    def load_model(self, *_: Any, **__: Any) -> None:
        """There is no model to load."""

    def bind(self, runner: Any) -> None:
        """The worker's model runner, which knows the requests behind the rows."""
        self._runner = runner

    def use(self, **changes: Any) -> DraftHost:
        """Begin again under changed settings, between requests; return the host. For trying policies in one engine."""
        given = dict(self._config.additional_config.get(KEY, {})) | changes
        self.host = DraftHost(parse_draft_settings(given), self._info, self._vocabulary)
        return self.host

    def scheduled(self, scheduler_output: Any) -> None:
        """A step runs: which drafts it verifies."""
        self.host.scheduled(scheduler_output.scheduled_spec_decode_tokens)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return a draft for each row of the batch that just ran."""
        runner = self._runner
        if runner is None:
            return [[] for _ in sampled_token_ids]
        names = runner.input_batch.req_ids
        rows = [
            Row(names[i], [int(t) for t in sampled], int(num_tokens_no_spec[i]))
            for i, sampled in enumerate(sampled_token_ids)
        ]
        return self.host.step(rows, runner.requests.__contains__, self._request)

    def _request(self, name: str) -> Sent:
        state = self._runner.requests[name]
        params = state.sampling_params
        most = params.max_tokens if params is not None and params.max_tokens is not None else 1 << 30
        return Sent(params.extra_args if params is not None else None, state.prompt_token_ids, most)


class _TokenText:
    """Text of a token, from the model's tokenizer, read when the first is asked for."""

    def __init__(self, tokenizer: str) -> None:
        self._name = tokenizer
        self._tokenizer: Any = None
        self._text: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        text = self._text.get(token)
        if text is None:
            if self._tokenizer is None:
                transformers: Any = importlib.import_module("transformers")
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._name)
            text = self._text[token] = str(self._tokenizer.decode([token]))
        return text


class _Binds:
    """Hands the model runner to the drafter, and every step's schedule."""

    model_runner: Any

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load the model, then bind."""
        out = super().load_model(*args, **kwargs)  # type: ignore[misc]
        self._tell("bind", self.model_runner)
        return out

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a step, whose drafts the drafter hears of."""
        self._tell("scheduled", scheduler_output)
        return super().execute_model(scheduler_output, *args, **kwargs)  # type: ignore[misc]

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        """Write the drafter's log, then end."""
        drafter = getattr(self.model_runner, "drafter", None)
        if isinstance(drafter, PolicyProposer):
            drafter.host.close()
        return super().shutdown(*args, **kwargs)  # type: ignore[misc]

    def _tell(self, event: str, *args: Any) -> None:
        drafter = getattr(self.model_runner, "drafter", None)
        if isinstance(drafter, PolicyProposer):
            getattr(drafter, event)(*args)


class CpuWorker(_Binds, _CpuBase):  # type: ignore[misc]
    """A worker on a CPU."""


class GpuWorker(_Binds, _GpuBase):  # type: ignore[misc]
    """A worker on a GPU."""


def worker_class() -> str:
    """Return `worker_cls` for the platform that vLLM runs on here."""
    from vllm.platforms import current_platform

    return f"live.vllm.proposer.{'CpuWorker' if current_platform.is_cpu() else 'GpuWorker'}"
