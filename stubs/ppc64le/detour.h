/* SPDX-License-Identifier: MIT */
/* What a detour (ftpatch/arch/ppc64le/detour.py) and what it calls keep, below what the program may have
 * below its stack pointer (512 bytes; psABI, ELFv2, 2.2.2.4):
 *
 *     | back chain, CR, LR, r2 | r0, LR | place | LR, r12, cr0 of what is on the way | 512 bytes | ...
 *       ^ r1                     ^ 32     ^ 48    ^ 56                                              ^ r1 of
 *                                                                                         the program
 */
#define DETOUR_R0 32
#define DETOUR_LR 40
#define DETOUR_PLACE 48
#define DETOUR_BACK 56
#define DETOUR_R12 64
#define DETOUR_FRAME 592
