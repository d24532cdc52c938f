// SPDX-License-Identifier: MIT
#include "runtime.h"
