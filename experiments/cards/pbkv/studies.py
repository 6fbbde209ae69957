"""The runs behind the card of PBKV, as words of the command line; `quick` makes each of them small."""

from __future__ import annotations

from experiments.cards.study import Study

A6000_14B = "profile=A6000x1--Qwen3-14B--bf16--vllm"

_SMALL = ("seeds=2", "load.workflows=108")
_PAIR = ("evictor=lookahead", "prefetcher=none,conservative")
_HALF = ("load.concurrency=36", "load.workflows=144")
_SWEEP = ("experiment=pbkv", "seeds=10")

STUDIES: dict[str, Study] = {
    "hover_32b": Study(("experiment=pbkv",), _SMALL),
    "hover_14b": Study(("experiment=pbkv", A6000_14B), _SMALL),
    "hover_shared_32b": Study(("experiment=pbkv", "workload=pbkv_hover_shared"), _SMALL),
    "hover_shared_14b": Study(("experiment=pbkv", "workload=pbkv_hover_shared", A6000_14B), _SMALL),
    "swe_32b": Study(("experiment=pbkv_swe",), ("seeds=2", "load.workflows=36")),
    "swe_14b": Study(("experiment=pbkv_swe", A6000_14B), ("seeds=2", "load.workflows=36")),
    "finance_32b": Study(("experiment=pbkv_finance",), ("seeds=2", "load.workflows=72")),
    "finance_14b": Study(("experiment=pbkv_finance", A6000_14B), ("seeds=2", "load.workflows=72")),
    "swe_shared_32b": Study(
        ("experiment=pbkv_swe", "workload=pbkv_swe_shared"), ("seeds=2", "load.workflows=36")
    ),
    "finance_shared_32b": Study(
        ("experiment=pbkv_finance", "workload=pbkv_finance_shared"), ("seeds=2", "load.workflows=72")
    ),
    # At 72 the prompts in progress hold several times the pool under `own`: half of them leave something to decide.
    "hover_half_32b": Study(("experiment=pbkv", *_HALF), ("seeds=2", "load.workflows=72")),
    "access": Study(
        (
            *_SWEEP,
            "evictor=lookahead,lookahead(access=inherit),lookahead(access=global_pin)",
            "prefetcher=none",
        ),
        _SMALL,
    ),
    "concurrency": Study(
        (*_SWEEP, "+sweep=pbkv_concurrency", "evictor=lru,lifecycle,lookahead", "prefetcher=none"),
        (*_SMALL, "load.concurrency=12,36,72", "evictor=lru,lookahead"),
    ),
    "horizon": Study((*_SWEEP, "+sweep=pbkv_horizon"), (*_SMALL, "evictor.horizon=1,3,6")),
    "gamma": Study((*_SWEEP, "+sweep=pbkv_gamma"), (*_SMALL, "evictor.gamma=0.3,0.7,1.0", "prefetcher=none")),
    "rho": Study(
        (*_SWEEP, "+sweep=pbkv_rho"),
        (*_SMALL, "prefetcher=none,conservative,aggressive(rho=0.1),aggressive,aggressive(rho=0.4)"),
    ),
    "noise": Study((*_SWEEP, "+sweep=pbkv_noise"), (*_SMALL, "predictor.level=0,0.2,0.3")),
    "predictor": Study((*_SWEEP, "+sweep=pbkv_predictor"), _SMALL),
    "predictor_half": Study((*_SWEEP, "+sweep=pbkv_predictor", *_HALF), ("seeds=2", "load.workflows=72")),
}
