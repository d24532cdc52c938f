# SPDX-License-Identifier: MIT
COMPILER := arm-linux-gnueabihf-gcc
# .debug_frame comes with -g alone. A32, as system calls take r7, which is T32's frame pointer; no register of VFP is touched. Pages are of up
# to 64 KiB, in memory; the file needs none (-n).
FLAGS := -g1 -march=armv7-a -marm -mfloat-abi=soft -mtp=cp15 -Wl,-z,max-page-size=65536 -Wl,-n
FURTHER := probes library_probes user_regs
