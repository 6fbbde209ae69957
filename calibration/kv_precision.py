"""The KV cache's own precision: eight bits halve its bytes."""

from __future__ import annotations

from dataclasses import replace

from policies.costs import Profile
from traces.errors import InputError, nearest

KV_PRECISIONS = ("bf16", "fp8")


def with_kv_precision(profile: Profile, kv_precision: str | None) -> Profile:
    """Return the profile with its KV cache in `kv_precision`; None and "bf16" leave it as it is.

    "fp8" halves `kv_bytes_per_token`, hence what a pool holds and what a copy to the host moves. The price of
    reading a token stays: public decode steps over an 8-bit cache were no faster than over bf16. Raises
    InputError with the nearest name.
    """
    if kv_precision is not None and kv_precision not in KV_PRECISIONS:
        raise InputError(nearest(kv_precision, KV_PRECISIONS, what="kv_precision"))
    if kv_precision in (None, "bf16") or profile.identity.get("kv_precision") == kv_precision:
        return profile
    note = "KV cache in fp8: half the bytes; reads are priced as bf16, which measured steps did not beat"
    return replace(
        profile,
        identity={**profile.identity, "kv_precision": kv_precision},
        kv_bytes_per_token=profile.kv_bytes_per_token // 2,
        provenance={**profile.provenance, "notes": [*profile.provenance.get("notes", []), note]},
    )
