// SPDX-License-Identifier: MIT
/* Functions that print their arguments as JSON, as a report of their trace has to. */
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FUNC __attribute__((noinline, noclone))
#define SAY(name, format, ...) (void)printf("{\"" name "\": {" format "}}\n", ##__VA_ARGS__)
#define BOOL(b) ((b) ? "true" : "false")

enum mode { MODE_SLOW, MODE_FAST = 7, MODE_ODD = -3 };
enum size { SMALL = 1, LARGE = 0x90000000 };
struct pair { int x, y; };
struct mixed { double d; int i; };
struct large { long a[3]; };
struct floats { float x, y, z; };
struct bits { unsigned lo : 3; int hi : 7; bool b : 1; unsigned long far : 20; };
struct packed { char c; int i; } __attribute__((packed));
struct deep { struct pair p; const char *s; };
struct nothing { };
union either { int i; float f; };
typedef int (*handler)(int);
typedef const struct pair *const pointer;

static const char *mode_name(enum mode mode)
{
	return mode == MODE_SLOW ? "\"MODE_SLOW\"" : mode == MODE_FAST ? "\"MODE_FAST\"" :
	       mode == MODE_ODD ? "\"MODE_ODD\"" : "99";
}

FUNC int twice(int v)
{
	SAY("twice", "\"v\": %d", v);
	return 2 * v;
}

FUNC int work(const char *name, bool flag, char c, enum mode mode, int x)
{
	SAY("work", "\"name\": \"%#lx\", \"flag\": %s, \"c\": \"%c\", \"mode\": %s, \"x\": %d",
	    (long)name, BOOL(flag), c, mode_name(mode), x);
	return x;
}

FUNC double mix(double a, int b, float f, long c)
{
	SAY("mix", "\"a\": %.1f, \"b\": %d, \"f\": %.2f, \"c\": %ld", a, b, f, c);
	return a + b + f + c;
}

FUNC struct large big(int n)
{
	struct large l = {{n, 2, 3}};

	SAY("big", "\"n\": %d", n);
	return l;
}

FUNC struct pair small(int n)
{
	struct pair p = {n, 2};

	SAY("small", "\"n\": %d", n);
	return p;
}

FUNC struct floats light(int n)
{
	struct floats f = {n, 2, 3};

	SAY("light", "\"n\": %d", n);
	return f;
}

FUNC double complex both(int n)
{
	SAY("both", "\"n\": %d", n);
	return n + 2.0 * I;
}

FUNC int pairs(struct pair p, struct mixed m, struct large l, struct floats f, long last)
{
	SAY("pairs", "\"p\": {\"x\": %d, \"y\": %d}, \"m\": {\"d\": %.1f, \"i\": %d}, "
	    "\"l\": {\"a\": [%ld, %ld, %ld]}, \"f\": {\"x\": %.1f, \"y\": %.1f, \"z\": %.1f}, "
	    "\"last\": %ld", p.x, p.y, m.d, m.i, l.a[0], l.a[1], l.a[2], f.x, f.y, f.z, last);
	return p.x + m.i + l.a[0] + f.x + last;
}

FUNC int many(long a, long b, long c, long d, long e, struct deep f, int g, short h)
{
	SAY("many", "\"a\": %ld, \"b\": %ld, \"c\": %ld, \"d\": %ld, \"e\": %ld, "
	    "\"f\": {\"p\": {\"x\": %d, \"y\": %d}, \"s\": \"%#lx\"}, \"g\": %d, \"h\": %d",
	    a, b, c, d, e, f.p.x, f.p.y, (long)f.s, g, h);
	return a + g;
}

FUNC int call(handler h, int v, pointer p)
{
	SAY("call", "\"h\": \"twice\", \"v\": %d, \"p\": \"%#lx\"", v, (long)p);
	return h(v);
}

FUNC int widths(signed char a, unsigned char b, short c, unsigned short d, uint32_t e, long f)
{
	SAY("widths", "\"a\": %d, \"b\": %d, \"c\": %d, \"d\": %d, \"e\": %u, \"f\": %ld",
	    a, b, c, d, e, f);
	return a;
}

FUNC int other(union either u, struct bits b, struct nothing n, long double ld, enum size s, int t)
{
	SAY("other", "\"u\": {\"i\": %d, \"f\": %.2f}, "
	    "\"b\": {\"lo\": %d, \"hi\": %d, \"b\": %s, \"far\": %lu}, \"n\": {}, "
	    "\"ld\": 0, \"s\": \"%s\", \"t\": %d",
	    u.i, u.f, b.lo, b.hi, BOOL(b.b), (unsigned long)b.far,
	    s == LARGE ? "LARGE" : "SMALL", t);
	return t;
}

FUNC int tight(struct packed p, double complex z, int tail)
{
	SAY("tight", "\"p\": {\"c\": \"%c\", \"i\": %d}, \"z\": 0, \"tail\": %d", p.c, p.i, tail);
	return tail;
}

FUNC int var(int n, ...)
{
	SAY("var", "\"n\": %d", n);
	return n;
}

#ifdef __SIZEOF_INT128__
/* Two registers: on arm64 the first is an even one, and none remains for what is behind. */
FUNC int wide(int a, __int128 w, int b, int c, int d, __int128 v, int e)
{
	SAY("wide", "\"a\": %d, \"w\": %ld, \"b\": %d, \"c\": %d, \"d\": %d, \"v\": %ld, \"e\": %d",
	    a, (long)w, b, c, d, (long)v, e);
	return a + b + c + d + e;
}
#endif

/* A local function with a parameter that it does not use: compilers may pass others in its
 * register. */
static FUNC int local(int a, int unused, int b)
{
	SAY("local", "\"a\": %d, \"unused\": 4, \"b\": %d", a, b);
	return a + b;
}

int main(int argc, char **argv)
{
	struct pair p = {argc, -2};
	struct mixed m = {argc + .5, 9};
	struct large l = {{1, 2, argc + 2}};
	struct floats f = {argc, 2, 3};
	struct bits b = {5, -3, 1, 0xabcde};
	struct packed q = {'q', -argc};
	struct deep d = {{3, argc}, argv[0]};
	struct nothing n = {};
	union either u = {.f = argc + .5f};
	int sum = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	SAY("main", "\"argc\": %d, \"argv\": \"%#lx\"", argc, (long)argv);
	sum += work(argv[0], argc == 1, 'a', MODE_FAST, -argc);
	sum += work(argv[0], argc != 1, 'z', MODE_ODD, 1000 * argc);
	sum += work(argv[0], argc != 1, '+', 99, 1000 * argc);
	sum += mix(argc, 2, argc + .25f, -4);
	sum += big(argc + 2).a[0] + small(argc + 3).x + light(argc + 4).x + creal(both(argc + 5));
	sum += pairs(p, m, l, f, 77);
	sum += many(1, -2, 3, 4, argc + 4, d, 7, -8);
	sum += call(twice, argc + 3, &p);
	sum += widths(-1, 255, -2, 65535, 4000000000u, -5);
	sum += other(u, b, n, argc, LARGE, 42);
	sum += tight(q, argc + 2.0 * I, 43);
	sum += var(argc, 4, 5.0);
#ifdef __SIZEOF_INT128__
	sum += wide(argc, -5, 2, 3, 4, 6, 7);
#endif
	sum += local(argc, 4, argc + 2) + local(argc + 3, 4, argc + 4);
	return sum == 0;
}
