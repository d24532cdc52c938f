# SPDX-License-Identifier: MIT
COMPILER := x86_64-linux-gnu-gcc
FLAGS := -fcf-protection=none
FURTHER := probes watch
ATTACHED := runtime/lookups.c
READER := tally
