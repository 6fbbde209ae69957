"""A closed loop of equal requests through a profile: the smallest model of a benchmark client and vLLM's
scheduler.

`concurrency` clients each keep one request of `isl` prompt and `osl` output tokens in flight. A step serves
all decodes, then prefill chunks under the token budget, first come first served. It starts with evenly
spread progress, as a benchmark runs after its first wave.
"""

from __future__ import annotations

from collections import deque

from policies.costs import Profile


def closed_loop_tpot_ps(
    profile: Profile, isl: int, osl: int, concurrency: int, *, max_num_batched_tokens: int = 8192
) -> float:
    """Return the mean time per output token, (last token - first token) / (osl - 1), in steady state, in ps.

    Taken over one request of each client; the KV pool is large enough. `osl` is at least 2.
    """
    clock, steps, finished, total = 0, 0, 0, 0
    # (clock at the first token or None while warming up, step in which the request ends); oldest first.
    decoding: deque[tuple[int | None, int]] = deque()
    waiting: deque[int] = deque()
    context = 0
    for i in reversed(range(concurrency)):
        done = max(i * osl // concurrency, 1)
        decoding.append((None, osl - done))
        context += isl + done
    while finished < concurrency:
        budget = max_num_batched_tokens - len(decoding)
        tokens, seqs, pairs, started = len(decoding), len(decoding), 0, 0
        while waiting and budget > 0:
            left = waiting.popleft()
            chunk, prefix = min(left, budget), isl - left
            budget -= chunk
            tokens += chunk
            seqs += 1
            pairs += chunk * (2 * prefix + chunk) // 2
            if chunk < left:
                waiting.appendleft(left - chunk)
            else:
                started += 1
        clock += profile.step_ps(tokens, seqs, context, pairs)
        steps += 1
        context += len(decoding)
        while decoding and decoding[0][1] <= steps:
            first, _ = decoding.popleft()
            context -= isl + osl
            waiting.append(isl)
            if first is not None:
                finished += 1
                total += clock - first
        for _ in range(started):
            decoding.append((clock, steps + osl - 1))
            context += isl + 1
    return total / (finished * (osl - 1))
