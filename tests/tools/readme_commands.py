"""Print the two commands of the README, one a line: the lines of its first `bash` block."""

import re
import sys
from pathlib import Path

block = re.search(r"```bash\n(.*?)```", Path(sys.argv[1]).read_text(encoding="utf-8"), re.DOTALL)
if block is None:
    sys.exit(f"{sys.argv[1]}: no bash block")
commands = [line for line in block.group(1).splitlines() if line.strip() and not line.startswith("#")]
if len(commands) != 2:
    sys.exit(f"{sys.argv[1]}: the first bash block has {len(commands)} commands, expected 2")
print("\n".join(commands))
