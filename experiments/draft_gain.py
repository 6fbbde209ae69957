"""What drafting gained in each step: its time against that of plain decoding for the same tokens.

A step that verifies drafts emits one token a sequence and those accepted. Plain decoding would have emitted them in as
many steps of the same batch as tokens a sequence; each is priced from the profile, in the engine's graphs. Only steps
without prefill are compared, since the others mix both costs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from policies.api import Bucketer
from policies.costs import Profile
from policies.views import BatchShape, HostInfo
from sim.pricing import StepPrices
from traces.runlog import RunLog

EDGES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)  # bins of sequences that decode together
Price = Callable[[int, int], int]


def plain_price(profile: Profile, bucketer: Bucketer, max_num_seqs: int, max_tokens: int) -> Price:  # type: ignore[type-arg]
    """Return (sequences, context tokens) -> duration in ps of a step that decodes one token a sequence."""
    host = HostInfo(profile, 16, 1 << 20, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_tokens)
    prices = StepPrices(profile, max_tokens, bucketer, host)

    def price(seqs: int, context_tokens: int) -> int:
        return prices.step(BatchShape(seqs, 1, seqs, 0, context_tokens), 0)[0]

    return price


def by_batch(run: RunLog, price: Price) -> NDArray[np.float64]:
    """Return float64[bins, 5]: steps, sequences, drafted tokens, ns spent, and ns plain decoding would have spent."""
    decode, prefill, drafted, accepted, duration, context = run.columns(
        "steps",
        "decode_seqs",
        "prefill_seqs",
        "drafted_tokens",
        "accepted_tokens",
        "duration_ns",
        "context_tokens",
    )
    keep = (decode > 0) & (prefill == 0)
    decode, drafted, accepted, duration, context = (
        c[keep].astype(np.int64) for c in (decode, drafted, accepted, duration, context)
    )
    plain = np.array(
        [price(b, s) for b, s in zip(decode.tolist(), context.tolist(), strict=True)], dtype=np.float64
    )
    instead = plain / 1000 * (decode + accepted) / np.maximum(decode, 1)
    where = np.digitize(decode, EDGES) - 1
    columns = (np.ones(len(where)), decode, drafted, duration, instead)
    return np.stack([np.bincount(where, c, minlength=len(EDGES)) for c in columns], axis=1)
