"""Which prefixes the agents of active workflows have read, by content: readers stay while KV moves between tiers."""

from __future__ import annotations

from collections.abc import Iterator

from policies.views import Access

Path = tuple[bytes, ...]  # contents, root first


class PathReaders:
    """Longest paths read by (workflow, agent), in the order of first reads. Mutated by `read` and `finish`."""

    def __init__(self) -> None:
        self._paths: dict[int, dict[int, dict[bytes, Path]]] = {}  # workflow -> agent -> last content -> path
        self._stage: dict[int, int] = {}

    def read(self, workflow: int, agent: int, stage: int, path: Path) -> None:
        """A request had `path` as its prompt, or as prompt and output."""
        if not path or workflow < 0:
            return
        self._stage[workflow] = stage
        known = self._paths.setdefault(workflow, {}).setdefault(agent, {})
        if any(path[-1] in other for other in known.values() if len(other) > len(path)):
            return
        for content in path:
            known.pop(content, None)  # a path that the new one continues
        known[path[-1]] = path

    def finish(self, workflow: int) -> None:
        """The workflow reads nothing any more."""
        self._paths.pop(workflow, None)
        self._stage.pop(workflow, None)

    def active(self, workflow: int) -> bool:
        """Say whether the workflow has read anything and goes on. Does not mutate."""
        return workflow in self._paths

    def paths(self) -> Iterator[tuple[int, int, Path]]:
        """Yield (workflow, agent, path). Does not mutate."""
        for workflow, agents in self._paths.items():
            for agent, paths in agents.items():
                for path in paths.values():
                    yield workflow, agent, path

    def access(self, workflow: int, agent: int, now_ns: int) -> Access:
        """Return a reader as an access. Does not mutate."""
        return Access(now_ns, workflow, self._stage[workflow], agent)

    def of(self, workflow: int, depth: int, content: bytes, now_ns: int) -> list[Access]:
        """Return the agents of one workflow that have read a content, which ends `depth` blocks. Does not mutate."""
        return [
            self.access(workflow, agent, now_ns)
            for agent, paths in self._paths.get(workflow, {}).items()
            if any(len(path) >= depth and path[depth - 1] == content for path in paths.values())
        ]
