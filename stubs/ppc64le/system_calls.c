// SPDX-License-Identifier: MIT
/* System calls in ppc64le code: `sc`, or `scv 0` where the kernel has it, with the number in r0. */
#include "no_leads.h"
