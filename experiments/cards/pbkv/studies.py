"""The runs behind the card of PBKV, as words of the command line; `quick` makes each of them small."""

from __future__ import annotations

from experiments.cards.study import Study

A6000_14B = "profile=A6000x1--Qwen3-14B--bf16--vllm"

_SMALL = ("seeds=2", "load.workflows=108")
_FEW = ("seeds=2", "load.workflows=72")
_HALF = ("load.concurrency=36", "load.workflows=144")
_SWEEP = ("experiment=pbkv", "seeds=20")
_MAIN = "+sweep=pbkv_main"  # the paper's arms for workflows with loops; its static pipeline has KVFlow, too
_ACCESS = ("evictor=lookahead,lookahead(access=inherit),lookahead(access=global_pin)", "prefetcher=none")
# KV blocks of the A6000s (`python -m calibration memory`), times 3/4, 3/2, 2 and 3.
_POOLS_32B = "engine.num_gpu_blocks=4056,8112,10816,16224"
_POOLS_14B = "engine.num_gpu_blocks=4103,8207,10942,16413"
_POOL = ("seeds=5", "evictor=lru,lifecycle,lookahead", "prefetcher=none")
_QUICK_32B = ("seeds=2", "evictor=lru,lookahead", "engine.num_gpu_blocks=4056,10816")
_QUICK_14B = ("seeds=2", "evictor=lru,lookahead", "engine.num_gpu_blocks=4103,10942")

STUDIES: dict[str, Study] = {
    "hover_32b": Study(("experiment=pbkv",), _SMALL),
    "hover_14b": Study(("experiment=pbkv", _MAIN, A6000_14B), _SMALL),
    "hover_shared_32b": Study(("experiment=pbkv", _MAIN, "workload=pbkv_hover_shared"), _SMALL),
    "hover_shared_14b": Study(("experiment=pbkv", _MAIN, "workload=pbkv_hover_shared", A6000_14B), _SMALL),
    "swe_32b": Study(("experiment=pbkv_swe",), ("seeds=2", "load.workflows=36")),
    "swe_14b": Study(("experiment=pbkv_swe", _MAIN, A6000_14B), ("seeds=2", "load.workflows=36")),
    "finance_32b": Study(("experiment=pbkv_finance",), _FEW),
    "finance_14b": Study(("experiment=pbkv_finance", A6000_14B), _FEW),
    "swe_shared_32b": Study(
        ("experiment=pbkv_swe", _MAIN, "workload=pbkv_swe_shared"), ("seeds=2", "load.workflows=36")
    ),
    "finance_shared_32b": Study(("experiment=pbkv_finance", "workload=pbkv_finance_shared"), _FEW),
    # At 72 the prompts in progress hold several times the pool under `own`: half of them leave something to decide.
    "hover_half_32b": Study(("experiment=pbkv", *_HALF), _FEW),
    "access": Study((*_SWEEP, *_ACCESS), _SMALL),
    "access_half": Study((*_SWEEP, *_HALF, *_ACCESS), _FEW),
    "access_shared": Study((*_SWEEP, "workload=pbkv_hover_shared", *_ACCESS), _SMALL),
    "access_swe": Study(("experiment=pbkv_swe", "seeds=20", *_ACCESS), ("seeds=2", "load.workflows=36")),
    "access_finance": Study(("experiment=pbkv_finance", "seeds=20", *_ACCESS), _FEW),
    "concurrency": Study(
        (*_SWEEP, "+sweep=pbkv_concurrency", "evictor=lru,lifecycle,lookahead", "prefetcher=none"),
        (*_SMALL, "load.concurrency=12,36,72", "evictor=lru,lookahead"),
    ),
    "horizon": Study((*_SWEEP, "+sweep=pbkv_horizon"), (*_SMALL, "evictor.horizon=1,3,6")),
    # Prefetching by one step does not look at gamma.
    "gamma": Study(
        (*_SWEEP, "+sweep=pbkv_gamma", "prefetcher=none"), (*_SMALL, "evictor.gamma=0.3,0.7,1.0")
    ),
    "rho": Study(
        (*_SWEEP, "+sweep=pbkv_rho"),
        (*_SMALL, "prefetcher=none,conservative,aggressive(rho=0.1),aggressive,aggressive(rho=0.4)"),
    ),
    "noise": Study((*_SWEEP, "+sweep=pbkv_noise"), (*_SMALL, "predictor.level=0,0.2,0.3")),
    "predictor": Study((*_SWEEP, "+sweep=pbkv_predictor"), _SMALL),
    "predictor_half": Study((*_SWEEP, "+sweep=pbkv_predictor", *_HALF), _FEW),
    "controls": Study((*_SWEEP, "+sweep=pbkv_controls", *_HALF), _FEW),
    # Room for everything any workflow ever reads.
    "ample": Study(
        (
            "experiment=pbkv", "seeds=3", *_HALF, "engine.num_gpu_blocks=400000", "prefetcher=none",
            "evictor=lru,lifecycle,lookahead,kvflow,continuum,lfu,gdsf,s3_fifo,sieve,arc",
        ),
        ("seeds=1", "load.workflows=48", "evictor=lru,lifecycle,lookahead,kvflow"),
    ),
    # The engine alone: one policy, pools of several sizes; and the blind predictions at those sizes.
    "pool_hover_32b": Study(("experiment=pbkv", *_POOL, _POOLS_32B), (*_SMALL, *_QUICK_32B)),
    "pool_hover_14b": Study(("experiment=pbkv", *_POOL, A6000_14B, _POOLS_14B), (*_SMALL, *_QUICK_14B)),
    "pool_swe_32b": Study(("experiment=pbkv_swe", *_POOL, _POOLS_32B), ("load.workflows=36", *_QUICK_32B)),
    "pool_swe_14b": Study(
        ("experiment=pbkv_swe", *_POOL, A6000_14B, _POOLS_14B), ("load.workflows=36", *_QUICK_14B)
    ),
    "pool_finance_32b": Study(("experiment=pbkv_finance", *_POOL, _POOLS_32B), (*_FEW, *_QUICK_32B)),
    "pool_finance_14b": Study(
        ("experiment=pbkv_finance", *_POOL, A6000_14B, _POOLS_14B), (*_FEW, *_QUICK_14B)
    ),
}  # fmt: skip
