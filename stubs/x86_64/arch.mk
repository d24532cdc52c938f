# SPDX-License-Identifier: MIT
COMPILER := x86_64-linux-gnu-gcc
FLAGS := -mgeneral-regs-only -fcf-protection=none
FURTHER := probes library_probes watch user_regs
ATTACHED := runtime/lookups.c
READER := tally
