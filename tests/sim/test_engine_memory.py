"""KV memory: reservation, watermark, preemption by recompute, and what can never be served."""

from __future__ import annotations

from engine_cases import STEP_NS, Case, run


def test_admission_reserves_the_whole_prompt() -> None:
    case = Case()
    case.call(16, 2)  # four blocks, a fifth for the second token's KV
    case.call(16, 2)
    result = run(case, blocks=9, max_num_batched_tokens=8, max_num_seqs=4)
    # The second fits (4 + 4 of 9) while the first is in its prefill.
    assert result.ns("admitted_ns") == [0, 2 * STEP_NS]
    result = run(case, blocks=7, max_num_batched_tokens=8, max_num_seqs=4)
    assert result.ns("admitted_ns") == [0, 3 * STEP_NS]
    assert not any(result.ns("preemptions"))


def test_the_watermark_keeps_blocks_free_at_admission() -> None:
    def admitted(ratio: float) -> list[int]:
        case = Case()
        case.call(16, 3)
        case.call(16, 3)
        return run(case, blocks=10, watermark_blocks_ratio=ratio, prefix_cache="none").ns("admitted_ns")

    assert admitted(0.2) == [0, 0]  # 4 + 4 blocks and two to spare
    assert admitted(0.3) == [0, 3 * STEP_NS]


def test_decoding_preempts_the_last_admitted_and_recomputes_it() -> None:
    case = Case()
    case.call(8, 6)
    case.call(8, 6)
    result = run(case, blocks=5, prefix_cache="none")
    first, second = result.requests[0], result.requests[1]
    # Two blocks each at first. The first step of decoding needs two more, and there is one.
    assert (first["preemptions"], second["preemptions"]) == (0, 1)
    assert [d["stage"] for d in result.tables["decisions"] if d["action"] == "preempt"] == [1]
    # It had emitted one token, whose KV is computed with the prompt's the second time.
    assert (second["prefilled_tokens"], second["recomputed_tokens"]) == (8 + 9, 9)
    assert first["finished_ns"] == 6 * STEP_NS
    assert second["admitted_ns"] == 0
    assert second["first_token_ns"] == STEP_NS
    assert (
        second["finished_ns"] == (6 + 5) * STEP_NS
    )  # five more tokens, the first of them by the second prefill
    gaps = [d["value"] for d in result.tables["decisions"] if d["action"] == "gap"]
    assert gaps == [6 * STEP_NS]


def test_recomputed_tokens_that_are_still_cached_are_no_hits() -> None:
    case = Case()
    case.call(8, 6, units=[1, 2])
    case.call(8, 6, units=[3, 4])
    result = run(case, blocks=5)
    second = result.requests[1]
    assert second["preemptions"] == 1
    assert second["gpu_hit_tokens"] == 0
    assert second["prefilled_tokens"] == 8 + second["recomputed_tokens"]
    assert second["recomputed_tokens"] <= 9


def test_a_chunk_that_was_lost_is_counted_once_and_the_rest_is_no_recompute() -> None:
    case = Case()
    case.call(4, 20)
    case.call(24, 2)
    # The second's prompt takes six blocks at once; the first decodes into what is left and preempts it in its prefill.
    result = run(case, blocks=8, max_num_batched_tokens=5, max_num_seqs=2, prefix_cache="none")
    second = result.requests[1]
    assert second["preemptions"] == 1
    assert second["recomputed_tokens"] > 0
    assert second["prefilled_tokens"] == 24 + second["recomputed_tokens"]
    assert second["recomputed_tokens"] < 24


def test_the_least_urgent_is_preempted_in_a_priority_queue() -> None:
    from test_engine_scheduling import ByStage

    from policies.registry import PolicySet

    case = Case()
    case.call(8, 6)
    case.call(8, 6)
    result = run(case, blocks=5, prefix_cache="none", queue="priority", policies=PolicySet(router=ByStage()))
    assert result.ns("preemptions") == [1, 0]  # later stages are more urgent


def test_a_prompt_larger_than_the_pool_is_rejected_and_its_workflow_is_incomplete() -> None:
    case = Case()
    whole = case.call(41, 1)  # eleven blocks
    case.more(4, 1, parents=[whole])
    case.call(40, 1)  # ten
    case.call(37, 4)  # the last token's KV is never written: 40 tokens
    case.call(37, 5)
    result = run(case, blocks=10)
    assert result.status() == ["rejected", "finished", "finished", "rejected"]
    assert set(result.requests) == {0, 2, 3, 4}  # what would have followed has no input
    assert result.requests[0]["reason"] == "larger than the KV pool"
    assert (result.stats.rejected, result.stats.completed, result.stats.incomplete) == (2, 2, 2)
    workflows = sorted(result.tables["workflows"], key=lambda w: w["workflow"])
    assert [(w["rejected"], w["finished_ns"] >= 0) for w in workflows] == [
        (1, False),
        (0, True),
        (0, True),
        (1, False),
    ]


def test_the_watermark_counts_against_what_can_ever_be_served() -> None:
    case = Case()
    case.call(36, 1)
    case.call(37, 1)
    assert run(case, blocks=10, watermark_blocks_ratio=0.1).status() == ["finished", "rejected"]


def test_prompt_and_output_longer_than_the_model_are_rejected() -> None:
    case = Case()
    case.call(30, 10)
    case.call(30, 11)
    result = run(case, max_model_len=40)
    assert result.status() == ["finished", "rejected"]
    assert result.requests[1]["reason"] == "longer than max_model_len"
    assert result.requests[1]["prefilled_tokens"] == 0
