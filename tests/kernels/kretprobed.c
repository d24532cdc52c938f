// SPDX-License-Identifier: MIT
/* Counts calls and returns by the kernel's own kretprobes, and hits within functions by kprobes, from
 * the first call of do_rmdir to the second. */
#include <linux/kprobes.h>
#include <linux/module.h>

#define MOST 8

static char *names[MOST];
static int count;
module_param_array(names, charp, &count, 0);
static int most[MOST];
module_param_array(most, int, NULL, 0);

static char *within[MOST];
static int places;
module_param_array(within, charp, &places, 0);
static int offsets[MOST];
module_param_array(offsets, int, NULL, 0);

static struct kretprobe probes[MOST], marker;
static struct kprobe inside[MOST];
static atomic_t entered[MOST], returned[MOST], hits[MOST], phase;
static atomic64_t values[MOST], results[MOST];

static int marked(struct kretprobe_instance *one, struct pt_regs *regs)
{
	atomic_inc(&phase);
	return 1; /* its return is of no interest */
}

static int enters(struct kretprobe_instance *one, struct pt_regs *regs)
{
	if (atomic_read(&phase) != 1)
		return 1;
	atomic_inc(&entered[get_kretprobe(one) - probes]);
	return 0;
}

static int returns(struct kretprobe_instance *one, struct pt_regs *regs)
{
	int number = get_kretprobe(one) - probes;

	atomic_inc(&returned[number]);
	atomic64_add(regs_return_value(regs), &values[number]);
	return 0;
}

static int reached(struct kprobe *one, struct pt_regs *regs)
{
	if (atomic_read(&phase) == 1) {
		atomic_inc(&hits[one - inside]);
		atomic64_add(regs_return_value(regs), &results[one - inside]);
	}
	return 0;
}

static int __init kretprobed_init(void)
{
	int number, error;

	for (number = 0; number < count; number++) {
		probes[number].kp.symbol_name = names[number];
		probes[number].entry_handler = enters;
		probes[number].handler = returns;
		probes[number].maxactive = most[number];
		error = register_kretprobe(&probes[number]);
		if (error)
			return error;
	}
	for (number = 0; number < places; number++) {
		inside[number].symbol_name = within[number];
		inside[number].offset = offsets[number];
		inside[number].pre_handler = reached;
		error = register_kprobe(&inside[number]);
		if (error)
			return error;
	}
	marker.kp.symbol_name = "do_rmdir";
	marker.entry_handler = marked;
	return register_kretprobe(&marker);
}

static void __exit kretprobed_exit(void)
{
	int number;

	unregister_kretprobe(&marker);
	for (number = 0; number < places; number++) {
		unregister_kprobe(&inside[number]);
		pr_alert("kprobed %s+%d hits %d missed %lu values %lld\n", within[number],
			 offsets[number], atomic_read(&hits[number]), inside[number].nmissed,
			 (long long)atomic64_read(&results[number]));
	}
	for (number = 0; number < count; number++) {
		unregister_kretprobe(&probes[number]);
		pr_alert("kretprobed %s entered %d returned %d missed %d values %lld\n", names[number],
			 atomic_read(&entered[number]), atomic_read(&returned[number]),
			 probes[number].nmissed, (long long)atomic64_read(&values[number]));
	}
}

module_init(kretprobed_init);
module_exit(kretprobed_exit);
MODULE_LICENSE("GPL");
