# SPDX-License-Identifier: MIT
COMPILER := powerpc64le-linux-gnu-gcc
# The oldest processor of the little-endian ABI. Pages are of up to 64 KiB, in memory; the file needs none (-n).
FLAGS := -mcpu=power8 -msoft-float -mno-altivec -mno-vsx -Wl,-z,max-page-size=65536 -Wl,-n
FURTHER := probes library_probes user_regs
