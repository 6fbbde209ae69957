"""Refuse what must not be committed: paths of a machine, package registries' hosts, promises in comments."""

import re
import subprocess
import sys
from pathlib import Path

BANNED = {
    r"\.\./" + "shared": "a path outside the repository",
    r"/" + r"work/|/" + r"root/|/" + "tmp/[a-z]": "a path of one machine",
    r"files\." + r"pythonhosted|registry\." + r"npmjs|pypi\." + "org": "a package registry's host",
    r"\b" + r"TO" + r"DO\b|\bFIX" + r"ME\b|\bXX" + r"X\b": "a promise instead of the thing",
}

files = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split(
    "\0"
)
bad = []
for name in filter(None, files):
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        continue
    for number, line in enumerate(lines, 1):
        bad += [
            f"{name}:{number}: {why}: {line.strip()[:80]}"
            for word, why in BANNED.items()
            if re.search(word, line)
        ]
print("\n".join(bad) or "no banned words")
sys.exit(bool(bad))
