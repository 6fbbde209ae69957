"""What a step costs on one replica: the profile's price at the width the bucketer's graph executes."""

from __future__ import annotations

from typing import Any

from policies.api import Bucketer, HostInfo
from policies.costs import Profile
from policies.views import BatchShape, GraphChoice


class StepPrices:
    """Prices steps in ps. `step` may mutate the bucketer's state (lazy capture); nothing else does.

    growth_ps   by how much each context token that a sequence gains lengthens the next step
    scheduled_ahead: the engine's time a sequence is hidden (asynchronous scheduling).
    """

    def __init__(
        self,
        profile: Profile,
        max_tokens: int,
        bucketer: Bucketer[Any],
        host: HostInfo,
        *,
        scheduled_ahead: bool = False,
    ) -> None:
        self._profile = profile
        self._bucketer = bucketer
        self._state = bucketer.new_state(host)
        self._captured = bucketer.plan(host)
        self._eager = not bucketer.active()
        self._held: dict[tuple[int, bool], tuple[int, int, GraphChoice]] = {}
        self._max_tokens = max_tokens
        self._linear = profile.linear_table(max_tokens)
        # The step's launch stays; what grows with the batch hides behind the step before.
        self._per_seq_ps = profile.per_seq_ps + (0 if scheduled_ahead else profile.overhead_per_seq_ps)
        self._overhead_ps = profile.overhead_ps
        self._eager_launch_ps = profile.eager_launch_ps
        self.growth_ps = profile.kv_read_ps_per_token

    def attention_ps(self, chunk_tokens: int, prefix_tokens: int) -> int:
        """Return the attention cost of one prefill chunk."""
        return self._profile.chunk_attention_ps(chunk_tokens, prefix_tokens)

    def step(
        self, seqs: int, width: int, tokens: int, prefill_seqs: int, context_tokens: int, extra_ps: int
    ) -> tuple[int, int]:
        """Return (duration in ps, key of the graph or 0) of a step.

        width: new tokens of each decoding sequence, 0 if they differ or there is a prefill. tokens: new tokens in
        all. context_tokens: KV tokens that decoding and verifying sequences read. extra_ps: prefill attention and
        drafting. Kernel launches of an eager step run ahead of the GPU, so
        that they show only where they take longer than the kernels.
        """
        rest_ps = self.growth_ps * context_tokens + self._per_seq_ps * (seqs + prefill_seqs)
        rest_ps += self._overhead_ps + extra_ps
        if self._eager:
            return max(self._linear_ps(tokens) + rest_ps, self._eager_launch_ps), 0
        choice = self._choice(seqs, width, tokens, prefill_seqs, context_tokens)
        work_ps = self._linear_ps(choice.executed) + rest_ps
        if choice.key is None:
            return max(work_ps, self._eager_launch_ps), 0
        work_ps += self._profile.graph_launch_ps
        return (work_ps + self._profile.graph_build_ps if choice.build else work_ps), choice.key

    def _choice(
        self, seqs: int, width: int, tokens: int, prefill_seqs: int, context_tokens: int
    ) -> GraphChoice:
        """Return the bucketer's choice, asking only where an earlier one does not hold."""
        kind = (width, prefill_seqs > 0)
        held = self._held.get(kind)
        if held is not None and held[0] <= tokens <= held[1]:
            return held[2]
        shape = BatchShape(seqs, width, tokens, prefill_seqs, context_tokens)
        choice = self._bucketer.pick(self._state, self._captured, shape)
        if not choice.build and choice.holds_until_tokens >= tokens:
            self._held[kind] = (tokens, choice.holds_until_tokens, choice)
        return choice

    def _linear_ps(self, tokens: int) -> int:
        # A graph may be wider than the token budget.
        return self._linear[tokens] if tokens <= self._max_tokens else self._profile.linear_ps_at(tokens)
