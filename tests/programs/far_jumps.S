/* SPDX-License-Identifier: MIT */
/* Jumps that no list of branches shows: into the first bytes of functions, by tables, thunks, ret. */
	.text
	.globl main
	.type main,@function
main:
	push %rbx
	push %r12
	xor %ebx,%ebx
	mov $100,%r12d
1:	mov %r12d,%edi
	call loopentry
	add %eax,%ebx
	mov %r12d,%edi
	call midfar
	add %eax,%ebx
	mov %r12d,%edi
	call tiny
	add %eax,%ebx
	mov %r12d,%edi
	call twosym
	add %eax,%ebx
	mov %r12d,%edi
	call thunked
	add %eax,%ebx
	mov %r12d,%edi
	call falls
	add %eax,%ebx
	mov %r12d,%edi
	call pushret
	add %eax,%ebx
	mov %r12d,%edi
	call lockskip
	add %eax,%ebx
	mov %r12d,%edi
	call coldsw
	add %eax,%ebx
	mov %r12d,%edi
	call regtab
	add %eax,%ebx
	dec %r12d
	jnz 1b
	lea fmt(%rip),%rdi
	mov %ebx,%esi
	xor %eax,%eax
	call printf@plt
	xor %eax,%eax
	pop %r12
	pop %rbx
	ret
	.size main,.-main
	.type loopentry,@function
loopentry:
	dec %edi
	jg loopentry
	mov $1,%eax
	ret
	.size loopentry,.-loopentry
	.type midfar,@function
midfar:	xor %eax,%eax
midfar1: inc %eax
	inc %eax
	inc %eax
	nop
	cmp $50,%eax
	jl gofar
	ret
	.size midfar,.-midfar
	.type tiny,@function
tiny:	xor %eax,%eax
	.size tiny,.-tiny
	.type tiny2,@function
tiny2:	inc %eax
	ret
	.size tiny2,.-tiny2
	.type tiny3,@function
tiny3:	mov $3,%eax
	ret
	.size tiny3,.-tiny3
	/* two symbols: the table jump is in the 2nd one, and goes into the first's beginning */
	.type twosym,@function
twosym:	xor %eax,%eax
ts1:	inc %eax
	nop
	nop
	nop
	nop
	nop
	.type twoinner,@function
twoinner:
	cmp $9,%eax
	jg 2f
	lea tab(%rip),%rdx
	jmp *(%rdx)
2:	ret
	.size twoinner,.-twoinner
	.size twosym,.-twosym
	.type thunked,@function
thunked: xor %eax,%eax
th1:	inc %eax
	nop
	nop
	nop
	nop
	cmp $9,%eax
	jg 2f
	lea th1(%rip),%rdx
	jmp thunk_rdx
2:	ret
	.size thunked,.-thunked
	.type thunk_rdx,@function
thunk_rdx:
	call 2f
1:	pause
	lfence
	jmp 1b
2:	mov %rdx,(%rsp)
	ret
	.size thunk_rdx,.-thunk_rdx
	.type falls,@function
falls:	xor %eax,%eax
	inc %eax
	add $7,%eax
	.size falls,.-falls
	.type into,@function
into:	add $2,%eax
	nop
	nop
	ret
	.size into,.-into
	.type pushret,@function
pushret: xor %eax,%eax
pr1:	inc %eax
	nop
	nop
	nop
	nop
	cmp $9,%eax
	jg 2f
	lea pr1(%rip),%rdx
	push %rdx
	ret
2:	ret
	.size pushret,.-pushret
	.type lockskip,@function
lockskip: test $1,%edi
	je 1f
	lock
1:	addl $1,cell(%rip)
	mov $5,%eax
	ret
	.size lockskip,.-lockskip
	.type coldsw,@function
coldsw:	xor %eax,%eax
cs1:	inc %eax
	nop
	nop
	nop
	nop
	cmp $9,%eax
	jl coldsw.cold
	ret
	.size coldsw,.-coldsw
	.type regtab,@function
regtab:	xor %eax,%eax
rt1:	inc %eax
	nop
	nop
	nop
	nop
	cmp $9,%eax
	jg 2f
	lea rt1(%rip),%rdx
	jmp *%rdx
2:	ret
	.size regtab,.-regtab
	.skip 4000,0xcc
	.type gofar,@function
gofar:	jmp midfar1
	.size gofar,.-gofar
	.section .text.unlikely,"ax"
	.type coldsw.cold,@function
coldsw.cold:
	lea tab(%rip),%rdx
	jmp *8(%rdx)
	.size coldsw.cold,.-coldsw.cold
	.data
tab:	.quad ts1
	.quad cs1
cell:	.long 0
	.section .rodata
fmt:	.string "sum %d\n"
	.section .note.GNU-stack,"",@progbits
