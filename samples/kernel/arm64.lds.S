/* SPDX-License-Identifier: MIT */
/*
 * A linked arm64 kernel's shape, after arch/arm64/kernel/vmlinux.lds.S.
 * FAR: the tracers' entries lie 256 MB away. .init.text then comes before .text, so that its
 * calls still reach and the linker adds no veneers of its own.
 * ROOM: bytes of .text that belong to no symbol.
 * NONE_SLOTS: unused entries at the end of .rela.dyn, all zero, that is R_AARCH64_NONE.
 */
#define PAGE 0x1000
#define FAR_DISTANCE 0x10000000
#ifndef KIMAGE_VADDR
#define KIMAGE_VADDR 0xffff800008000000
#endif

#define INIT_TEXT \
	.init.text : { \
		_sinittext = .; \
		*(.init.text .init.text.*) \
		_einittext = .; \
	}

ENTRY(_text)

PHDRS
{
	text PT_LOAD FLAGS(7);
	init PT_LOAD FLAGS(7);
	data PT_LOAD FLAGS(6);
	note PT_NOTE FLAGS(4);
}

SECTIONS
{
	/DISCARD/ : {
		*(.interp .dynamic)
		*(.dynsym .dynstr .hash .gnu.hash .gnu.version*)
		*(.eh_frame)
		*(.note.gnu.property)
		*(.note.GNU-stack)
	}

	. = KIMAGE_VADDR;
	.head.text : {
		_text = .;
		KEEP(*(.head.text))
	} :text
#ifdef FAR
	. = ALIGN(PAGE);
	INIT_TEXT :text
#endif

	. = ALIGN(PAGE);
	.text : {
		_stext = .;
		*(.text.hot .text.hot.*)
		*(.text)
		*(.text.unlikely .text.unlikely.*)
#ifdef ROOM
		. = . + ROOM;
#endif
#ifdef FAR
	} :text
	. = KIMAGE_VADDR + FAR_DISTANCE;
	.text.far : {
		*(.text.far)
	} :init
#else
	} :text
#endif
	_etext = .;

	. = ALIGN(16);
	.rodata : {
		*(.rodata.banner)
		*(.rodata .rodata.*)
	}
	.notes : {
		KEEP(*(.note.gnu.build-id))
#ifdef FAR
	} :init :note
#else
	} :text :note
#endif

	. = ALIGN(PAGE);
	__init_begin = .;
#ifndef FAR
	INIT_TEXT :init
#endif
	.init.data : {
		*(.init.data .init.data.*)
		. = ALIGN(8);
		__start_mcount_loc = .;
		KEEP(*(__mcount_loc))
		KEEP(*(__patchable_function_entries))
		__stop_mcount_loc = .;
	} :init
	.rela.dyn : ALIGN(8) {
		__rela_start = .;
		*(.rela .rela*)
#ifdef NONE_SLOTS
		. = . + NONE_SLOTS * 24;
#endif
		__rela_end = .;
	} :init
#ifdef CALL_OPS
	.relr.dyn : ALIGN(8) {
		__relr_start = .;
		*(.relr.dyn)
		__relr_end = .;
	} :init
#endif
	__init_end = .;

	. = ALIGN(PAGE);
	.data : {
		_data = .;
		*(.data .data.*)
		_edata = .;
	} :data
	/* Linux asserts that these hold no entries. */
	.got : { *(.got) *(.got.plt) } :data
	.plt : { *(.plt) *(.iplt) } :data
	.bss : {
		__bss_start = .;
		*(.bss .bss.*)
		*(COMMON)
		__bss_stop = .;
	} :data
	_end = .;
	_kernel_size_le_lo32 = ABSOLUTE((_end - _text) & 0xffffffff);
	_kernel_size_le_hi32 = ABSOLUTE((_end - _text) >> 32);
	.comment 0 : { *(.comment) }
}
