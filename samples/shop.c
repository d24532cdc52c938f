// SPDX-License-Identifier: MIT
/* The program that README probes and watches: gcc -O2 samples/shop.c -o shop */
#include <stdio.h>

int stock = 10;
int prices[8] = {3, 1, 4, 1, 9, 9, 2, 6};

__attribute__((noinline)) void deliver(int n) { stock += n; }

__attribute__((noinline)) int sell(int n)
{
	if (stock < n)
		return -1;
	stock -= n;
	return stock;
}

int main(void)
{
	deliver(2);
	sell(3);
	prices[4] = 10;
	printf("%d left at %d\n", sell(100) < 0 ? stock : 0, prices[4]);
	return 0;
}
