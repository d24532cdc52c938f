# SPDX-License-Identifier: MIT
COMPILER := i686-linux-gnu-gcc
FLAGS := -mgeneral-regs-only -fcf-protection=none -march=i686 -fomit-frame-pointer
FURTHER := probes library_probes user_regs
