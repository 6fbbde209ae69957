"""The measured closed-loop rows of `data/serving.csv` as cases: TP sizes, concurrencies and lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from calibration import constants as data
from calibration.evaluation import Case, Floats, steady
from calibration.evaluation_roofline import roofline
from calibration.predict import predict_closed_loop
from calibration.predict_client import ClosedLoop
from calibration.predict_names import profile
from calibration.predict_serving import served, serving
from calibration.predict_table import HABITS, Habit, Settings, engine_of, habit_of
from policies.costs import Profile
from traces.errors import InputError

SERVING = data.DATA / "serving.csv"
# A client that waits this many prompts' own time for a first token met a full KV pool, not a step.
SATURATED_PROMPTS = 6.0


def rows() -> pd.DataFrame:
    """Return the measured rows, with `saturated` where the KV pool was full."""
    table = pd.read_csv(SERVING)
    alone = np.array(
        [_prompt_ms(named_profile(r.model, r.gpu, r.precision, r.tp), r.isl) for r in table.itertuples()]
    )
    # The first round of ten waits for half of all prompts; what is beyond that is queueing for memory.
    usual = alone * (SATURATED_PROMPTS + table.concurrency.to_numpy() / 20)
    return table.assign(saturated=table.ttft_ms.to_numpy() > usual)


def cases() -> list[Case]:
    """Return every row as a case, in order; saturated rows are a group of their own."""
    out = []
    for r in rows().itertuples():
        name = f"{r.model} {r.precision} {r.gpu}"
        fitted = _fitted(r.gpu, int(r.tp), int(r.isl)) and not r.saturated
        priced = named_profile(r.model, r.gpu, r.precision, r.tp)
        features = _features(priced, int(r.isl), int(r.osl), int(r.concurrency))
        measured = steady(float(r.ttft_ms), float(r.tpot_ms), int(r.osl), int(r.concurrency))
        habit = habit_of(Settings(), str(r.precision))
        out.append(
            Case(
                group=f"{name}{', KV pool full' if r.saturated else ''}",
                contest="" if r.saturated else f"{name} {r.isl}+{r.osl}",
                gpus=int(r.tp),
                part=f"tp {r.tp}" if r.gpu == "H200" else f"isl {r.isl}",
                measured=measured,
                predicted={
                    "foreserve": _closed(priced, r.gpu, int(r.isl), int(r.osl), int(r.concurrency), habit),
                    "catalogue": _closed(
                        named_profile(r.model, r.gpu, r.precision, r.tp, "catalogue"),
                        r.gpu, int(r.isl), int(r.osl), int(r.concurrency), habit,
                    ),
                    "roofline": _closed(
                        roofline(r.model, r.gpu, r.precision, int(r.tp)),
                        r.gpu, int(r.isl), int(r.osl), int(r.concurrency), replace(habit, scheduling="profile"),
                    ),
                },
                features=features,
                tokens=int(r.osl),
                concurrency=float(r.concurrency),
                fitted=bool(fitted),
            )
        )  # fmt: skip
    return out


def flag_range(every: int = 4) -> dict[str, dict[str, dict[str, float]]]:
    """Return, for flags that the rows do not state, the mean predicted figure over that of the chosen habit.

    {rows: {flag setting: {metric: ratio}}}, over every `every`-th row that is not saturated.
    """
    table = rows()
    table = table[~table.saturated]
    out: dict[str, dict[str, dict[str, float]]] = {}
    for gpu, group in table.groupby("gpu"):
        chosen = group.iloc[::every]
        for r in chosen.itertuples():
            habit = habit_of(Settings(), str(r.precision))
            variants = _variants(habit)
            priced = named_profile(r.model, r.gpu, r.precision, r.tp)
            shape = (priced, str(r.gpu), int(r.isl), int(r.osl), int(r.concurrency))
            base = _closed(*shape, habit)
            for label, variant in variants.items():
                ratio = _closed(*shape, variant) / base
                found = out.setdefault(f"{gpu} {r.model}", {}).setdefault(
                    label, {"ttft_ms": 0.0, "tpot_ms": 0.0}
                )
                found["ttft_ms"] += float(ratio[0]) / len(chosen)
                found["tpot_ms"] += float(ratio[1]) / len(chosen)
    return {g: {f: {m: round(x, 3) for m, x in v.items()} for f, v in by.items()} for g, by in out.items()}


def named_profile(model: str, gpu: str, precision: str, tp: int, pricing: str = "plain") -> Profile:
    """Return the profile that predictions of a row use."""
    return profile(str(model), str(gpu), str(precision), int(tp), pricing).profile


def _variants(habit: Habit) -> dict[str, Habit]:
    budget = {
        f"max_num_batched_tokens={n}": replace(habit, max_num_batched_tokens=n) for n in (2048, 8192, 16384)
    }
    return {
        **budget,
        "synchronous scheduling": replace(habit, scheduling="sync"),
        "asynchronous scheduling": replace(habit, scheduling="async"),
        "equal lengths": replace(habit, spread_permille=0),
        "lengths ± 50 %": replace(habit, spread_permille=500),
        "habit of the other rows": HABITS["mixed" if habit.name == "equal" else "equal"],
    }


def _closed(priced: Profile, gpu: str, isl: int, osl: int, concurrency: int, habit: Habit) -> Floats:
    client = ClosedLoop(isl, osl, concurrency, spread_permille=habit.spread_permille)
    try:
        seen = predict_closed_loop(priced, client, engine_of(gpu, habit), how=serving(habit.scheduling))
    except InputError:
        return np.full(4, np.nan)
    return steady(float(seen.ttft_ms.mean or np.nan), float(seen.tpot_ms.mean or np.nan), osl, concurrency)


def _fitted(gpu: str, tp: int, isl: int) -> bool:
    # H200: fp8 weights on TP 1, collectives on TP 2. H100: engine time on 1,024-token prompts (overhead.py).
    return tp in (1, 2) if gpu == "H200" else isl == 1024


def _features(priced: Profile, isl: int, osl: int, concurrency: int) -> Floats:
    weights = priced.weight_bytes / 1e9
    kv = priced.kv_bytes_per_token * (isl + osl / 2) * concurrency / 1e9
    prefill = weights * isl / 1024
    return np.array([1.0, weights, kv, concurrency, prefill, prefill * concurrency * 1024 / osl / 100])


def _prompt_ms(priced: Profile, isl: int) -> float:
    alone, _ = served(priced, serving("sync"))
    return alone.step_ps(int(isl), 1, 0, int(isl) ** 2 // 2) / 1e9
