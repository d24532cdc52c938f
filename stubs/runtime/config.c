// SPDX-License-Identifier: MIT
/* In a file of its own, so that no compiler takes these values for constants. */
#include "runtime.h"

const struct stub_config ftpatch_config __attribute__((section(".ftpatch"), used)) = {
	.magic = STUB_MAGIC,
};
