// SPDX-License-Identifier: MIT
/* System calls in s390x code: `svc`, of two bytes, with the number in the instruction or in r1. A jump
 * takes four, and six to come far. */
#include "no_leads.h"
