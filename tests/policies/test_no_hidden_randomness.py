"""Policies draw through their host: numpy.random is out of reach of an import contract, so its use is looked for."""

import ast
from pathlib import Path

import policies


def test_no_policy_uses_numpy_random() -> None:
    for path in Path(policies.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "random"), f"{path}:{node.lineno}"
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("numpy.random"), f"{path}:{node.lineno}"
