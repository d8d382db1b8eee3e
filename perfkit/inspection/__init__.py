"""Output of compilers for a kernel in C, CUDA or Triton, and for a whole workload.

machine    x86 code of a C kernel, by objdump: instruction set, vector width, mix, innermost loops
gpu        PTX and the assembler's report of CUDA and Triton kernels, for any architecture, without a GPU
generated  the program that a backend made of a workload: Inductor's code, Thunder's executed trace
"""
