/* SPDX-License-Identifier: MIT */
/* How often functions of the library were called. */
#ifndef WHOLE_H
#define WHOLE_H

struct calls {
	int leaf, deep, back, chosen, begin, end;
};

int whole_leaf(int n);
int whole_deep(int n);
int whole_back(int n, int (*back)(int));
int whole_chosen(int n);
const char *whole_given(void);
struct calls whole_calls(void);

#endif
