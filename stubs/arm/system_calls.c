// SPDX-License-Identifier: MIT
/* System calls in 32-bit ARM code: `svc #0`, with the number in r7. Nothing tells code of one set from that of
 * the other, and from data, where there are no mapping symbols. */
#include "no_leads.h"
