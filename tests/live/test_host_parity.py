"""Simulator and live host, block by block: the simulator's nodes are runs of blocks, the live host's are single ones.

The pool is `fake_pool`'s; `external_tests/vllm` compares with vLLM itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_pool import FakePool

from calibration import parity
from live.script import Script, ScriptRequest, contents_of, renumbered
from live.vllm.copies import LoadReport
from live.vllm.host import EvictionHost
from live.vllm.settings import EvictionSettings
from policies.evictors.lookahead import Lookahead
from policies.laws import toy_host
from policies.predictors.markov import Markov
from policies.views import BatchShape
from traces import draws
from traces.errors import InputError

SIZE = 4
AGENTS = ("planner", "coder", "tester")
# Equal whatever the grain of nodes: what these rank by is the same for a run of blocks and for each block of it.
GRAINLESS = ("kvflow", "lfu", "lifecycle", "lookahead", "lru")


def script(seed: int, turns: int = 60) -> Script:
    """Workflows of a few agents over shared heads; a turn continues what its workflow said, or starts a side prompt."""

    def below(n: int, what: str, *ids: int) -> int:
        return draws.bits(seed, f"parity {what}", *ids) % n

    heads = [[10 * h + below(3, "head", h, i) for i in range(9 + 5 * h)] for h in range(3)]
    history: dict[int, list[int]] = {}
    rows: list[ScriptRequest] = []
    for turn in range(turns):
        workflow = turn // 8 + below(3, "workflow", turn)
        said = history.get(workflow, [])
        if not 0 < len(said) < 90:
            said = list(heads[below(3, "which", workflow)])
        if below(4, "side", turn) == 0:
            said = list(heads[below(3, "other", turn)])
        prompt = said + [100 + turn * 8 + i for i in range(1 + below(6, "new", turn))]
        if len(prompt) % SIZE == 0:
            prompt.append(7)
        output = [1000 + turn * 16 + i for i in range(1 + below(12, "output", turn))]
        if below(4, "side", turn):
            history[workflow] = prompt + output
        agent = AGENTS[below(3, "agent", turn)]
        rows.append(ScriptRequest(workflow, 0, agent, tuple(prompt), tuple(output), finished=False))
    return renumbered(rows, SIZE)


def played(
    script: Script, evictor: str, blocks: int, directory: Path, predictor: str = "none", **tier: Any
) -> Path:
    """Serve the script on a fake pool in the hands of the host, one token a step; return the run's directory."""
    given = EvictionSettings(
        evictor=evictor,
        predictor=predictor,
        agents=script.agents,
        log_dir=str(directory),
        call_ms_max=0,
        **tier,
    )
    host, pool = EvictionHost(given), FakePool(blocks)
    pool.hash_block_size = SIZE
    host.bind(
        pool,
        replace(
            toy_host(),
            block_tokens=SIZE,
            capacity_tokens=blocks * SIZE,
            agents=script.agents,
            host_capacity_tokens=given.host_blocks * SIZE,
        ),
    )
    for r in script.requests:
        tokens = [*r.prompt, *r.output]
        hashes = [bytes.fromhex(c) for c in contents_of(tokens, SIZE)]
        request = SimpleNamespace(
            request_id=str(r.stage),
            sampling_params=SimpleNamespace(
                extra_args={
                    "wf_id": r.workflow,
                    "stage": r.stage,
                    "agent": r.agent,
                    "wf_finished": int(r.finished),
                }
            ),
            num_prompt_tokens=len(r.prompt),
            num_tokens=len(r.prompt),
            num_output_tokens=len(r.output),
            num_preemptions=0,
            status=SimpleNamespace(name="FINISHED_LENGTH_CAPPED"),
            block_hashes=hashes,
        )
        host.arrived(request)
        held = []
        for key in hashes[: (len(r.prompt) - 1) // SIZE]:
            copies = pool.cached.get(key)
            if copies is None:
                break
            held.append(next(iter(copies.values())))
        known = len(held)
        external = host.offered(request, known * SIZE)
        pool.touch(held)
        for computed in range(len(r.prompt), len(tokens)):
            held = held + pool.get_new_blocks(max(0, -(-computed // SIZE) - len(held)))
            pool.cache_full_blocks(request, held, known, computed // SIZE)
            known = computed // SIZE
            request.num_tokens = computed + 1
            shape = BatchShape(1, 1, 1, 0, computed)
            if computed == len(r.prompt):
                host.admitted(request, [b.block_id for b in held], external)
                shape = None
            copies = host.step({request.request_id: 1}, lambda _: 0, shape)
            if copies.loads:
                host.landed(LoadReport(len(copies.loads)))
            host.tree.check_integrity()
        host.ended(request)
        pool.free_blocks(reversed(held))
    host.shutdown()
    return directory


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("evictor", GRAINLESS)
def test_both_hosts_name_the_same_victims_in_the_same_order(evictor: str, seed: int, tmp_path: Path) -> None:
    given = script(seed)
    live = played(given, evictor, 34, tmp_path / "live", predictor="markov")
    outcome = parity.compare(given, live)
    assert outcome.equal, outcome
    assert outcome.victims > 100
    assert outcome.hit_tokens > 200


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("prefetcher", ["none", "conservative", "aggressive"])
def test_both_hosts_load_back_and_prefetch_the_same_contents(
    prefetcher: str, seed: int, tmp_path: Path
) -> None:
    given = script(seed)
    # The host holds all there is: what decoding fills is stored block by block here, and at the end in the simulator,
    # so that a full host would hold another's while a request decodes.
    blocks = 400 if prefetcher != "none" else 40 + 20 * (seed % 3)
    live = played(
        given, "lookahead", 34, tmp_path / "live", "markov",
        host_blocks=blocks, prefetcher=prefetcher, load_back="never" if seed % 2 and prefetcher != "none" else "always",
    )  # fmt: skip
    outcome = parity.compare(given, live)
    assert outcome.equal, outcome
    assert outcome.host_hit_tokens + outcome.prefetched > 20, outcome
    assert outcome.victims > 100


def test_the_comparison_sees_another_prefetcher(tmp_path: Path) -> None:
    given = script(1)
    of = [
        parity.live_decisions(
            given, played(given, "lookahead", 34, tmp_path / p, "markov", host_blocks=90, prefetcher=p)
        )
        for p in ("none", "conservative", "aggressive")
    ]
    assert len({d.prefetched for d in of}) == 3
    assert of[1].prefetched
    assert len({d.host_hit_tokens for d in of}) > 1


def test_the_comparison_tells_policies_apart(tmp_path: Path) -> None:
    given = script(0)
    of = {e: parity.live_decisions(given, played(given, e, 34, tmp_path / e, "markov")) for e in GRAINLESS}
    assert len({d.victims for d in of.values()}) >= len(GRAINLESS) - 1
    assert len({d.hit_tokens for d in of.values()}) > 1


def test_forecasts_decide_who_leaves(tmp_path: Path) -> None:
    given = script(0)
    with_them = parity.simulated_decisions(given, 34, Lookahead(), Markov())
    without = parity.simulated_decisions(given, 34, Lookahead())
    assert with_them.victims != without.victims


def test_the_engines_own_order_is_lru(tmp_path: Path) -> None:
    given = script(1)
    outcome = parity.compare(given, played(given, "stock", 34, tmp_path / "live"))
    assert outcome.equal, outcome


@pytest.mark.parametrize("evictor", ["gdsf", "hits_per_token"])
def test_evictors_that_weigh_nodes_by_size_decide_by_the_grain_of_nodes(evictor: str, tmp_path: Path) -> None:
    """A known difference (docs/adr/0009): for whoever uses a node's size, a run of blocks is not its blocks."""
    given = script(0)
    outcome = parity.compare(given, played(given, evictor, 34, tmp_path / "live", "markov"))
    assert outcome.first_difference >= 0
    assert not outcome.notes


def test_a_run_of_another_script_is_refused(tmp_path: Path) -> None:
    live = played(script(2, turns=40), "lru", 40, tmp_path / "live")
    with pytest.raises(InputError, match="another script"):
        parity.compare(script(2, turns=50), live)
    with pytest.raises(InputError, match="no live run"):
        parity.compare(script(2), tmp_path / "nowhere")
