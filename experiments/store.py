"""The run store: a folder of complete runs and of experiments that point at them.

A run is written aside in `tmp/` and renamed whole into `runs/<run_id>`, so that one that exists is complete
and a killed sweep loses nothing but what was in flight. The writer holds a lock that the kernel drops with
the process, however it dies; `clean` removes what dead writers left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.plan import Plan, load_plan
from traces.errors import InputError, at, nearest

MANIFEST = "manifest.json"
PLAN = "plan.json"
MANIFEST_SCHEMA = 1


class Store:
    """Runs under `root/runs`, experiments under `root/experiments`, work in progress under `root/tmp`."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.runs = self.root / "runs"
        self.experiments = self.root / "experiments"
        self.tmp = self.root / "tmp"

    def create(self) -> None:
        """Make the folders; raises InputError when the place cannot be written."""
        with explained(self.root):
            for directory in (self.runs, self.experiments, self.tmp):
                directory.mkdir(parents=True, exist_ok=True)
            if not os.access(self.tmp, os.W_OK):
                raise InputError(f"store {self.root}: not writable; choose another with store=DIR")

    def run_dir(self, run_id: str) -> Path:
        """Folder of a run, whether or not it exists."""
        return self.runs / run_id

    def has(self, run_id: str) -> bool:
        """Say whether the run is there; a run that is there is complete."""
        return (self.runs / run_id / MANIFEST).is_file()

    def manifest(self, run_id: str) -> dict[str, Any]:
        """Return a run's manifest; raises InputError when it is missing or damaged."""
        return read_json(self.runs / run_id / MANIFEST)

    def begin(self, run_id: str) -> Draft:
        """Open a folder aside for a run's files; `Draft.commit` puts it in place."""
        return Draft(self, run_id)

    def experiment_dir(self, plan: Plan) -> Path:
        """Folder of an experiment, whether or not it exists."""
        return self.experiments / plan.directory_name

    def save_plan(self, plan: Plan) -> Path:
        """Write the plan into its experiment's folder; return the folder."""
        directory = self.experiment_dir(plan)
        with explained(self.root):
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(directory / PLAN, plan.to_json())
        return directory

    def plan(self, reference: str) -> Plan:
        """Return the plan of an experiment named as for `find_experiment`."""
        return load_plan(self.find_experiment(reference) / PLAN)

    def run_ids(self) -> list[str]:
        """Complete runs, sorted."""
        return sorted(p.parent.name for p in self.runs.glob(f"*/{MANIFEST}"))

    def experiment_names(self) -> list[str]:
        """Experiments that have a plan, the latest first."""
        plans = sorted(self.experiments.glob(f"*/{PLAN}"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        return [p.parent.name for p in plans]

    def find_run(self, reference: str) -> Path:
        """Return the folder of a run: a path to it, its id, or a beginning of the id that only it has."""
        return self._find(reference, self.runs, MANIFEST, self.run_ids(), "run")

    def find_experiment(self, reference: str) -> Path:
        """Return an experiment's folder: a path, its name, a beginning of it (the latest), or "latest"."""
        names = self.experiment_names()
        if reference == "latest" and names:
            return self.experiments / names[0]
        latest = [n for n in names if n.startswith(reference)][:1]
        return self._find(latest[0] if latest else reference, self.experiments, PLAN, names, "experiment")

    def _find(self, reference: str, parent: Path, marker: str, names: list[str], what: str) -> Path:
        for path in (Path(reference), parent / reference):
            if reference and (path / marker).is_file():
                return path
        matches = [n for n in names if n.startswith(reference)] if reference else []
        if len(matches) == 1:
            return parent / matches[0]
        if matches:
            raise InputError(f"{what} {reference!r} is ambiguous in {parent}: {', '.join(matches[:8])}")
        shown = names[:12]
        raise InputError(f"{nearest(reference, shown, what=what)} (store {self.root}, {len(names)} {what}s)")

    def clean(self) -> int:
        """Remove what writers that died left in `tmp`; return how many. Leaves living writers alone."""
        removed = 0
        for lock in sorted(self.tmp.glob("*.lock")):
            handle = _try_lock(lock)
            if handle is None:
                continue
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(handle)
            removed += 1
        return removed


class Draft:
    """A run being written. Use as a context manager: without `commit`, leaving removes it."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.run_id = run_id
        self.target = store.run_dir(run_id)
        self.directory = store.tmp / f"{run_id}.{socket.gethostname()}.{os.getpid()}"
        self._lock_path = self.directory.with_name(self.directory.name + ".lock")
        with explained(store.root):
            store.tmp.mkdir(parents=True, exist_ok=True)
            store.runs.mkdir(parents=True, exist_ok=True)
            handle = _try_lock(self._lock_path, create=True)
            if handle is None:
                raise InputError(f"run {run_id} is being written by another process: {self.directory}")
            self._handle = handle
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir()

    def commit(self, manifest: Mapping[str, Any]) -> Path:
        """Write the manifest, flush every file to disk, and rename the folder into place."""
        body = {"schema": MANIFEST_SCHEMA, "run_id": self.run_id, **manifest}
        with explained(self.target):
            (self.directory / MANIFEST).write_text(
                json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8"
            )
            for path in sorted(self.directory.iterdir()):
                _sync(path)
            try:
                self.directory.rename(self.target)
            except OSError as e:
                # Another process finished the same run first: equal ids promise equal tables, theirs stands.
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not (self.target / MANIFEST).is_file():
                    raise
            _sync(self.target.parent)
        self.close()
        return self.target

    def close(self) -> None:
        """Remove the folder aside, if it is still there, and drop the lock. Twice does no harm."""
        if self._handle < 0:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def write_whole(path: Path, text: str) -> None:
    """Write a file aside and rename it over `path`, so that a reader never sees half of it."""
    with explained(path):
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            aside.write_text(text, encoding="utf-8")
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises InputError with one clear line."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except json.JSONDecodeError as e:
        raise InputError(f"{at(path, e.lineno)}: not JSON: {e.msg}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: expected a JSON object")
    return body


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what a full disk, a read-only place or a wrong kind of file raises into one clear line."""
    try:
        yield
    except OSError as e:
        reasons = {
            errno.ENOSPC: "the disk is full; free some space and repeat the command: finished runs are kept",
            errno.EDQUOT: "your disk quota is used up; free some space and run the same command",
            errno.EACCES: "not writable; choose another place with store=DIR",
            errno.EROFS: "read-only file system; choose another place with store=DIR",
        }
        raise InputError(f"{e.filename or path}: {reasons.get(e.errno or 0, e.strerror or str(e))}") from e


def _try_lock(path: Path, *, create: bool = False) -> int | None:
    """Return a handle that holds the lock file, None when someone else does (or it is gone)."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(handle)
            return None
        os.close(handle)  # it was removed between open and lock: look again
        if not create:
            return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
