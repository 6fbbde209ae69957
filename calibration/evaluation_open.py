"""Open-loop runs of shared-prefix chat (`data/dev/open_loop_runs.csv`) as cases: one stage of one run each.

Requests arrive evenly at the stage's rate. The users of a run send the same question again and again, so after
its first time a prompt is found in the prefix cache but for its last block. Output lengths are what was generated on
average, (E2E - TTFT) / ITL + 1: the models end some answers early. E2E therefore adds nothing to TTFT and ITL here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration import constants as data
from calibration.evaluation import Case, Floats
from calibration.evaluation_roofline import roofline
from calibration.predict import predict
from calibration.predict_names import profile
from calibration.predict_serving import Serving, serving
from policies.costs import Profile
from sim.config import EngineConfig, LoadConfig
from traces.builder import WorkloadBuilder
from traces.schema import Workload

RUNS = data.DATA / "dev" / "open_loop_runs.csv"
# The client's constant was fitted on these (evaluation_fit).
CLIENT_RUNS = frozenset({60, 61, 62, 63})
# Long enough for a steady state, short enough for a quick report.
_SECONDS = 150
_BLOCK = 16


@cache
def stages() -> pd.DataFrame:
    """Return the table of stages, with `generated_tokens`."""
    table = pd.read_csv(RUNS)
    generated = np.rint((table.e2e_ms - table.ttft_ms) / table.itl_ms).astype(int) + 1
    return table.assign(generated_tokens=np.maximum(generated, 2))


def cases() -> list[Case]:
    """Return every stage as a case, in order."""
    out = []
    for r in stages().itertuples():
        priced = profile(str(r.model), str(r.gpu), str(r.precision), int(r.tp)).profile
        measured = np.array([r.ttft_ms, r.itl_ms, r.e2e_ms, np.nan])
        out.append(
            Case(
                group=f"{'experts' if 'Scout' in str(r.model) else 'dense'}, open loop, H100",
                contest="",
                gpus=int(r.tp),
                part=f"run {r.run}",
                measured=measured,
                predicted={
                    "foreserve": stage_figures(r, priced, serving("async")),
                    "catalogue": stage_figures(
                        r,
                        profile(str(r.model), str(r.gpu), str(r.precision), int(r.tp), "catalogue").profile,
                        serving("async"),
                    ),
                    "roofline": stage_figures(
                        r, roofline(str(r.model), str(r.gpu), str(r.precision), int(r.tp)), serving("profile")
                    ),
                },
                features=np.array(
                    [
                        1.0,
                        priced.weight_bytes / 1e9,
                        r.rate_per_s * priced.weight_bytes / 1e9,
                        priced.kv_bytes_per_token * (r.system_tokens + r.question_tokens) / 1e9,
                    ]
                ),
                tokens=int(r.generated_tokens),
                concurrency=float("nan"),
                fitted=int(r.run) in CLIENT_RUNS,
            )
        )
    return out


def stage_figures(r: Any, priced: Profile, how: Serving) -> Floats:
    """Return METRICS of one stage (a row of `stages()`); throughput is not compared."""
    blocks = float(r.kv_blocks)
    engine = EngineConfig(
        max_num_batched_tokens=int(r.max_num_batched_tokens),
        max_num_seqs=int(r.max_num_seqs),
        num_gpu_blocks=int(blocks) if np.isfinite(blocks) else None,
    )
    # The engine's reported blocks are its own count: the width of KV is in it already.
    seen = predict(priced, chat(r), engine, LoadConfig(loop="open"), itl=False, how=how)
    ttft, tpot, e2e = (
        f.mean if f.mean is not None else np.nan for f in (seen.ttft_ms, seen.tpot_ms, seen.e2e_ms)
    )
    return np.array([ttft, tpot, e2e, np.nan])


def chat(r: Any) -> Workload:
    """Return the requests of one stage: users of a group share the system prompt, a user repeats its question."""
    system, question, generated, groups, users = (
        int(getattr(r, name))
        for name in ("system_tokens", "question_tokens", "generated_tokens", "groups", "users")
    )
    rate = float(r.rate_per_s)
    prompt = system + question
    builder = WorkloadBuilder("chat", _BLOCK)
    for i in range(round(rate * min(float(r.duration_s), _SECONDS))):
        builder.workflow(str(i), round(i / rate * 1e9))
        user = i % (groups * users)
        builder.llm(prompt, generated, prompt_units=_identity(user, user // users, system, prompt))
    return builder.build()


def _identity(user: int, group: int, system: int, prompt: int) -> NDArray[np.uint64]:
    shared, own = system // _BLOCK, prompt // _BLOCK - system // _BLOCK
    return np.concatenate(
        [
            (group << 20) + np.arange(shared, dtype=np.uint64),
            (1 << 40) + (user << 20) + np.arange(own, dtype=np.uint64),
        ]
    ).astype(np.uint64)
