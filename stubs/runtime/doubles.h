/* SPDX-License-Identifier: MIT */
/* Sums of floats in integer registers, as IEEE 754 has them, rounded to nearest, to even in the middle. The
 * registers that processors have for it, and what they are told of rounding and exceptions (MXCSR, FPCR), are the
 * program's.
 *
 *     binary64   | sign | exponent, 11 bits | fraction, 52 bits |
 *     binary32   | sign | exponent,  8 bits | fraction, 23 bits |
 */
#ifndef FTPATCH_DOUBLES_H
#define FTPATCH_DOUBLES_H

#include "trace.h"

#define DOUBLE_FRACTION 52
#define DOUBLE_BIAS 1023
#define DOUBLE_BEYOND 0x7ffu /* the exponent of infinities and NaNs */
#define DOUBLE_NAN (0xfffull << 51)
#define DOUBLE_SPARE 10 /* bits below a fraction while it is added: 1 + 52 + 10 leave one for what is carried */
#define FLOAT_FRACTION 23
#define FLOAT_BIAS 127
#define FLOAT_BEYOND 0xffu

/* A double of the same value as a float. */
static inline u64 widened(u32 value)
{
	u64 fraction = value & ((1u << FLOAT_FRACTION) - 1), exponent = value >> FLOAT_FRACTION & FLOAT_BEYOND;
	u64 sign = (u64)(value >> 31) << 63;

	if (exponent == FLOAT_BEYOND) {
		exponent = DOUBLE_BEYOND;
	} else if (exponent) {
		exponent += DOUBLE_BIAS - FLOAT_BIAS;
	} else if (fraction) { /* subnormal, which no float is as a double */
		u32 up = (u32)__builtin_clzll(fraction) - (63 - FLOAT_FRACTION);

		fraction = fraction << up & ((1u << FLOAT_FRACTION) - 1);
		exponent = DOUBLE_BIAS - FLOAT_BIAS + 1 - up;
	}
	return sign | exponent << DOUBLE_FRACTION | fraction << (DOUBLE_FRACTION - FLOAT_FRACTION);
}

/* A double's fraction with its leading 1, above the spare bits. */
static inline u64 double_digits(u64 value)
{
	u64 fraction = value & ((1ull << DOUBLE_FRACTION) - 1);

	if (value >> DOUBLE_FRACTION & DOUBLE_BEYOND)
		fraction |= 1ull << DOUBLE_FRACTION;
	return fraction << DOUBLE_SPARE;
}

static inline u32 double_exponent(u64 value)
{
	u32 exponent = value >> DOUBLE_FRACTION & DOUBLE_BEYOND;

	return exponent ? exponent : 1; /* subnormal */
}

/* a + b */
static inline u64 doubles_added(u64 a, u64 b)
{
	u64 larger = a << 1 >= b << 1 ? a : b, smaller = a ^ b ^ larger, digits, below, rest;
	u32 exponent = double_exponent(larger), apart = exponent - double_exponent(smaller), up;

	if (exponent == DOUBLE_BEYOND) {
		if (larger << 12) /* a NaN */
			return larger | 1ull << (DOUBLE_FRACTION - 1);
		return !apart && (a ^ b) >> 63 ? DOUBLE_NAN : larger;
	}
	digits = double_digits(larger);
	below = double_digits(smaller);
	if (apart > 63)
		below = below != 0;
	else if (apart) /* the last bit tells whether anything is further down */
		below = below >> apart | (below << (64 - apart) != 0);
	digits = (a ^ b) >> 63 ? digits - below : digits + below;
	if (!digits)
		return (a & b) >> 63 << 63; /* 0, -0 of two of these */
	if (digits >> 63) {
		digits = digits >> 1 | (digits & 1);
		exponent++;
	}
	up = (u32)__builtin_clzll(digits) - 1;
	up = up < exponent - 1 ? up : exponent - 1;
	digits <<= up;
	exponent -= up;
	rest = digits & ((1u << DOUBLE_SPARE) - 1);
	digits >>= DOUBLE_SPARE;
	digits += rest > 1u << (DOUBLE_SPARE - 1) || (rest == 1u << (DOUBLE_SPARE - 1) && digits & 1);
	digits += (u64)(exponent - 1) << DOUBLE_FRACTION; /* a leading 1 adds the last one */
	if (digits >> DOUBLE_FRACTION >= DOUBLE_BEYOND)
		digits = (u64)DOUBLE_BEYOND << DOUBLE_FRACTION;
	return larger >> 63 << 63 | digits;
}

#endif
