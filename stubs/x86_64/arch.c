// SPDX-License-Identifier: MIT
#include "runtime.h"

u32 arch_tls;
