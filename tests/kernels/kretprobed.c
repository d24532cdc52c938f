// SPDX-License-Identifier: MIT
/* Counts calls and returns by the kernel's own kretprobes, from the first call of do_rmdir to the
 * second. */
#include <linux/kprobes.h>
#include <linux/module.h>

#define MOST 8

static char *names[MOST];
static int count;
module_param_array(names, charp, &count, 0);
static int most[MOST];
module_param_array(most, int, NULL, 0);

static struct kretprobe probes[MOST], marker;
static atomic_t entered[MOST], returned[MOST], phase;
static atomic64_t values[MOST];

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
	marker.kp.symbol_name = "do_rmdir";
	marker.entry_handler = marked;
	return register_kretprobe(&marker);
}

static void __exit kretprobed_exit(void)
{
	int number;

	unregister_kretprobe(&marker);
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
