"""The kernels of a decode step, one file an op. Import the package only where Triton is installed."""

from kernels import interpreter

if interpreter.wanted():
    interpreter.mend()
