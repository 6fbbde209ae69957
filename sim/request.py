"""A request on a replica: the mutable part of an LLM stage."""

from __future__ import annotations

from sim.kv.radix import Node


class Request:
    """State of one LLM stage from its release to its end. Mutated by the engine that serves it.

    number          the host's number for it: the stage's, but a fill of a stage has one of its own
    fill            runs ahead of the canonical flow; `low` then queues behind it and gives its KV back first
    replica         index of the engine that has it
    ended           finished, rejected or aborted
    share_ps        part of the steps it was in, by tokens, once it ended (engines that keep shares)
    target_tokens   tokens to prefill: the prompt, plus what was generated before a preemption
    computed_tokens tokens whose KV exists (reused or prefilled)
    private_blocks  KV blocks the request holds itself, outside the prefix tree
    unreached_tokens  tokens of its last target that it had not prefilled when it was preempted
    node, node_blocks   deepest tree node it pins, and the leading blocks that are in the tree
    join_step       decode-step counter at which it joined the decode batch; -1 outside
    version         incremented at preemption, so that stale heap entries are recognised
    """

    __slots__ = (
        "accepted_tokens", "admitted_ps", "agent", "computed_tokens", "drafted_tokens", "ended", "fill",
        "first_token_ps", "generated", "gpu_hit_tokens", "host_hit_tokens", "join_step", "last_token_ps", "low",
        "node", "node_blocks", "number", "output_tokens", "preemptions", "prefilled_tokens", "priority",
        "private_blocks", "prompt_tokens", "recomputed_tokens", "released_ps", "replica", "sequence", "share_ps",
        "stage", "target_tokens", "unreached_tokens", "version", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        stage: int,
        workflow: int,
        agent: int,
        prompt_tokens: int,
        output_tokens: int,
        released_ps: int,
        priority: int,
        *,
        number: int = -1,
        fill: bool = False,
        low: bool = False,
    ) -> None:
        self.stage = stage
        self.number = stage if number < 0 else number
        self.fill = fill
        self.low = low
        self.ended = False
        self.replica = -1
        self.share_ps = 0
        self.workflow = workflow
        self.agent = agent
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.released_ps = released_ps
        self.priority = priority
        self.sequence = 0  # order of release on its replica
        self.target_tokens = prompt_tokens
        self.computed_tokens = 0
        self.private_blocks = 0
        self.node: Node | None = None
        self.node_blocks = 0
        self.generated = 0
        self.join_step = -1
        self.version = 0
        self.preemptions = 0
        self.admitted_ps = -1
        self.first_token_ps = -1
        self.last_token_ps = -1
        self.gpu_hit_tokens = 0
        self.host_hit_tokens = 0
        self.prefilled_tokens = 0
        self.recomputed_tokens = 0
        self.unreached_tokens = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
