"""A suffix automaton over token histories, in flat int32 arrays: the functions that read and grow it.

A state stands for all substrings that end at the same places (Blumer et al. 1985). Several roots share the arrays,
one for each history, and several sequences of one history may grow at once. Beside the automaton, every state knows
how often its strings occurred and where last, for strings up to the `depth` of the pool; strings that are longer are
found but not counted. Written so that numba compiles it and plain Python runs it, on memory views, with equal results.

    states   LINK longest suffix with more occurrences, LEN longest string, COUNT occurrences, SEEN last position,
             TOKEN/TARGET first transition, MORE head of the list of further ones; of a root, SEEN counts transitions
    edges    further transitions: SOURCE, KEY token, TO, NEXT in the source's list
    slots    hash of (source, token) to an edge, open addressing, -1 empty
    tokens   of each position, the token (WORD), the next position of its sequence (AFTER, -1 at the end), its RUN
    runs     of each sequence there ever was, its FIRST position and the root it is UNDER
    cursors  of each growing sequence: ROOT, LAST state of the whole, ACTIVE state of its last `depth` tokens, how
             many these are (REACH), its last position (AT), its run (OF)
"""

from __future__ import annotations

from typing import Any

from policies._draft_fast import compiled, inlined

LINK, LEN, COUNT, SEEN, TOKEN, TARGET, MORE, STATE = range(8)
SOURCE, KEY, TO, NEXT, EDGE = range(5)
WORD, AFTER, RUN, PLACE = range(4)
FIRST, UNDER, ORIGIN = range(3)
ROOT, LAST, ACTIVE, REACH, AT, OF, CURSOR = range(7)
N_STATES, N_EDGES, N_TOKENS, DEPTH, REGISTERS = range(5)
SPARE_STATES = 2


@inlined
def _slot(E: Any, H: Any, source: int, token: int) -> int:
    """Return the slot that holds the edge, or the empty one where it belongs."""
    mask = len(H) - 1
    h = (source * 0x9E3779B1) ^ ((token & 0xFFFFFFFF) * 0x85EBCA77)
    h &= 0xFFFFFFFF
    h ^= h >> 15
    i = h & mask
    while H[i] >= 0:
        e = H[i] * EDGE
        if E[e + SOURCE] == source and E[e + KEY] == token:
            break
        i = (i + 1) & mask
    return i


@inlined
def step(S: Any, E: Any, H: Any, state: int, token: int) -> Any:
    """Return the state after `token`, -1 where no string goes on so."""
    b = state * STATE
    if S[b + TARGET] < 0:
        return -1
    if S[b + TOKEN] == token:
        return S[b + TARGET]
    if S[b + MORE] < 0:
        return -1
    e = H[_slot(E, H, state, token)]
    return E[e * EDGE + TO] if e >= 0 else -1


@inlined
def _redirect(S: Any, E: Any, H: Any, state: int, token: int, target: int) -> None:
    b = state * STATE
    if S[b + TOKEN] == token:
        S[b + TARGET] = target
    else:
        E[H[_slot(E, H, state, token)] * EDGE + TO] = target


@inlined
def _connect(S: Any, E: Any, H: Any, R: Any, state: int, token: int, target: int) -> None:
    b = state * STATE
    if S[b + LINK] < 0:
        S[b + SEEN] += 1
    if S[b + TARGET] < 0:
        S[b + TOKEN] = token
        S[b + TARGET] = target
        return
    e = R[N_EDGES]
    R[N_EDGES] = e + 1
    H[_slot(E, H, state, token)] = e
    e *= EDGE
    E[e + SOURCE] = state
    E[e + KEY] = token
    E[e + TO] = target
    E[e + NEXT] = S[b + MORE]
    S[b + MORE] = e // EDGE


@inlined
def _state(S: Any, R: Any, length: int) -> Any:
    s = R[N_STATES]
    R[N_STATES] = s + 1
    b = s * STATE
    S[b + LINK] = 0
    S[b + LEN] = length
    S[b + COUNT] = 0
    S[b + SEEN] = -1
    S[b + TARGET] = -1
    S[b + MORE] = -1
    return s


@inlined
def _split(S: Any, E: Any, H: Any, R: Any, source: int, token: int, whole: int) -> Any:
    """Give the strings of `whole` up to one longer than those of `source` a state of their own; return it."""
    b = whole * STATE
    part = _state(S, R, S[source * STATE + LEN] + 1)
    p = part * STATE
    S[p + LINK] = S[b + LINK]
    S[p + COUNT] = S[b + COUNT]
    S[p + SEEN] = S[b + SEEN]
    if S[b + TARGET] >= 0:
        S[p + TOKEN] = S[b + TOKEN]
        S[p + TARGET] = S[b + TARGET]
    e = S[b + MORE]
    while e >= 0:
        _connect(S, E, H, R, part, E[e * EDGE + KEY], E[e * EDGE + TO])
        e = E[e * EDGE + NEXT]
    S[b + LINK] = part
    at = source
    while at >= 0 and step(S, E, H, at, token) == whole:
        _redirect(S, E, H, at, token, part)
        at = S[at * STATE + LINK]
    return part


@inlined
def _extend(S: Any, E: Any, H: Any, R: Any, root: int, last: int, token: int) -> Any:
    """Return the state of a sequence's whole after one more token. Mutates."""
    longer = S[last * STATE + LEN] + 1
    known = step(S, E, H, last, token)
    if known >= 0:  # another sequence of this history went the same way
        if S[known * STATE + LEN] == longer:
            return known
        return _split(S, E, H, R, last, token, known)
    new = _state(S, R, longer)
    at = last
    while at >= 0:
        known = step(S, E, H, at, token)
        if known >= 0:
            break
        _connect(S, E, H, R, at, token, new)
        at = S[at * STATE + LINK]
    if at < 0:
        S[new * STATE + LINK] = root
    elif S[known * STATE + LEN] == S[at * STATE + LEN] + 1:
        S[new * STATE + LINK] = known
    else:
        part = _split(S, E, H, R, at, token, known)
        S[new * STATE + LINK] = part
    return new


@inlined
def holding(S: Any, state: int, length: int) -> Any:
    """Return the state of the last `length` tokens of a string of `state`: `state` itself or one up its links."""
    while S[S[state * STATE + LINK] * STATE + LEN] >= length:
        state = S[state * STATE + LINK]
    return state


@compiled
def append(
    S: Any,
    E: Any,
    H: Any,
    T: Any,
    G: Any,
    C: Any,
    R: Any,
    ids: Any,
    new: Any,
    begin: int,
    states: int,
    edges: int,
) -> int:
    """Append new[i] to sequence ids[i] (to ids[0] if it is one) for i from `begin` on; return how far it went.

    It stops before a token for which the arrays may be too small (states and edges are how many they hold), so that the
    caller can grow them and go on. Amortised O(1) a token, but for the count's walk of at most `depth` links.
    """
    depth = R[DEPTH]
    for i in range(begin, len(new)):
        c = ids[i if len(ids) > 1 else 0] * CURSOR
        root, last = C[c + ROOT], C[c + LAST]
        # A token adds two states; an edge at most on each link from `last`, and those of one split state.
        spare = S[last * STATE + LEN] + S[root * STATE + SEEN] + 2
        if R[N_STATES] + SPARE_STATES > states or R[N_EDGES] + spare > edges:
            return i
        at = R[N_TOKENS]
        R[N_TOKENS] = at + 1
        T[at * PLACE + WORD] = new[i]
        T[at * PLACE + AFTER] = -1
        T[at * PLACE + RUN] = C[c + OF]
        if C[c + AT] >= 0:
            T[C[c + AT] * PLACE + AFTER] = at
        else:
            G[C[c + OF] * ORIGIN + FIRST] = at
        C[c + AT] = at
        C[c + LAST] = _extend(S, E, H, R, root, last, new[i])
        active, reach = C[c + ACTIVE], C[c + REACH]
        if reach > 0:
            active = holding(S, active, reach)
        active = step(S, E, H, active, new[i])
        reach = min(reach + 1, depth)
        active = holding(S, active, reach)
        C[c + ACTIVE] = active
        C[c + REACH] = reach
        while active != root:
            S[active * STATE + COUNT] += 1
            S[active * STATE + SEEN] = at
            active = S[active * STATE + LINK]
    return len(new)


@compiled
def forget(S: Any, E: Any, H: Any, T: Any, G: Any, R: Any, run: int) -> int:
    """Uncount a sequence; return its tokens. Its states and tokens stay until the arrays are made anew."""
    root, at = G[run * ORIGIN + UNDER], G[run * ORIGIN + FIRST]
    state, reach, n = root, 0, 0
    while at >= 0:
        state = step(S, E, H, state, T[at * PLACE + WORD])
        reach = min(reach + 1, R[DEPTH])
        state = holding(S, state, reach)
        up = state
        while up != root:
            S[up * STATE + COUNT] -= 1
            up = S[up * STATE + LINK]
        n += 1
        at = T[at * PLACE + AFTER]
    return n


@compiled
def rehash(E: Any, H: Any, edges: int) -> None:
    """Enter all edges into an empty hash table."""
    for e in range(edges):
        H[_slot(E, H, E[e * EDGE + SOURCE], E[e * EDGE + KEY])] = e


@inlined
def search(S: Any, E: Any, H: Any, root: int, tail: Any) -> Any:
    """Return (state, length) of the longest suffix of `tail` that occurs under `root` and still counts."""
    state, length = root, 0
    for i in range(len(tail)):
        while True:
            after = step(S, E, H, state, tail[i])
            if after >= 0 and S[after * STATE + COUNT] > 0:
                state = after
                length += 1
                break
            if state == root:
                break
            state = S[state * STATE + LINK]
            length = S[state * STATE + LEN]
    return state, length
