// SPDX-License-Identifier: MIT
#include "program.h"

notrace unsigned long library_calls(void)
{
	return ftrace_calls;
}
