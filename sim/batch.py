"""The decode batch, held so that a step costs the same whatever its size.

Every decoding sequence gains one token a step, so all of them are described by one counter: a sequence
finishes when the counter reaches a number known at its join, its context is the counter less a constant, and
it needs a new KV block when the counter has a certain residue modulo the block size. Sums and residues are
kept, not sequences.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.request import Request


class DecodeBatch:
    """Sequences that decode. `step` counts decode steps of the replica. Mutated by join, leave, advance.

    seqs            sequences in the batch
    context_tokens  KV tokens the next step reads, summed (each includes the token it writes)
    phases[r]       sequences that need a new KV block in a step with step % block_tokens == r
    """

    __slots__ = ("_block_tokens", "_finish", "context_tokens", "phases", "seqs", "step")

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.step = 0
        self.seqs = 0
        self.context_tokens = 0
        self.phases = [0] * block_tokens
        self._finish: list[tuple[int, int, int, Request]] = []

    def join(self, request: Request) -> None:
        """Add a request with `generated` (at least 1) tokens, and KV for all but the last. Mutates."""
        request.join_step = self.step
        kv_tokens = request.computed_tokens
        self.seqs += 1
        self.context_tokens += kv_tokens + 1
        self.phases[(self.step - kv_tokens) % self._block_tokens] += 1
        finish = self.step + request.output_tokens - request.generated
        heappush(self._finish, (finish, request.sequence, request.version, request))

    def leave(self, request: Request) -> None:
        """Remove a request, bringing its counters up to date. Mutates batch and request."""
        steps = self.step - request.join_step
        request.generated += steps
        self.phases[(request.join_step - request.computed_tokens) % self._block_tokens] -= 1
        request.computed_tokens += steps
        self.seqs -= 1
        self.context_tokens -= request.computed_tokens + 1
        request.join_step = -1

    def steps_to_finish(self) -> int:
        """Return the steps until the next request finishes; large when none does. Drops stale entries."""
        heap = self._finish
        while heap:
            finish, _, version, request = heap[0]
            if version == request.version and request.join_step >= 0:
                return finish - self.step
            heappop(heap)
        return 1 << 60

    def pop_finished(self) -> list[Request]:
        """Remove and return the requests that finish at the present step, in order of release. Mutates."""
        out: list[Request] = []
        heap = self._finish
        while heap and heap[0][0] <= self.step:
            _, _, version, request = heappop(heap)
            if version == request.version and request.join_step >= 0:
                self.leave(request)
                out.append(request)
        return out

    def new_blocks(self, steps: int) -> int:
        """Return the KV blocks the next `steps` steps allocate. Does not mutate."""
        size = self._block_tokens
        cycles, rest = divmod(steps, size)
        total = cycles * self.seqs
        if rest:
            first = self.step % size
            phases = self.phases
            last = first + rest
            total += (
                sum(phases[first:last]) if last <= size else sum(phases[first:]) + sum(phases[: last - size])
            )
        return total

    def steps_within(self, blocks: int, limit: int) -> int:
        """Return the most steps, at most `limit`, that allocate at most `blocks`. Does not mutate."""
        if self.seqs == 0:
            return limit
        size = self._block_tokens
        if (limit // size + 1) * self.seqs <= blocks or self.new_blocks(limit) <= blocks:
            return limit
        cycles, left = divmod(blocks, self.seqs)
        at, phases = self.step % size, self.phases
        steps = cycles * size
        while phases[at] <= left:
            left -= phases[at]
            steps += 1
            at = at + 1 if at + 1 < size else 0
        return min(steps, limit)

    def advance(self, steps: int) -> None:
        """Let every sequence gain `steps` tokens. Mutates."""
        self.step += steps
        self.context_tokens += steps * self.seqs
