"""What a suffix automaton proposes: AgentSpec's consensus of the longest match, SuffixDecoding's frequent path.

Written like `_draft_automaton`, for numba and for plain Python. Both write to `words` and `shares`, one row a token,
and say in `said` how many tokens they drafted (DRAFTED), n and c of AgentSpec's equation 1 (MATCHES, AGREEING), |CT*|
(CONSENSUS), and how many tokens matched (MATCHED).
"""

from __future__ import annotations

from typing import Any

from policies._draft_automaton import (
    ACTIVE,
    AFTER,
    COUNT,
    CURSOR,
    EDGE,
    KEY,
    LEN,
    LINK,
    MORE,
    NEXT,
    PLACE,
    REACH,
    ROOT,
    SEEN,
    STATE,
    TARGET,
    TO,
    TOKEN,
    WORD,
    holding,
    search,
    step,
)
from policies._draft_fast import compiled, inlined

TIE = 1e-9  # scores this near are equal: rounding must not choose between matches
DRAFTED, MATCHES, AGREEING, CONSENSUS, MATCHED, SAID = range(6)


@inlined
def _likelier(S: Any, a_token: int, a: int, b_token: int, b: int, latest: bool) -> bool:
    """Whether the continuation a is preferred to b: more often seen; then the later, or the smaller token."""
    if b < 0:
        return True
    x, y = S[a * STATE + COUNT], S[b * STATE + COUNT]
    if x != y:
        return x > y  # type: ignore[no-any-return]
    if latest:
        return S[a * STATE + SEEN] > S[b * STATE + SEEN]  # type: ignore[no-any-return]
    return (a_token & 0xFFFFFFFF) < (b_token & 0xFFFFFFFF)


@inlined
def _favourite(S: Any, E: Any, state: int, latest: bool) -> Any:
    """Return (token, its state, occurrences of all continuations) of the preferred one; the state is -1 if none."""
    b = state * STATE
    token, best, total = 0, -1, 0
    if S[b + TARGET] >= 0:
        count = S[S[b + TARGET] * STATE + COUNT]
        if count > 0:
            token, best, total = S[b + TOKEN], S[b + TARGET], count
        e = S[b + MORE]
        while e >= 0:
            to = E[e * EDGE + TO]
            count = S[to * STATE + COUNT]
            if count > 0:
                total += count
                if _likelier(S, E[e * EDGE + KEY], to, token, best, latest):
                    token, best = E[e * EDGE + KEY], to
            e = E[e * EDGE + NEXT]
    return token, best, total


@inlined
def _consensus(
    S: Any, E: Any, H: Any, T: Any, root: int, state: int, length: int, match_min: int, limit: int, permille: int,
    words: Any, shares: Any, said: Any, row: int, width: int,
) -> None:  # fmt: skip
    """Draft after `length` tokens that `state` stands for, into one row of the outputs."""
    out, note = row * width, row * SAID
    for k in range(SAID):
        said[note + k] = 0
    token, best, total = 0, -1, 0
    while length >= match_min:
        token, best, total = _favourite(S, E, state, True)
        if best >= 0:
            break
        state = S[state * STATE + LINK]
        length = S[state * STATE + LEN]
    if permille > 0:
        limit = min(limit, length * permille // 1000)
    if best < 0 or limit < 1:
        return
    agreeing = count = S[best * STATE + COUNT]
    at = S[best * STATE + SEEN]
    n, same = 0, 0
    while True:
        words[out + n] = token
        shares[out + n] = count / total
        n += 1
        if count == agreeing:
            same = n
        at = T[at * PLACE + AFTER]
        if at < 0 or n == limit:
            break
        token = T[at * PLACE + WORD]
        if count > 1:
            best = step(S, E, H, best, token)
            count = S[best * STATE + COUNT]
    said[note + DRAFTED] = n
    said[note + MATCHES] = total
    said[note + AGREEING] = agreeing
    said[note + CONSENSUS] = same
    said[note + MATCHED] = length


@compiled
def consensus(
    S: Any, E: Any, H: Any, T: Any, C: Any, cursors: Any,
    match_min: int, match_max: int, limit: int, permille: int, words: Any, shares: Any, said: Any, width: int,
) -> None:  # fmt: skip
    """Draft from the longest match of each sequence's end in its history; sequence i fills row i.

    The matches are the earlier places of the longest suffix, of `match_min` to `match_max` tokens, after which the
    history goes on. Those that go on with the most frequent next token agree (the latest if two are as frequent); the
    draft is what followed the latest of these, at most `limit` tokens and, unless it is 0, `permille` thousandths of
    the tokens that matched. shares[i]: the part of all matches that go on so up to token i.
    """
    for i in range(len(cursors)):
        c = cursors[i] * CURSOR
        root, state, length = C[c + ROOT], C[c + ACTIVE], min(C[c + REACH], match_max)
        if length >= match_min:
            state = holding(S, state, length)
            if S[state * STATE + COUNT] < 2:  # only here
                state = S[state * STATE + LINK]
                length = min(length, S[state * STATE + LEN])
        _consensus(S, E, H, T, root, state, length, match_min, limit, permille, words, shares, said, i, width)


@compiled
def consensus_after(
    S: Any, E: Any, H: Any, T: Any, root: int, tail: Any, match_min: int, limit: int, permille: int,
    words: Any, shares: Any, said: Any,
) -> None:  # fmt: skip
    """Draft likewise from the longest suffix of `tail` that occurs under `root`."""
    state, length = search(S, E, H, root, tail)
    _consensus(S, E, H, T, root, state, length, match_min, limit, permille, words, shares, said, 0, 0)


@compiled
def frequent(
    S: Any, E: Any, H: Any, C: Any, cursor: int, root: int, tail: Any,
    depth: int, limit: int, factor: float, offset: float, floor: float, words: Any, shares: Any, said: Any,
) -> Any:  # fmt: skip
    """Draft SuffixDecoding's best path after a sequence's end (cursor >= 0), or after `tail` under `root`.

    For every length m of a suffix that occurred, fewer than the tail's and than `depth` tokens, the path goes to the
    most frequent next token (the smallest if two are as frequent) while the product of shares is at least `floor`, for
    at most min(limit, factor·m + offset) tokens and down to the depth of the tree. Its score is the sum of
    the products, shares[i]; the best score wins, at equal scores the longer match. Returns the score.
    """
    said[DRAFTED] = said[MATCHES] = said[AGREEING] = said[CONSENSUS] = said[MATCHED] = 0
    if cursor >= 0:
        c = cursor * CURSOR
        root, length = C[c + ROOT], min(C[c + REACH], depth) - 1
        if length < 1:
            return 0.0
        state = holding(S, C[c + ACTIVE], length)
    else:
        state, length = search(S, E, H, root, tail)
    score = 0.0
    half = len(words) // 2
    chosen, other = 0, half
    while length > 0:
        shortest = S[S[state * STATE + LINK] * STATE + LEN] + 1
        room = 0
        for m in range(shortest, length + 1):
            room = max(room, min(limit, int(m * factor + offset + 1e-6), depth - m))
        if room > score + TIE:  # no path of so few tokens can score more otherwise
            total, n, sum_, p = S[state * STATE + COUNT], 0, 0.0, 1.0
            matches, agreeing, same, at = 0, 0, 0, state
            while n < room:
                token, best, seen = _favourite(S, E, at, False)
                if best < 0:
                    break
                count = S[best * STATE + COUNT]
                p *= count / total
                if p < floor:
                    break
                if n == 0:
                    matches, agreeing = seen, count
                words[other + n] = token
                shares[other + n] = p
                n += 1
                if count == agreeing:
                    same = n
                sum_ += p
                at, total = best, count
            if sum_ > score + TIE:
                score = sum_
                chosen, other = other, chosen
                said[DRAFTED], said[MATCHES], said[AGREEING], said[CONSENSUS] = n, matches, agreeing, same
                said[MATCHED] = length
        length = shortest - 1
        state = S[state * STATE + LINK]
    if chosen == half:
        for i in range(said[DRAFTED]):
            words[i] = words[half + i]
            shares[i] = shares[half + i]
    return score
