# SPDX-License-Identifier: MIT
# Debian 12 has none; `python -m tests.support.cross_root loongarch64` unpacks that of a later one.
COMPILER := loongarch64-linux-gnu-gcc
UNPACKED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ftpatch/cross/loongarch64/usr/bin
# No floating-point or vector registers; what is laid out by address must not shrink. Pages are of up to 64 KiB.
FLAGS := -march=loongarch64 -mabi=lp64s -mno-relax -Wl,-z,max-page-size=65536 -Wl,-n
FURTHER := probes library_probes user_regs
