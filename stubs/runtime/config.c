// SPDX-License-Identifier: MIT
/* Apart from all that reads it, so that no compiler takes it for what stands here. */
#include "runtime.h"

const struct stub_config ftpatch_config __attribute__((section(".ftpatch"), used)) = {
	.magic = STUB_MAGIC,
};
