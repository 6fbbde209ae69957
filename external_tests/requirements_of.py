"""Print what an installed distribution requires here, one a line, any build of torch in place of the pinned one.

Left out: torchvision, torchaudio and torchcodec, which nothing in the lane needs and which pin builds of their own.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

_LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}

for line in requires(sys.argv[1]) or []:
    needed = Requirement(line)
    if needed.name in _LEFT_OUT or (needed.marker is not None and not needed.marker.evaluate({"extra": ""})):
        continue
    version = re.sub(r"\+\w+", "", str(needed.specifier))
    extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
    print(f"{needed.name}{extras}{version}")
