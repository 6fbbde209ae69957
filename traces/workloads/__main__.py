"""`python -m traces.workloads FORMAT COPY [as=NAME] [option=value ...]` embeds a public set; maintainers run it.

It writes NAME.workload and NAME.provenance.json into this package. The provenance names the command that
makes the same workload, of the same digest, from a user's own copy of the public set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from traces import formats, store
from traces.errors import InputError
from traces.schema import Workload
from traces.workloads import DATA, PROVENANCE_SUFFIX


def embed(workload: Workload, folder: Path, options: dict[str, Any]) -> Path:
    """Write a workload and its provenance into `folder`, under the workload's name; return its path."""
    path = folder / f"{workload.name}{store.SUFFIX}"
    store.save(workload, path)
    # The embedded file itself says which workflows to take from a copy that holds more.
    options = options | {"only": f"traces/workloads/data/{path.name}"}
    given = "".join(f" --option {k}={v}" for k, v in options.items())
    form = workload.provenance["format"]
    said = {
        **workload.provenance,
        "name": workload.name,
        "workflows": workload.n_workflows,
        "stages": workload.n_stages,
        "requests": workload.n_requests,
        "digest": workload.digest(),
        "command": f"python -m traces convert COPY_OF_THE_SET {path.name} --format {form}{given}",
    }
    text = json.dumps(said, indent=1, ensure_ascii=False, sort_keys=True)
    store.write_whole(folder / f"{workload.name}{PROVENANCE_SUFFIX}", (text + "\n").encode())
    return path


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return its exit status (2 for bad input, with one line on stderr)."""
    try:
        if len(arguments) < 2 or not all("=" in a for a in arguments[2:]):
            raise InputError("usage: python -m traces.workloads FORMAT COPY [as=NAME] [option=value ...]")
        options = dict(a.split("=", 1) for a in arguments[2:])
        name = options.pop("as", None)
        workload = formats.load(arguments[1], arguments[0], **options)
        if name is not None:
            workload = replace(workload, name=name)
        shown = {k: Path(v).name if Path(v).exists() else v for k, v in options.items()}
        print(embed(workload, DATA, shown), workload.digest())
    except InputError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
