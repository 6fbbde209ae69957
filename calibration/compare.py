"""Two profiles side by side: what the same steps cost in each."""

from __future__ import annotations

from policies.costs import Profile

# (label, tokens, sequences, context tokens, (chunk, prefix))
_STEPS: tuple[tuple[str, int, int, int, tuple[int, int]], ...] = (
    *((f"decode {b} x 2,048", b, b, 2048 * b, (0, 0)) for b in (1, 8, 32, 64, 128, 256)),
    *((f"decode {b} x 16,384", b, b, 16384 * b, (0, 0)) for b in (1, 16, 64)),
    *((f"prefill {n:,}", n, 1, 0, (n, 0)) for n in (128, 512, 2048, 8192)),
    ("prefill 512 after 16,384", 512, 1, 0, (512, 16384)),
    *((f"mixed 2,048 + {b} x 2,048", 2048 + b, b + 1, 2048 * b, (2048, 0)) for b in (16, 128)),
)


def step_ps(p: Profile, tokens: int, seqs: int, context: int, chunk: tuple[int, int]) -> int:
    """Return the price of a step with one prefill chunk (tokens, prefix), or none (0, 0), in ps."""
    return p.step_ps(tokens, seqs, context) + (p.chunk_attention_ps(*chunk) if chunk[0] else 0)


def compare(a: Profile, b: Profile) -> str:
    """Return a table: each step's price in both, ms, and by how much b differs; then what else differs."""
    lines = [f"a  {a.name}   {a.identity['timing']}", f"b  {b.name}   {b.identity['timing']}", ""]
    lines.append(f"{'step, engine included':28}{'a ms':>10}{'b ms':>10}{'b against a':>14}")
    for label, tokens, seqs, context, chunk in _STEPS:
        one, two = (step_ps(p, tokens, seqs, context, chunk) for p in (a, b))
        lines.append(f"{label:28}{one / 1e9:10.3f}{two / 1e9:10.3f}{100 * (two / one - 1):+13.1f}%")
    lines.append("")
    for field, unit, scale in (
        ("kv_read_ps_per_token", "ns a KV token", 1e3),
        ("overhead_ps", "us of engine a step", 1e6),
        ("overhead_per_seq_ps", "us of engine a sequence", 1e6),
        ("http_overhead_ps", "us of HTTP a request", 1e6),
        ("weight_bytes", "GiB of weights a GPU", 2.0**30),
        ("kv_bytes_per_token", "KiB of KV a token", 2.0**10),
    ):
        one, two = getattr(a, field) / scale, getattr(b, field) / scale
        if one != two:
            lines.append(f"{unit:28}{one:10.3f}{two:10.3f}")
    for name, p in (("a", a), ("b", b)):
        e = p.error
        if "mape_percent" in e:
            lines.append(
                f"{name} states an error of {e['mape_percent']} % (p95 {e.get('p95_percent', '?')} %)"
            )
    return "\n".join(lines)
