"""A JSON object of the user's, read with one clear line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces.errors import InputError, at


def load_object(path: Path, what: str) -> dict[str, Any]:
    """Return the object in the file; InputError says what `path` is not: `what` completes "<path>: "."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except json.JSONDecodeError as e:
        raise InputError(f"{at(path, e.lineno)}: not JSON: {e.msg}") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: {what}")
    return body
