"""Commands of `python -m live`, one after the other in one process: importing an engine takes longer than most runs."""

from __future__ import annotations

import json
import os
import sys
import traceback


def main() -> None:
    """Read {"argv": [...], "output": FILE} a line; write what was printed to FILE, and the exit code to our output."""
    answers = os.fdopen(os.dup(1), "w")
    from live.__main__ import main as live

    for line in sys.stdin:
        given = json.loads(line)
        target = os.open(given["output"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.close(target)
        try:
            code = live(given["argv"])
        except BaseException:
            traceback.print_exc()
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        answers.write(f"{code}\n")
        answers.flush()


if __name__ == "__main__":
    main()
