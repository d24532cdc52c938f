# SPDX-License-Identifier: MIT
COMPILER := s390x-linux-gnu-gcc
# What the oldest processors have that distributions still run on.
FLAGS := -march=z10 -msoft-float
FURTHER := probes library_probes user_regs
