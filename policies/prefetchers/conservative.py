"""Prefetch into space that holds nothing of value, over a link that is idle."""

from __future__ import annotations

from dataclasses import dataclass

from policies._pbkv_prefetch import ValuePrefetcher


@dataclass(frozen=True)
class Conservative(ValuePrefetcher):
    """Displaces no active cache: S = min(free + retired, bandwidth * step), on batches that decode only.

    The host keeps the running averages of bandwidth and step, and asks on such batches alone. Source: PBKV, 4.3.

    access      literal: agents that read the node; inherit: and those that are passed what these read
    passes      with access=inherit: all, or pairs such as planner>coder,coder>tester
    unfitting   what follows a node too large for what is left: skip it (and all below it), or stop
    """

    label = "conservative prefetch (PBKV)"
    source = "PBKV section 4.3"
