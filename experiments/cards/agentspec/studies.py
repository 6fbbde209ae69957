"""The runs behind the card of AgentSpec, as words of the command line; `quick` makes each of them small."""

from __future__ import annotations

from experiments.cards.study import Study

NORMAL = ("none", "none")
NGRAM = ("ngram(n_min=4)", "fixed_k")
SUFFIX = ("suffix", "fixed_k(k=32)")
ADASPEC = ("suffix", "adaspec")
MODES = {"literal": "redundancy", "per_request": "redundancy(mode=per_request)"}
CAPPED = "redundancy(mode=capped)"
REGIMES = ("packed", "prefill")

_AGENTSPEC = ("experiment=agentspec",)

STUDIES: dict[str, Study] = {
    "methods": Study(
        _AGENTSPEC,
        ("seeds=2", "load.workflows=32", "load.concurrency=32", "workload=reflexion,taubench,mtbench"),
    ),
    "batch": Study(
        (*_AGENTSPEC, "+sweep=agentspec_batch", "seeds=3"),
        ("seeds=2", "load.workflows=32", "load.concurrency=32", "engine.max_num_seqs=4,32"),
    ),
    "ablation": Study(
        (*_AGENTSPEC, "+sweep=agentspec_ablation"),
        ("seeds=2", "load.workflows=24", "load.concurrency=24", "workload=taubench"),
    ),
    "gpu": Study(
        (*_AGENTSPEC, "+sweep=agentspec_gpu"),
        ("seeds=2", "load.workflows=24", "load.concurrency=24", "workload=taubench"),
    ),
}
