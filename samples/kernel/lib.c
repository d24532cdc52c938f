// SPDX-License-Identifier: MIT
#include "kernel.h"

/* The compiler may call these itself. */
notrace void *memcpy(void *to, const void *from, size_t n)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	while (n--)
		*t++ = *f++;
	return to;
}

notrace void *memset(void *to, int c, size_t n)
{
	uint8_t *t = to;

	while (n--)
		*t++ = (uint8_t)c;
	return to;
}

int strcmp(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return (unsigned char)*a - (unsigned char)*b;
}

own_symbol void u32_swap(uint32_t *a, uint32_t *b)
{
	uint32_t t = *a;

	*a = *b;
	*b = t;
}

void sort(uint32_t *base, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k && base[k - 1] > base[k]; k--)
			u32_swap(&base[k - 1], &base[k]);
}

uint32_t crc32_le(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
	}
	return crc;
}
