# SPDX-License-Identifier: MIT
COMPILER := riscv64-linux-gnu-gcc
# Base instructions, with those that multiply and the atomic ones: no more is asked of a processor, and
# no other registers are touched. What is laid out by address must not shrink, and there is no gp.
FLAGS := -march=rv64ima_zicsr_zifencei -mabi=lp64 -mcmodel=medany -mno-relax -msmall-data-limit=0
FURTHER := probes library_probes user_regs
