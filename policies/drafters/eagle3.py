"""EAGLE-3 as a stated acceptance process with the cost of its one-layer draft model."""

from __future__ import annotations

from dataclasses import dataclass

from policies._draft_process import ModelDrafter


@dataclass(frozen=True)
class Eagle3(ModelDrafter):
    """A chain of k drafts (Li et al. 2025); acceptance is an input to sweep, not a finding.

    Measured at batch 1 on an 8B model, a step with EAGLE-3 takes 8.35 + 1.02 k ms against 7.07 ms without: 144 permille
    of a step for each draft, and 181 once.

    k                 tokens drafted a step (the paper of AgentSpec does not give it)
    rates             P(accepted | those before it are) by place in the draft, divided by '/', the last one repeated;
                      an assumption
    step_permille     one pass of the draft model, in thousandths of a decode step of the same batch
    fixed_permille    what a step that drafts takes once more, likewise
    weight_permille   its weights, in thousandths of the target's
    kv_permille       its KV of a token, likewise: one layer of 32
    """

    label = "EAGLE-3 (stated acceptance)"
    source = "Li et al. 2025"

    k: int = 3
    rates: str = "0.7"
    step_permille: int = 144
    fixed_permille: int = 181
    weight_permille: int = 50
    kv_permille: int = 31
