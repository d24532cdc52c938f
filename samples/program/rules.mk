# SPDX-License-Identifier: MIT
# The programs. Each has its objects in $(OBJ)/<program>/.

HOSTED := -fno-stack-protector -Iprogram
# For those without libc, linked with program/start*.
FREE := -DFREESTANDING -ffreestanding -fno-stack-protector -Iprogram
NO_CALL_OF_ITSELF := -fno-tree-loop-distribute-patterns
FREE_LD := -nostdlib -Wl,--build-id=sha1 -Wl,-z,noexecstack -Wl,-z,max-page-size=0x1000
FREE_C := main work say start
HOSTED_LD := -Wl,--build-id=sha1 -Wl,-z,noexecstack
# arm64's pages may be 64 KB, and a linker that reckons with it makes files of 64 KB and more.
ARM64_HOSTED_LD := $(HOSTED_LD) -Wl,-z,max-page-size=0x1000
# Debian's gcc has -fcf-protection off by default, Ubuntu's on: say which.
NO_CET := -fcf-protection=none
PAD := -fpatchable-function-entry
FENTRY := -pg -mfentry -mrecord-mcount -fcf-protection=none

# $(call program,NAME,COMPILER,FLAGS,LINK FLAGS,SOURCES WITHOUT SUFFIX,WHAT COMES AFTER)
define program
PROGRAMS += $(OUT)/$(1)
$(OBJ)/$(1)/%.o: program/%.c program/program.h | $(OBJ)/$(1)
	$(2) $$(if $$(findstring clang,$(2)),$$(COMMON),$$(COMMON_GCC)) $(3) -c $$< -o $$@
$(OBJ)/$(1)/%.o: program/%.S program/bti-note.h | $(OBJ)/$(1)
	$(2) $$(filter-out -pg -mfentry -mrecord-mcount -mnop-mcount,$(3)) -c $$< -o $$@
$(OBJ)/$(1):
	mkdir -p $$@
$(OUT)/$(1): $(patsubst %,$(OBJ)/$(1)/%.o,$(5)) | $(OUT)
	$(2) $$(filter %.o,$$^) $(4) -o $$@
	$(6)
endef

# Pads (-fpatchable-function-entry), x86-64 and libc.
X86_C := main work say entry-x86_64
$(eval $(call program,pad,$(CC),$(HOSTED) -fPIE $(NO_CET) $(PAD)=5,-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-nonpie,$(CC),$(HOSTED) -fno-pie $(NO_CET) $(PAD)=5,\
	-no-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-cet,$(CC),$(HOSTED) -fPIE -fcf-protection=full $(PAD)=5,\
	-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-5-5,$(CC),$(HOSTED) -fPIE $(NO_CET) $(PAD)=5$(comma)5,\
	-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-7-2,$(CC),$(HOSTED) -fPIE $(NO_CET) $(PAD)=7$(comma)2,\
	-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-clang,$(CLANG),$(HOSTED) -fPIE $(PAD)=5,-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,pad-clang-cet,$(CLANG),$(HOSTED) -fPIE -fcf-protection=full $(PAD)=5,\
	-pie $(HOSTED_LD),$(X86_C)))

# Pads without libc.
$(eval $(call program,pad-static,$(CC),$(FREE) $(NO_CALL_OF_ITSELF) -fno-pie $(NO_CET) $(PAD)=5,\
	-static -no-pie $(FREE_LD),$(FREE_C) start-x86_64 entry-x86_64))
$(eval $(call program,pad-static-pie,$(CC),$(FREE) $(NO_CALL_OF_ITSELF) -DSTATIC_PIE -fPIE \
	$(NO_CET) $(PAD)=5,-static-pie $(FREE_LD),$(FREE_C) start-x86_64 entry-x86_64))
# With glibc inside: IRELATIVE, TLS, 700 KB of code without sites. The symbols stay beside the
# objects, for whoever needs an address.
$(eval $(call program,pad-glibc-static,$(CC),$(HOSTED) -fno-pie $(NO_CET) $(PAD)=5,\
	-static -no-pie $(HOSTED_LD),$(X86_C),\
	cp $$@ $$(@:$$(OUT)/%=$$(OBJ)/%/symbols) && strip -s $$@))

# Derived from pad: without symbols; without section headers.
PROGRAMS += $(OUT)/pad-stripped $(OUT)/pad-noheaders
$(OUT)/pad-stripped: $(OUT)/pad
	strip -s -o $@ $<
$(OUT)/pad-noheaders: $(OUT)/pad tools/strip_headers.py
	cp $< $@
	$(PYTHON) tools/strip_headers.py $@

# -pg -mfentry -mrecord-mcount. The program brings its own __fentry__.
$(eval $(call program,fentry,$(CC),$(HOSTED) -fno-pie $(FENTRY),-no-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,fentry-cet,$(CC),$(HOSTED) -fno-pie -pg -mfentry -mrecord-mcount \
	-fcf-protection=full,-no-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,fentry-nop,$(CC),$(HOSTED) -fno-pie $(FENTRY) -mnop-mcount,\
	-no-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,fentry-pie,$(CC),$(HOSTED) -fPIE $(FENTRY),-pie $(HOSTED_LD),$(X86_C)))
$(eval $(call program,fentry-pie-got,$(CC),$(HOSTED) -fPIE $(FENTRY),\
	-pie -Wl$(comma)--no-relax $(HOSTED_LD),$(X86_C)))
$(eval $(call program,fentry-static,$(CC),$(FREE) $(NO_CALL_OF_ITSELF) -fno-pie $(FENTRY),\
	-static -no-pie $(FREE_LD),$(FREE_C) start-x86_64 entry-x86_64))

# Shared libraries. A program finds its library beside itself.
BESIDE := -L$(OUT) -Wl$(comma)-rpath$(comma)'$$$$ORIGIN'
$(eval $(call program,libfentry.so,$(CC),,-shared -nostdlib $(HOSTED_LD),fentry))
$(eval $(call program,fentry-plt,$(CC),$(HOSTED) -fno-pie $(FENTRY) -DNO_FENTRY,\
	-no-pie $(HOSTED_LD) $(BESIDE) -lfentry,$(X86_C)))
$(OUT)/fentry-plt: $(OUT)/libfentry.so
$(eval $(call program,libpad.so,$(CC),$(HOSTED) -fPIC $(NO_CET) $(PAD)=5,\
	-shared $(HOSTED_LD),work library entry-x86_64))
$(eval $(call program,pad-library,$(CC),$(HOSTED) -fPIE $(NO_CET) $(PAD)=5 -DLIBRARY,\
	-pie $(HOSTED_LD) $(BESIDE) -lpad,main say entry-x86_64))
$(OUT)/pad-library: $(OUT)/libpad.so
$(eval $(call program,libmfentry.so,$(CC),$(HOSTED) -fPIC $(FENTRY),\
	-shared $(HOSTED_LD),work library entry-x86_64))
$(eval $(call program,fentry-library,$(CC),$(HOSTED) -fPIE $(FENTRY) -DLIBRARY -DNO_FENTRY,\
	-pie $(HOSTED_LD) $(BESIDE) -lmfentry,main say entry-x86_64))
$(OUT)/fentry-library: $(OUT)/libmfentry.so

# i386, without libc, so that they run where no 32-bit libraries are.
I386 := $(FREE) $(NO_CALL_OF_ITSELF) -march=i686 $(NO_CET)
I386_C := $(FREE_C) start-i386 entry-i386
$(eval $(call program,i386-pad,$(CC_i386),$(I386) -fno-pie $(PAD)=5,\
	-static -no-pie $(FREE_LD),$(I386_C)))
$(eval $(call program,i386-pad-pie,$(CC_i386),$(I386) -DSTATIC_PIE -fPIE $(PAD)=5,\
	-static-pie $(FREE_LD),$(I386_C)))
$(eval $(call program,i386-fentry,$(CC_i386),$(I386) -fno-pie -pg -mfentry -mrecord-mcount,\
	-static -no-pie $(FREE_LD),$(I386_C)))
$(eval $(call program,i386-mcount,$(CC_i386),$(I386) -fno-pie -pg -mno-fentry -mrecord-mcount,\
	-static -no-pie $(FREE_LD),$(I386_C)))

# -pg in a PIE: a call through the GOT, ff 93, of which the linker makes 67 e8 where it may.
I386_PIE := $(I386) -DSTATIC_PIE -fPIE -pg -mno-fentry -mrecord-mcount
I386_PIE_LD := -static-pie -Wl$(comma)-z$(comma)notext -Wl$(comma)-T$(comma)program/mcount.lds
$(eval $(call program,i386-mcount-pie,$(CC_i386),$(I386_PIE),$(I386_PIE_LD) $(FREE_LD),$(I386_C)))
$(eval $(call program,i386-mcount-pie-got,$(CC_i386),$(I386_PIE) -Wa$(comma)-mrelax-relocations=no,\
	$(I386_PIE_LD) $(FREE_LD),$(I386_C)))
$(OUT)/i386-mcount-pie $(OUT)/i386-mcount-pie-got: program/mcount.lds

# arm64.
ARM64_C := main work say entry-arm64
ARM64_FREE_C := $(FREE_C) start-arm64 entry-arm64
NO_BTI := -mbranch-protection=none
$(eval $(call program,arm64-pad,$(CC_arm64),$(HOSTED) -fPIE $(NO_BTI) $(PAD)=2,\
	-pie $(ARM64_HOSTED_LD),$(ARM64_C)))
$(eval $(call program,arm64-pad-bti,$(CC_arm64),$(HOSTED) -fPIE -mbranch-protection=standard \
	$(PAD)=2,-pie $(ARM64_HOSTED_LD),$(ARM64_C)))
$(eval $(call program,arm64-pad-static,$(CC_arm64),$(FREE) $(NO_CALL_OF_ITSELF) -fno-pie \
	$(NO_BTI) $(PAD)=2,-static -no-pie $(FREE_LD),$(ARM64_FREE_C)))
$(eval $(call program,arm64-pad-static-bti,$(CC_arm64),$(FREE) $(NO_CALL_OF_ITSELF) -fno-pie \
	-mbranch-protection=standard $(PAD)=2,-static -no-pie $(FREE_LD),$(ARM64_FREE_C)))
$(eval $(call program,arm64-pad-4-2,$(CC_arm64),$(FREE) $(NO_CALL_OF_ITSELF) -fno-pie \
	-mbranch-protection=standard -falign-functions=8 $(PAD)=4$(comma)2,\
	-static -no-pie $(FREE_LD),$(ARM64_FREE_C)))
ARM64_CLANG := $(CLANG) --target=aarch64-linux-gnu
$(eval $(call program,arm64-pad-clang-bti,$(ARM64_CLANG),$(FREE) -fno-pie \
	-mbranch-protection=standard $(PAD)=2,\
	-static -fuse-ld=lld $(FREE_LD),$(ARM64_FREE_C)))

# riscv64. The number counts instructions: NOPs of two bytes, without the C extension of four.
RISCV64_C := main work say entry-riscv64
RISCV64_FREE := $(FREE) $(NO_CALL_OF_ITSELF) -fno-pie
RISCV64_FREE_C := $(FREE_C) start-riscv64 entry-riscv64
RISCV64_FREE_LD := -static $(FREE_LD)
$(eval $(call program,riscv64-pad,$(CC_riscv64),$(HOSTED) -fPIE $(PAD)=4,\
	-pie $(HOSTED_LD),$(RISCV64_C)))
$(eval $(call program,riscv64-pad-static,$(CC_riscv64),$(RISCV64_FREE) $(PAD)=4,\
	$(RISCV64_FREE_LD),$(RISCV64_FREE_C)))
$(eval $(call program,riscv64-pad-static-pie,$(CC_riscv64),$(FREE) $(NO_CALL_OF_ITSELF) \
	-DSTATIC_PIE -fPIE $(PAD)=4,-static-pie $(FREE_LD),$(RISCV64_FREE_C)))
$(eval $(call program,riscv64-pad-8,$(CC_riscv64),$(RISCV64_FREE) $(PAD)=8,\
	$(RISCV64_FREE_LD),$(RISCV64_FREE_C)))
$(eval $(call program,riscv64-pad-8-4,$(CC_riscv64),$(RISCV64_FREE) -falign-functions=8 \
	$(PAD)=8$(comma)4,$(RISCV64_FREE_LD),$(RISCV64_FREE_C)))
$(eval $(call program,riscv64-pad-noc,$(CC_riscv64),$(RISCV64_FREE) -march=rv64g $(PAD)=2,\
	$(RISCV64_FREE_LD),$(RISCV64_FREE_C)))
# lld 14 does not relax.
RISCV64_CLANG := $(CLANG) --target=riscv64-linux-gnu
$(eval $(call program,riscv64-pad-clang,$(RISCV64_CLANG),$(FREE) -fno-pie -march=rv64gc \
	-mno-relax $(PAD)=4,-static -fuse-ld=lld $(FREE_LD),$(RISCV64_FREE_C)))

# -pg: `call _mcount`, which a linker would relax to a jal. gcc has no -mrecord-mcount here.
RISCV64_MCOUNT := $(RISCV64_FREE) -DMCOUNT
$(eval $(call program,riscv64-mcount,$(CC_riscv64),$(RISCV64_MCOUNT),\
	$(RISCV64_FREE_LD) -Wl$(comma)--no-relax,$(RISCV64_FREE_C)))
$(OBJ)/riscv64-mcount/%.s: program/%.c program/program.h tools/objtool.py | $(OBJ)/riscv64-mcount
	$(CC_riscv64) $(COMMON_GCC) $(RISCV64_MCOUNT) -pg -S $< -o $@
	$(PYTHON) tools/objtool.py mcount $@
$(addprefix $(OBJ)/riscv64-mcount/,main.o work.o): %.o: %.s
	$(CC_riscv64) -c $< -o $@
