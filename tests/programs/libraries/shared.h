/* SPDX-License-Identifier: MIT */
#include <setjmp.h>

#ifdef __cplusplus
extern "C" {
#endif
int leaf(int n);
int through(int n, int (*back)(int));
int tail(int n, int (*back)(int));
int deep(int n, int (*back)(int));
void leap(jmp_buf to, int n);
int count(int n);
int was_started(void);
int thrower(int n);
int catcher(int n, int (*back)(int));
#ifdef __cplusplus
}
#endif
