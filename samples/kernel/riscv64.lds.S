/* SPDX-License-Identifier: MIT */
/* A linked riscv64 kernel's shape, after arch/riscv/kernel/vmlinux.lds.S; not relocatable. */
#define PAGE 0x1000
#define KERNEL_LINK_ADDR 0xffffffff80000000

ENTRY(_start)

PHDRS
{
	text PT_LOAD FLAGS(5);
	init PT_LOAD FLAGS(7);
	data PT_LOAD FLAGS(6);
	note PT_NOTE FLAGS(4);
}

SECTIONS
{
	. = KERNEL_LINK_ADDR;
	.head.text : {
		KEEP(*(.head.text))
	} :text

	. = ALIGN(PAGE);
	.text : {
		_text = .;
		_stext = .;
		*(.text.hot .text.hot.*)
		*(.text)
		*(.text.unlikely .text.unlikely.*)
		_etext = .;
	} :text

	. = ALIGN(PAGE);
	__init_begin = .;
	.init.text : {
		_sinittext = .;
		*(.init.text .init.text.*)
		_einittext = .;
	} :init
	.init.data : {
		*(.init.data .init.data.*)
		. = ALIGN(8);
		__start_mcount_loc = .;
		KEEP(*(__mcount_loc))
		KEEP(*(__patchable_function_entries))
		__stop_mcount_loc = .;
	} :init
	__init_end = .;

	. = ALIGN(PAGE);
	.rodata : {
		*(.rodata.banner)
		*(.rodata .rodata.* .srodata .srodata.*)
	} :data
	.notes : {
		KEEP(*(.note.gnu.build-id))
	} :data :note
	.data : {
		_data = .;
		*(.data .data.*)
		*(.sdata .sdata.*)
		_edata = .;
	} :data
	.bss : {
		__bss_start = .;
		*(.sbss .sbss.* .bss .bss.*)
		*(COMMON)
		__bss_stop = .;
	} :data
	_end = .;
	_kernel_size = ABSOLUTE(_end - _start);

	/DISCARD/ : {
		*(.eh_frame)
		*(.note.GNU-stack)
	}
	.comment 0 : { *(.comment) }
	.riscv.attributes 0 : { *(.riscv.attributes) }
}
