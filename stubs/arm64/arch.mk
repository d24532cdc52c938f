# SPDX-License-Identifier: MIT
COMPILER := aarch64-linux-gnu-gcc
# x18 is the platform's. Pages are of up to 64 KiB, in memory; the file needs none (-n).
FLAGS := -mgeneral-regs-only -mbranch-protection=none -mno-outline-atomics -ffixed-x18 -Wl,-z,max-page-size=65536 -Wl,-n
# No watch: where an access that was watched goes on, the kernel comes to it again and again.
FURTHER := probes library_probes user_regs
READER := tally
ATTACHED := runtime/lookups.c
