"""Multi-token prediction as a stated acceptance process with the cost of the model's own MTP module."""

from __future__ import annotations

from dataclasses import dataclass

from policies._draft_process import ModelDrafter


@dataclass(frozen=True)
class Mtp(ModelDrafter):
    """The module trained with the target, used k times in a row; acceptance is an input to sweep, not a finding.

    Costs by arithmetic for a dense 7B model of 36 layers with a vocabulary of 152k: a pass reads one layer, the
    projection of two hidden states and the output head, 0.84 of the 7.2 billion weights that a decode step reads.

    k                 tokens drafted a step
    rates             P(accepted | those before it are) by place in the draft, divided by '/', the last one repeated;
                      an assumption
    step_permille     one pass of the module, in thousandths of a decode step of the same batch
    fixed_permille    what a step that drafts takes once more, likewise
    weight_permille   its weights, in thousandths of the target's: the head is shared
    kv_permille       its KV of a token, likewise: one layer of 36
    """

    label = "multi-token prediction (stated acceptance)"
    source = "DeepSeek-AI 2024; Xia et al. 2025"

    k: int = 1
    rates: str = "0.8"
    step_permille: int = 117
    fixed_permille: int = 0
    weight_permille: int = 28
    kv_permille: int = 28
