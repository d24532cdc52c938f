// SPDX-License-Identifier: MIT
/* Functions and methods that print their arguments as JSON, as a report of their trace has to. */
#include <cstdio>

#define FUNC __attribute__((noinline))
#define SAY(name, format, ...) (void)printf("{\"" name "\": {" format "}}\n", ##__VA_ARGS__)

namespace shop {

enum class Colour : unsigned char { red = 1, blue = 200 };

struct Empty {};
struct Point : Empty { int x, y; };

/* It is not copied trivially: its address is passed. */
struct Name {
	long length;
	Name(long n) : length(n) {}
	Name(const Name &other) : length(other.length + 1) {}
};

class Order {
	long total;

public:
	FUNC explicit Order(long t) : total(t) { SAY("Order", "\"this\": \"%p\", \"t\": %ld", this, t); }
	FUNC long add(int n, Colour c, Point p) const
	{
		SAY("add", "\"this\": \"%p\", \"n\": %d, \"c\": \"%s\", "
		    "\"p\": {\"x\": %d, \"y\": %d}",
		    this, n, c == Colour::red ? "red" : "blue", p.x, p.y);
		return total + n;
	}
	/* The result is in memory, and so its address comes before that of the object. */
	FUNC Name named(const Order &other, Name &&name)
	{
		SAY("named", "\"this\": \"%p\", \"other\": \"%p\", \"name\": \"%p\"",
		    this, &other, &name);
		return Name(total);
	}
	static FUNC int count(char16_t letter, Empty none, int Order::*, int last)
	{
		SAY("count", "\"letter\": \"%c\", \"none\": {}, \"3\": -1, \"last\": %d",
		    letter, last);
		return last;
	}
	FUNC ~Order() { SAY("~Order", "\"this\": \"%p\"", this); }
	virtual FUNC int shown(bool twice)
	{
		SAY("shown", "\"this\": \"%p\", \"twice\": %s", this, twice ? "true" : "false");
		return 1;
	}
};

template <typename T> FUNC T most(T a, T b)
{
	SAY("most", "\"a\": %d, \"b\": %d", (int)a, (int)b);
	return a > b ? a : b;
}

template <typename... T> FUNC int each(short n, T... rest)
{
	int values[] = {rest...};
	SAY("each", "\"n\": %d, \"rest\": %d, \"3\": %d", n, values[0], values[1]);
	return n;
}

struct Base { long value = 1; };
struct Left : virtual Base { FUNC Left(int n) { SAY("Left", "\"this\": \"%p\", \"n\": %d", this, n); } };
struct Both : Left { Both(int n) : Left(n + 1) {} };

/* Of what is not used, clang's debug information says nothing. */
FUNC int skips(Name unused, int n)
{
	SAY("skips", "\"n\": %d", n);
	return n;
}

FUNC long by_address(Name name, int n, decltype(nullptr) none)
{
	SAY("by_address", "\"name\": \"@%p\", \"n\": %d, \"none\": \"0x0\"", &name, n);
	return name.length;
}

}

namespace {
FUNC int hidden(int (&numbers)[3], unsigned long long n)
{
	SAY("hidden", "\"numbers\": \"%p\", \"n\": %llu", &numbers, n);
	return numbers[0];
}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, nullptr, _IONBF, 0);
	SAY("main", "\"argc\": %d, \"argv\": \"%p\"", argc, argv);
	shop::Order order(argc + 10);
	shop::Point point;
	point.x = argc, point.y = -5;
	int numbers[3] = {argc, 2, 3};
	long sum = order.add(argc, shop::Colour::blue, point);
	sum += order.named(order, shop::Name(3)).length;
	sum += shop::Order::count(u'x', shop::Empty(), nullptr, argc + 6);
	sum += static_cast<shop::Order *>(&order)->shown(argc == 1);
	sum += shop::most<short>(argc, -3) + shop::most<unsigned char>(200, argc);
	sum += shop::by_address(shop::Name(argc), 5, nullptr);
	sum += hidden(numbers, 1ull << 63);
	sum += shop::each(-1, argc + 4, (signed char)-9);
	sum += shop::Left(argc + 1).value + shop::Both(argc + 2).value;
	sum += shop::skips(shop::Name(argc), argc + 5);
	auto lambda = [&](int n) FUNC { SAY("lambda", "\"n\": %d", n); return sum + n; };
	sum += lambda(argc + 8);
	return sum == 0;
}
