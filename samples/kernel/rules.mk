# SPDX-License-Identifier: MIT
# The kernel-like images. Each has its objects in $(OBJ)/<image>/, so that one source can be
# built in several ways.

KERNEL_C := read_write open namei sched weak arch lib main
KFLAGS := -ffreestanding -fno-stack-protector -fno-strict-aliasing -fno-common -fno-PIE \
	-Ikernel
# gcc only: or memcpy would become a call of itself.
KFLAGS_GCC := -fno-tree-loop-distribute-patterns
X86_64_FLAGS := -mcmodel=kernel -mno-red-zone -mno-sse -mno-mmx -pg -mfentry
I386_FLAGS := -m32 -march=i686 -mregparm=3 -freg-struct-return -mno-sse -mno-mmx \
	-pg -mfentry -mrecord-mcount -fcf-protection=none
# On x86 -O2 splits cold parts off by itself.
ARM64_FLAGS := -mgeneral-regs-only -mno-outline-atomics -freorder-blocks-and-partition
ARM64_61 := -fpatchable-function-entry=2 -mbranch-protection=none
X86_LD := -nostdlib -static -no-pie -Wl,--build-id=sha1 -Wl,-z,max-page-size=0x1000 \
	-Wl,-z,noexecstack -Wl,--no-warn-rwx-segments
# As Linux links arm64: shared, so that the relocations for KASLR stay.
ARM64_LD := -nostdlib -shared -Wl,-Bsymbolic -Wl,-z,notext -Wl,--build-id=sha1 \
	-Wl,-z,max-page-size=0x1000 -Wl,-z,noexecstack -Wl,--no-warn-rwx-segments

# $(call release,6.1,gcc)
release = -DKERNEL_RELEASE='"$(1)-sample"' -DKERNEL_COMPILER='"$(2)"'

KERNELS := $(addprefix $(OUT)/,vmlinux-x86_64 vmlinux-x86_64-clang vmlinux-i386 \
	vmlinux-arm64 vmlinux-arm64-callops vmlinux-arm64-callops-room \
	vmlinux-arm64-far vmlinux-arm64-far-full \
	vmlinux-riscv64 vmlinux-riscv64-callops)

# $(call kernel-objects,IMAGE,COMPILER,FLAGS,NAMES): build NAMES.c/.S into $(OBJ)/IMAGE/
define kernel-objects
$(OBJ)/$(1)/%.o: kernel/%.c kernel/kernel.h | $(OBJ)/$(1)
	$(2) $$(COMMON_GCC) $(KFLAGS) $(KFLAGS_GCC) $(3) $$(FLAGS_$(1)_$$*) -c $$< -o $$@
$(OBJ)/$(1)/%.o: kernel/%.S | $(OBJ)/$(1)
	$(2) -fno-PIE $$(filter-out -pg -mfentry -mrecord-mcount,$(3)) -c $$< -o $$@
$(OBJ)/$(1)/%.lds: kernel/%.lds.S | $(OBJ)/$(1)
	$(2) -E -P -undef -x c $(4) $$< -o $$@
$(OBJ)/$(1):
	mkdir -p $$@
endef
objects = $(patsubst %,$(OBJ)/$(1)/%.o,$(2))

$(OUT):
	mkdir -p $@

# x86-64: -mrecord-mcount makes the table. read_write.c has endbr64 before its sites, sched.c
# has call padding with __pfx_ symbols. weak.c's overridden records become null.
FLAGS_vmlinux-x86_64_read_write := -fcf-protection=branch
$(eval $(call kernel-objects,vmlinux-x86_64,$(CC),$(X86_64_FLAGS) -mrecord-mcount \
	-fcf-protection=none $(call release,6.12,gcc),-D__x86_64__))
$(OBJ)/vmlinux-x86_64/sched.s: kernel/sched.c kernel/kernel.h | $(OBJ)/vmlinux-x86_64
	$(CC) $(COMMON_GCC) $(KFLAGS) $(KFLAGS_GCC) $(X86_64_FLAGS) -mrecord-mcount -fcf-protection=none \
		-fpatchable-function-entry=16,16 -S $< -o $@
	$(PYTHON) tools/objtool.py prefix $@
$(OBJ)/vmlinux-x86_64/sched.o: $(OBJ)/vmlinux-x86_64/sched.s
	$(CC) -c $< -o $@
$(OUT)/vmlinux-x86_64: $(OBJ)/vmlinux-x86_64/x86.lds tools/sorttable.py \
		$(call objects,vmlinux-x86_64,entry-x86_64 $(KERNEL_C) nops) | $(OUT)
	$(CC) $(X86_LD) -Wl,-T,$< $(filter %.o,$^) -o $@
	$(PYTHON) tools/sorttable.py $@

# The same by clang and lld: no -mrecord-mcount there, objtool makes the table. Not sorted,
# and the records of overridden weak functions are left as they are, as before v6.15.
$(OBJ)/vmlinux-x86_64-clang:
	mkdir -p $@
# Made on the way to an object, and kept: what objtool did can be read there.
.PRECIOUS: $(OBJ)/vmlinux-x86_64-clang/%.s
FLAGS_vmlinux-x86_64-clang_read_write := -fcf-protection=branch
$(OBJ)/vmlinux-x86_64-clang/%.s: kernel/%.c kernel/kernel.h tools/objtool.py \
		| $(OBJ)/vmlinux-x86_64-clang
	$(CLANG) $(COMMON) $(KFLAGS) $(X86_64_FLAGS) $(call release,6.1,clang) \
		-fno-omit-frame-pointer $(FLAGS_vmlinux-x86_64-clang_$*) -S $< -o $@
	$(PYTHON) tools/objtool.py mcount $@
$(OBJ)/vmlinux-x86_64-clang/%.o: $(OBJ)/vmlinux-x86_64-clang/%.s
	$(CLANG) -c $< -o $@
$(OBJ)/vmlinux-x86_64-clang/entry-x86_64.o: kernel/entry-x86_64.S | $(OBJ)/vmlinux-x86_64-clang
	$(CLANG) -c $< -o $@
$(OBJ)/vmlinux-x86_64-clang/x86.lds: kernel/x86.lds.S | $(OBJ)/vmlinux-x86_64-clang
	$(CLANG) -E -P -undef -x c -D__x86_64__ $< -o $@
$(OUT)/vmlinux-x86_64-clang: $(OBJ)/vmlinux-x86_64-clang/x86.lds \
		$(call objects,vmlinux-x86_64-clang,entry-x86_64 $(KERNEL_C) nops) | $(OUT)
	$(LLD) -nostdlib -static --build-id=sha1 -z max-page-size=0x1000 -z noexecstack \
		-T $< $(filter %.o,$^) -o $@

$(eval $(call kernel-objects,vmlinux-i386,$(CC_i386),$(I386_FLAGS) \
	$(call release,6.1,gcc),-D__i386__))
$(OUT)/vmlinux-i386: $(OBJ)/vmlinux-i386/x86.lds tools/sorttable.py \
		$(call objects,vmlinux-i386,entry-i386 $(KERNEL_C) nops) | $(OUT)
	$(CC_i386) $(X86_LD) -Wl,-T,$< $(filter %.o,$^) -o $@
	$(PYTHON) tools/sorttable.py $@

# arm64 as 6.1: the table's bytes are zero, its values are addends in .rela.dyn, it is not
# sorted (init/main.o is linked first), nothing is nulled.
FLAGS_vmlinux-arm64_read_write := -mbranch-protection=bti
FLAGS_vmlinux-arm64_open := -mbranch-protection=pac-ret
$(eval $(call kernel-objects,vmlinux-arm64,$(CC_arm64),$(ARM64_FLAGS) $(ARM64_61) \
	$(call release,6.1,gcc),))
$(OUT)/vmlinux-arm64: $(OBJ)/vmlinux-arm64/arm64.lds \
		$(call objects,vmlinux-arm64,entry-arm64 main $(filter-out main,$(KERNEL_C))) | $(OUT)
	$(CC_arm64) $(ARM64_LD) -Wl,--no-apply-dynamic-relocs -Wl,-T,$< $(filter %.o,$^) -o $@

# arm64 as 6.12: CALL_OPS, values in place, most relocations in .relr.dyn (lld makes them; the
# cross GNU ld of Debian 12 cannot). GNU ld leaves R_AARCH64_NONE entries where it reserved
# more than it needed; lld reserves exactly, so the linker script adds NONE_SLOTS of them.
CALLOPS := -DCALL_OPS -DKIMAGE_VADDR=0xffff800080000000 -DNONE_SLOTS=24
# callops-room has 256 bytes of .text that belong to no symbol.
define callops-image
FLAGS_$(1)_read_write := -mbranch-protection=bti
FLAGS_$(1)_open := -mbranch-protection=pac-ret
FLAGS_$(1)_namei := -mbranch-protection=standard
$(call kernel-objects,$(1),$(CC_arm64),$(ARM64_FLAGS) \
	-fpatchable-function-entry=4$(comma)2 -falign-functions=8 -mbranch-protection=none \
	$(call release,6.12,gcc) -DCALL_OPS,$(CALLOPS) $(2))
$(OUT)/$(1): $(OBJ)/$(1)/arm64.lds tools/sorttable.py \
		$(call objects,$(1),entry-arm64 $(KERNEL_C) ops) | $(OUT)
	$(LLD) -nostdlib -shared -Bsymbolic -z notext --build-id=sha1 -z max-page-size=0x1000 \
		-z noexecstack --pack-dyn-relocs=relr --apply-dynamic-relocs -T $$< \
		$$(filter %.o,$$^) -o $$@
	$(PYTHON) tools/sorttable.py --before 8 $$@
endef
$(eval $(call callops-image,vmlinux-arm64-callops,))
$(eval $(call callops-image,vmlinux-arm64-callops-room,-DROOM=256))

# The entries lie 256 MB from the sites. far: room for a veneer in .text; far-full: none.
FAR := -DFAR
$(foreach image,vmlinux-arm64-far vmlinux-arm64-far-full,$(eval $(call \
	kernel-objects,$(image),$(CC_arm64),$(ARM64_FLAGS) $(ARM64_61) -falign-functions=4 \
	-DGRAPH_CALL -DTRACER_SECTION=.text.far $(call release,5.10,gcc), \
	$(FAR) $(if $(findstring full,$(image)),,-DROOM=96))))
$(OUT)/vmlinux-arm64-far: $(OBJ)/vmlinux-arm64-far/arm64.lds \
		$(call objects,vmlinux-arm64-far,entry-arm64 $(KERNEL_C)) | $(OUT)
	$(CC_arm64) $(ARM64_LD) -Wl,--no-apply-dynamic-relocs -Wl,-T,$< $(filter %.o,$^) -o $@
# Without arch.o the weak defaults are in use: overridden code would be room, too.
$(OUT)/vmlinux-arm64-far-full: $(OBJ)/vmlinux-arm64-far-full/arm64.lds \
		$(call objects,vmlinux-arm64-far-full,entry-arm64 $(filter-out arch,$(KERNEL_C))) | $(OUT)
	$(CC_arm64) $(ARM64_LD) -Wl,--no-apply-dynamic-relocs -Wl,-T,$< $(filter %.o,$^) -o $@

# riscv64 as 6.12: the record is the function's start, nothing is nulled, ftrace_call. Linked at a
# fixed address, so nothing is relocated. --no-relax: or a call of ftrace_stub has no room.
RISCV64_FLAGS := -march=rv64imac -mabi=lp64 -mcmodel=medany -freorder-blocks-and-partition
RISCV64_LD := -nostdlib -static -no-pie -Wl,--no-relax -Wl,--build-id=sha1 \
	-Wl,-z,max-page-size=0x1000 -Wl,-z,noexecstack -Wl,--no-warn-rwx-segments
$(eval $(call kernel-objects,vmlinux-riscv64,$(CC_riscv64),$(RISCV64_FLAGS) \
	-fpatchable-function-entry=4 $(call release,6.12,gcc),))
$(OUT)/vmlinux-riscv64: $(OBJ)/vmlinux-riscv64/riscv64.lds \
		$(call objects,vmlinux-riscv64,entry-riscv64 $(KERNEL_C)) | $(OUT)
	$(CC_riscv64) $(RISCV64_LD) -Wl,-T,$< $(filter %.o,$^) -o $@

# riscv64 as 7.2: CALL_OPS, and the table is sorted.
$(eval $(call kernel-objects,vmlinux-riscv64-callops,$(CC_riscv64),$(RISCV64_FLAGS) \
	-fpatchable-function-entry=8$(comma)4 -falign-functions=8 $(call release,7.2,gcc) \
	-DCALL_OPS,))
$(OUT)/vmlinux-riscv64-callops: $(OBJ)/vmlinux-riscv64-callops/riscv64.lds tools/sorttable.py \
		$(call objects,vmlinux-riscv64-callops,entry-riscv64 $(KERNEL_C) ops) | $(OUT)
	$(CC_riscv64) $(RISCV64_LD) -Wl,-T,$< $(filter %.o,$^) -o $@
	$(PYTHON) tools/sorttable.py --before 8 $@
