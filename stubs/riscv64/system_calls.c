// SPDX-License-Identifier: MIT
/* System calls in riscv64 code: `ecall`, with the number in a7. No register is free at one, and `jal`,
 * which needs none, goes 1 MB far: libc alone is larger. */
#include "no_leads.h"
