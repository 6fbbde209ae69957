"""`python -m kernels`: compiling happens in a process of its own, since kernels here are interpreted."""

import json
import os
import subprocess
import sys

import pytest
import torch

from kernels.__main__ import main
from kernels.check.report import kernels_to_check


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "error", "-m", "kernels", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_every_kernel_compiles_for_hopper_without_fault_and_wrong_ones_are_flagged():
    done = _run("check", "--arch", "90", "--json")
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert [row["faults"] for row in said["kernels"]] == [[]] * len(said["kernels"])
    assert done.returncode == 0
    expected = [(variant, name) for variant, _, name, _ in kernels_to_check()]
    assert [(row["variant"], row["op"]) for row in said["kernels"]] == expected
    controls = said["controls"]["90"]
    assert controls.pop("guarded") is None
    assert len(controls) == 6
    assert all(controls.values())
    assert "two-byte loads" in controls["unaligned"]
    for row in said["kernels"]:
        assert row["registers"] is None or 0 < row["registers"] <= 255


def test_ampere_kernels_and_overlapping_launches_compile_without_fault():
    done = _run("check", "--arch", "90,80", "--overlap", "--op", "attention,combine,rotary")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" overlap ") == 3
    assert "15 kernels, no fault" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--arch", "91"], "did you mean '90'"),
        (["check", "--op", "atention"], "did you mean 'attention'"),
        (["check", "--op", "qkv", "--arch", "90"], "TRITON_INTERPRET is set"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, message):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to verify on")
def test_verify_without_a_gpu_is_refused_in_one_line(capsys):
    assert main(["verify"]) == 2
    captured = capsys.readouterr()
    assert "no CUDA device" in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["chek"])
    assert refused.value.code == 2
    assert "invalid choice: 'chek'" in capsys.readouterr().err
