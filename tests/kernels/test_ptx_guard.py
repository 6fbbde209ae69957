"""The guard's reading of PTX, on texts in which one thing is wrong at a time."""

from dataclasses import replace

import pytest

from kernels.check.compiled import Compiled
from kernels.check.ptx import blocks, counts, guard_fault, overlap_fault, scalar_parameters
from kernels.check.report import judge

GOOD = """
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u64 .ptr .global .align 1 k_param_1
)
.reqntid 128
{
	.reg .pred 	%p<3>;
$L__func_begin0:
	ld.param.b64 	%rd1, [k_param_0];
	add.s64 	%rd2, %rd1, 4;
	.loc	1 2 3
	// begin inline asm
	mov.u32 %r1, 0x0;
	ld.global.b32 { %r1 }, [ %rd2 + 0 ];
	// end inline asm
	mov.u32 	%r2, %ctaid.x;
	shl.b32 	%r3, %r2, 6;
	setp.lt.s32 	%p1, %r3, %r1;
	@%p1 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;
$L__BB0_2:
	ld.param.b64 	%rd3, [k_param_1];
	cp.async.cg.shared.global [ %r9 + 0 ], [ %rd3 + 0 ], 0x10, %r8;
	wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f0}, %rd4, %rd5, p, 1, 1, 0, 0;
	st.global.b32 [ %rd3 + 0 ], { %r7 };
$L__BB0_1:
	ret;
}
"""
LOAD = "	ld.global.b32 { %r1 }, [ %rd2 + 0 ];\n"
BRANCHES = GOOD[GOOD.index("	@%p1 bra") : GOOD.index("	ret;")]
SET = "	setp.lt.s32 	%p1, %r3, %r1;\n"


def test_guard_that_comes_first_has_no_fault():
    assert guard_fault(GOOD) is None


def test_guard_that_branches_to_the_exit_has_no_fault():
    turned = GOOD.replace("@%p1 bra 	$L__BB0_2;\n	bra.uni 	$L__BB0_1;", "@%p1 bra 	$L__BB0_1;")
    assert guard_fault(turned.replace("setp.lt", "setp.ge")) is None


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (LOAD, "", "0 loads"),
        (LOAD, LOAD + "	ld.global.b32 { %r5 }, [ %rd2 + 8 ];\n", "2 loads"),
        ("[k_param_0]", "[k_param_1]", "not the plan's"),
        (
            LOAD,
            LOAD + "	ld.param.b64 	%rd8, [k_param_1];\n	ld.global.b32 { %r5 }, [ %rd8 + 0 ];\n",
            "not the plan's",
        ),
        (SET, "	setp.lt.s32 	%p1, %r3, 64;\n", "does not depend"),
        (SET, "	st.global.b32 [ %rd2 + 0 ], { %r3 };\n" + SET, "payload before"),
        (SET, "	cp.async.cg.shared.global [ %r9 + 0 ], [ %rd2 + 0 ], 0x10;\n" + SET, "payload before"),
        (SET, "	mbarrier.init.shared.b64 [global_smem], 1;\n" + SET, "payload before"),
        ("$L__BB0_1:\n", "$L__BB0_1:\n	st.global.b32 [ %rd2 + 0 ], { %r3 };\n", "without payload"),
        (BRANCHES, "", "no branch"),
    ],
)
def test_wrong_guard_is_named(before, after, fault):
    assert before in GOOD
    assert fault in (guard_fault(GOOD.replace(before, after)) or "")


def test_blocks_follow_control():
    graph = blocks(GOOD)
    assert list(graph) == ["entry", "after 1", "$L__BB0_2", "$L__BB0_1"]
    assert graph["entry"].falls == "after 1"
    assert graph["after 1"].falls is None
    assert graph["$L__BB0_2"].falls == "$L__BB0_1"


def test_host_scalars_are_parameters_that_point_nowhere():
    assert scalar_parameters(GOOD) == 0
    assert scalar_parameters(GOOD.replace(".u64 .ptr .global .align 1 k_param_1", ".u32 k_param_1")) == 1


def test_counts_are_of_instructions():
    assert counts(GOOD) == {"async_copies": 1, "wgmma": 1, "mma": 0, "two_byte_loads": 0}
    assert counts(GOOD.replace("ld.global.b32", "ld.global.b16"))["two_byte_loads"] == 1


FINE = Compiled(GOOD, registers=64, spill_bytes=0, shared_bytes=1 << 16)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"spill_bytes": 8}, "8 bytes of registers spilled"),
        ({"shared_bytes": 228 << 10}, "shared memory"),
        ({"ptx": GOOD.replace("cp.async.cg", "ld.global.b32")}, "no asynchronous copies"),
        ({"ptx": GOOD.replace("wgmma.mma_async", "mma.sync")}, "no tensor core instructions"),
        ({"ptx": GOOD.replace("st.global.b32 [ %rd3", "ld.global.b16 { %r6 }, [ %rd3")}, "two-byte loads"),
        ({"ptx": GOOD.replace(".u64 .ptr .global .align 1 k_param_1", ".u32 k_param_1")}, "host scalars"),
    ],
)
def test_kernel_with_a_fault_is_flagged_and_no_other(changes, fault):
    assert judge("qkv", "guard", 90, FINE).faults == ()
    (found,) = judge("qkv", "guard", 90, replace(FINE, **changes)).faults
    assert fault in found


def test_figures_that_cannot_be_had_are_absent_and_no_fault():
    row = judge("qkv", "guard", 90, replace(FINE, registers=None, spill_bytes=None))
    assert (row.registers, row.spill_bytes, row.resident, row.faults) == (None, None, None, ())


def test_kernel_that_may_start_early_waits_before_its_payload_and_after_its_guard():
    wait = "	griddepcontrol.wait;\n"
    behind = GOOD.replace("$L__BB0_2:\n", "$L__BB0_2:\n" + wait)
    assert overlap_fault(behind) is None
    assert guard_fault(behind) is None
    assert "no wait" in (overlap_fault(GOOD) or "")
    assert "payload before the wait" in (
        overlap_fault(GOOD.replace("$L__BB0_1:\n", wait + "$L__BB0_1:\n")) or ""
    )
    assert "payload before" in (guard_fault(GOOD.replace(SET, wait + SET)) or "")
