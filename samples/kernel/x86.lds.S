/* SPDX-License-Identifier: MIT */
/*
 * A linked x86 kernel's shape, after arch/x86/kernel/vmlinux.lds.S. Linux aligns segments to
 * 2 MB; one page keeps the files small.
 */
#ifdef __x86_64__
#define LOAD_OFFSET 0xffffffff80000000
#define START startup_64
#define PHYS_START phys_startup_64
#else
#define LOAD_OFFSET 0xc0000000
#define START startup_32
#define PHYS_START phys_startup_32
#endif
#define PHYS 0x1000000
#define PAGE 0x1000

ENTRY(PHYS_START)

PHDRS
{
	text PT_LOAD FLAGS(5);
	data PT_LOAD FLAGS(6);
	init PT_LOAD FLAGS(7);
	note PT_NOTE FLAGS(0);
}

SECTIONS
{
	. = LOAD_OFFSET + PHYS;
	PHYS_START = ABSOLUTE(START - LOAD_OFFSET);

	.text : AT(ADDR(.text) - LOAD_OFFSET) {
		_text = .;
		_stext = .;
		KEEP(*(.head.text))
		*(.text.hot .text.hot.*)
		*(.text)
		*(.text.unlikely .text.unlikely.*)
		_etext = .;
		. = ALIGN(PAGE);
	} :text = 0xcccccccc

	.rodata : AT(ADDR(.rodata) - LOAD_OFFSET) {
		__start_rodata = .;
		*(.rodata.banner)
		*(.rodata .rodata.*)
	} :text
	.notes : AT(ADDR(.notes) - LOAD_OFFSET) {
		__start_notes = .;
		KEEP(*(.note.gnu.build-id))
		__stop_notes = .;
	} :text :note
	__end_rodata = .;

	. = ALIGN(PAGE);
	.data : AT(ADDR(.data) - LOAD_OFFSET) {
		_sdata = .;
		*(.data .data.*)
		_edata = .;
	} :data

	. = ALIGN(PAGE);
	__init_begin = .;
	.init.text : AT(ADDR(.init.text) - LOAD_OFFSET) {
		_sinittext = .;
		*(.init.text .init.text.*)
		_einittext = .;
	} :init
	.init.data : AT(ADDR(.init.data) - LOAD_OFFSET) {
		*(.init.data .init.data.*)
		. = ALIGN(8);
		__start_mcount_loc = .;
		KEEP(*(__mcount_loc))
		__stop_mcount_loc = .;
		. = ALIGN(PAGE);
	} :init
	__init_end = .;

	.bss : AT(ADDR(.bss) - LOAD_OFFSET) {
		__bss_start = .;
		*(.bss .bss.*)
		*(COMMON)
		__bss_stop = .;
	} :init
	_end = .;

	/DISCARD/ : {
		*(.eh_frame)
		*(.note.gnu.property)
		*(.note.GNU-stack)
		/* On x86 this lists the call padding, not the sites. */
		*(__patchable_function_entries)
	}
	.comment 0 : { *(.comment) }
}
