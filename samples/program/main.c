// SPDX-License-Identifier: MIT
/* Prints the checksum of the work, and with SHOW_CALLS set how often ftrace_caller was called. */
#include "program.h"

/* work.c has a static function of this name too. */
static own_symbol uint32_t mix(uint32_t sum, unsigned int failed)
{
	return failed ? ~sum : sum;
}

int main(void)
{
	uint32_t sum = 2166136261u;
	unsigned int failed = work(&sum);

	say("checksum", mix(sum, failed), 16);
	say_calls("calls", ftrace_calls);
#ifdef LIBRARY
	say_calls("library calls", library_calls());
#endif
	/* The status is the number of failed checks. */
	return (int)failed;
}
