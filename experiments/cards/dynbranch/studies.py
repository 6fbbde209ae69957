"""The runs behind the card of DynBranch, as words of the command line; `quick` makes each of them small."""

from __future__ import annotations

from experiments.cards.study import Study

_SMALL = ("seeds=2", "load.workflows=200")
_ONE = (*_SMALL, "workload=dynbranch_subagent")
_4090 = ("profile=RTX4090x1--Qwen3-8B--bf16--vllm", "replicas=4", "branching.fills_max=192")
_ALONE = ("gate=never,priced,dsp,spagent", "candidate=deployed", "reuse=none")
_REUSE = ("gate=never", "candidate=none", "reuse=none,subgraph,per_operator,whole_response")

STUDIES: dict[str, Study] = {
    "main": Study(("experiment=dynbranch",), _SMALL),
    "commodity": Study(("experiment=dynbranch", *_4090, "seeds=5"), _ONE),
    "alone": Study(("experiment=dynbranch", *_ALONE, "replicas=2,4", "branching.fills_max=192"), _ONE),
    "mix": Study(
        (
            "experiment=dynbranch",
            "workload=dynbranch_mix",
            *_REUSE,
            "load.utilisation=0.3",
            "load.workflows=233",
        ),
        ("seeds=2",),
    ),
    "fanout": Study(("+sweep=fanout", "seeds=20"), (*_SMALL, "replicas=1,3,4")),
    "depth": Study(("+sweep=depth",), _SMALL),
    "replay": Study(("+sweep=replay",), (*_SMALL, "load.replay=0.22,0.77")),
    "model_size": Study(("+sweep=model_size",), _SMALL),
    "backbones": Study(("+sweep=backbones",), _SMALL),
    "drafter": Study(("+sweep=drafter",), (*_SMALL, "drafter_device.place=own")),
    "gates": Study(("+sweep=gates",), (*_SMALL, "load.utilisation=0.8")),
    "load": Study(("+sweep=load",), (*_SMALL, "load.replay=0,0.5", "load.utilisation=0.3,0.8")),
}
