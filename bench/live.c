// SPDX-License-Identifier: MIT
// Threads that call functions with pads and sleep in between, until standard input ends.
// usage: live THREADS; on standard input "c N": prints the nanoseconds that N calls take; "w N":
// prints the longest time in nanoseconds that it was not running for in N milliseconds
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CAT(a, b) a##b
#define NAME(n) CAT(f, n)
#define TEN(m, n) m(n##0) m(n##1) m(n##2) m(n##3) m(n##4) m(n##5) m(n##6) m(n##7) m(n##8) m(n##9)
#define HUNDRED(m, n) TEN(m, n##0) TEN(m, n##1) TEN(m, n##2) TEN(m, n##3) TEN(m, n##4) \
    TEN(m, n##5) TEN(m, n##6) TEN(m, n##7) TEN(m, n##8) TEN(m, n##9)
#define THOUSAND(m, n) HUNDRED(m, n##0) HUNDRED(m, n##1) HUNDRED(m, n##2) HUNDRED(m, n##3) \
    HUNDRED(m, n##4) HUNDRED(m, n##5) HUNDRED(m, n##6) HUNDRED(m, n##7) HUNDRED(m, n##8) \
    HUNDRED(m, n##9)
#define ALL(m) THOUSAND(m, 1) THOUSAND(m, 2) THOUSAND(m, 3) THOUSAND(m, 4) THOUSAND(m, 5) \
    THOUSAND(m, 6) THOUSAND(m, 7) THOUSAND(m, 8) THOUSAND(m, 9) THOUSAND(m, 10)
#define FUNCTION(n) \
    __attribute__((noinline)) int NAME(n)(int x) { __asm__ volatile(""); return x * 3 + n; }
#define POINTER(n) NAME(n),

ALL(FUNCTION)
static int (*const all[])(int) = {ALL(POINTER)};
enum { COUNT = sizeof(all) / sizeof(*all) };

__attribute__((noinline, patchable_function_entry(0))) static void *work(void *unused) {
    struct timespec rest = {0, 2000000};
    for (unsigned at = 0, x = 0;; nanosleep(&rest, NULL))
        for (int n = 0; n < 100; n++, at++) x = all[at % COUNT](x);
    return unused;
}

#define UNTRACED __attribute__((noinline, patchable_function_entry(0)))
static UNTRACED long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static UNTRACED long long calls(int n) {
    long long from = now();
    for (int i = 0, x = 0; i < n; i++) x = f1000(x);
    return now() - from;
}

static UNTRACED long long gap(int ms) {
    long long from = now(), last = from, longest = 0;
    while (last - from < ms * 1000000LL) {
        long long at = now();
        if (at - last > longest) longest = at - last;
        last = at;
    }
    return longest;
}

UNTRACED int main(int argc, char **argv) {
    char line[64];
    pthread_t thread;
    for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 1; n--) pthread_create(&thread, NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int n = atoi(line + 1);
        printf("%lld\n", *line == 'c' ? calls(n) : gap(n));
        fflush(stdout);
    }
    return 0;
}
