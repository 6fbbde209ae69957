"""What a step costs on one replica: the profile's price at the width the bucketer's graph executes."""

from __future__ import annotations

from typing import Any

from policies.api import Bucketer, HostInfo
from policies.costs import Profile
from policies.views import BatchShape, GraphChoice


class StepPrices:
    """Prices steps in ps. `step` may mutate the bucketer's state (lazy capture) and `built`; nothing else does.

    scheduled_ahead: the engine's time a sequence is hidden (asynchronous scheduling).

    growth_ps      by how much each context token that a sequence gains lengthens the next step
    reads_context  the bucketer wants to know the longest context, so that every step must be asked for
    built          key of the graph that the last `step` captured on the serving path; 0 if none
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
        self.reads_context = bucketer.reads_context
        self.built = 0
        self._warm = bool(self._captured)
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

    def step(self, shape: BatchShape, extra_ps: int) -> tuple[int, int]:
        """Return (duration in ps, payload width of the graph that runs or 0) of a step.

        extra_ps: prefill attention and drafting. Kernel launches of an eager step run ahead of the GPU, so that they
        show only where they take longer than the kernels.
        """
        profile = self._profile
        rest_ps = self.growth_ps * shape.context_tokens
        rest_ps += self._per_seq_ps * (shape.decode_seqs + shape.prefill_seqs) + self._overhead_ps + extra_ps
        self.built = 0
        if self._eager:
            return max(self._linear_ps(shape.tokens) + rest_ps, self._eager_launch_ps), 0
        choice = self._choice(shape)
        work_ps = self._linear_ps(choice.active) + rest_ps
        if choice.key is None:
            return max(work_ps, self._eager_launch_ps), 0
        if choice.piecewise:
            work_ps = max(work_ps, profile.piecewise_launch_ps)
        work_ps += profile.graph_launch_ps + profile.graph_guard_ps_per_token * (
            choice.executed - choice.active
        )
        if choice.plan_update:
            work_ps += profile.graph_plan_ps
        if choice.build:
            self.built = choice.key
            work_ps += profile.graph_build_ps + (0 if self._warm else profile.graph_compile_ps)
            self._warm = True
        return work_ps, choice.active

    def _choice(self, shape: BatchShape) -> GraphChoice:
        """Return the bucketer's choice, asking only where an earlier one does not hold."""
        kind = (shape.query_tokens, shape.prefill_seqs > 0)
        tokens = shape.tokens
        held = self._held.get(kind)
        if held is not None and held[0] <= tokens <= held[1]:
            return held[2]
        choice = self._bucketer.pick(self._state, self._captured, shape)
        if not choice.build and choice.holds_until_tokens >= tokens:
            self._held[kind] = (tokens, choice.holds_until_tokens, choice)
        return choice

    def _linear_ps(self, tokens: int) -> int:
        # A graph may be wider than the token budget.
        return self._linear[tokens] if tokens <= self._max_tokens else self._profile.linear_ps_at(tokens)
