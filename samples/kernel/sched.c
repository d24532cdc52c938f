// SPDX-License-Identifier: MIT
#include "kernel.h"

static struct task_struct tasks[NR_TASKS];
static struct task_struct *runqueue;
static uint64_t ticks;
uint32_t taint;

/* Called by tracers themselves, hence never traced. */
notrace uint64_t sched_clock(void)
{
	return ticks += 1000;
}

void enqueue_task(struct task_struct *p)
{
	struct task_struct **at = &runqueue;

	while (*at && (*at)->prio <= p->prio)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
}

void dequeue_task(struct task_struct *p)
{
	for (struct task_struct **at = &runqueue; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			return;
		}
}

own_symbol struct task_struct *pick_next_task(void)
{
	struct task_struct *best = runqueue;

	for (struct task_struct *p = runqueue; p; p = p->next)
		if (p->runtime < best->runtime)
			best = p;
	return best;
}

void schedule(void)
{
	struct task_struct *next = pick_next_task();

	if (!next) {
		arch_cpu_idle();
		return;
	}
	dequeue_task(next);
	next->runtime += sched_clock();
	enqueue_task(next);
}

int wake_up_process(struct task_struct *p)
{
	if (p->next || runqueue == p)
		return 0;
	enqueue_task(p);
	return 1;
}

struct task_struct *kernel_thread(int prio)
{
	for (int i = 0; i < NR_TASKS; i++)
		if (!tasks[i].pid) {
			tasks[i].pid = i + 1;
			tasks[i].prio = prio;
			return &tasks[i];
		}
	return NULL;
}

int do_softirq(unsigned int pending)
{
	int done = 0;

	while (pending) {
		pending &= pending - 1;
		schedule();
		done++;
	}
	return done;
}

void warn_slowpath(const char *why)
{
	taint |= (uint32_t)(unsigned char)*why << 16;
}

void panic(const char *why)
{
	warn_slowpath(why);
	for (;;)
		cpu_halt();
}
