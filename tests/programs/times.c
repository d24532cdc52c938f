// SPDX-License-Identifier: MIT
/* The library of guarded_imports.c. */
static int scale = 3;

int times(int n) { return n * scale; }
