// SPDX-License-Identifier: MIT
/*
 * fentry FUNCTION [stay]: load a BPF program for the entry of a function of the kernel, attach it,
 * write, read and sync a file, and say how often it ran; with "stay", keep it attached until this is
 * killed. Without libbpf: the function's number is looked
 * up in /sys/kernel/btf/vmlinux (Documentation/bpf/btf.rst).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char btf[32 << 20];

static int bpf(int command, union bpf_attr *attr)
{
    return syscall(__NR_bpf, command, attr, sizeof *attr);
}

/* Bytes behind a struct btf_type; n is its vlen. */
static int behind(int kind, int n)
{
    switch (kind) {
    case BTF_KIND_INT: case BTF_KIND_VAR: case 17: /* DECL_TAG */
        return 4;
    case BTF_KIND_ARRAY:
        return sizeof(struct btf_array);
    case BTF_KIND_STRUCT: case BTF_KIND_UNION: case BTF_KIND_DATASEC: case 19: /* ENUM64 */
        return 12 * n;
    case BTF_KIND_ENUM: case BTF_KIND_FUNC_PROTO:
        return 8 * n;
    }
    return 0;
}

static int number_of(const char *name)
{
    int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY), size = 0, got;
    while (fd >= 0 && (got = read(fd, btf + size, sizeof btf - size)) > 0)
        size += got;
    struct btf_header *head = (void *)btf;
    char *at = btf + head->hdr_len + head->type_off, *end = at + head->type_len;
    for (int id = 1; at < end; id++) {
        struct btf_type *type = (void *)at;
        int kind = BTF_INFO_KIND(type->info);
        char *text = btf + head->hdr_len + head->str_off + type->name_off;
        if (kind == BTF_KIND_FUNC && !strcmp(text, name))
            return id;
        at += sizeof *type + behind(kind, BTF_INFO_VLEN(type->info));
    }
    puts("no BTF");
    exit(1);
}

static void use_a_file(void)
{
    char c = 'x';
    int fd = open("/tmp/fentry", O_RDWR | O_CREAT, 0600);
    if (write(fd, &c, 1) < 0 || lseek(fd, 0, SEEK_SET) < 0 || read(fd, &c, 1) < 0 || fsync(fd))
        perror("file");
    close(fd);
}

int main(int argc, char **argv)
{
    static char log[65536];
    int key = 0;
    long hits = 0;
    union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8,
                           .max_entries = 1 };
    int counter = bpf(BPF_MAP_CREATE, &map);
    struct bpf_insn code[] = {
        { BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0 },                     /* key = 0 */
        { BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0 },
        { BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4 },
        { BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, counter },
        { 0 },
        { BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem },
        { BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0 },
        { BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1 },
        { BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD },            /* *value += 1 */
        { BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0 },
        { BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
    };
    union bpf_attr load = { .prog_type = BPF_PROG_TYPE_TRACING, .insns = (long)code,
                            .insn_cnt = sizeof code / sizeof *code, .license = (long)"GPL",
                            .log_buf = (long)log, .log_size = sizeof log, .log_level = 1,
                            .expected_attach_type = BPF_TRACE_FENTRY };
    if (argc < 2)
        return 2;
    load.attach_btf_id = number_of(argv[1]);
    int program = bpf(BPF_PROG_LOAD, &load);
    if (program < 0) {
        printf("load %d %.200s\n", errno, log);
        return 1;
    }
    union bpf_attr attach = { .raw_tracepoint.prog_fd = program };
    if (bpf(BPF_RAW_TRACEPOINT_OPEN, &attach) < 0) {
        printf("refused %d\n", errno);
        return 1;
    }
    use_a_file();
    union bpf_attr look = { .map_fd = counter, .key = (long)&key, .value = (long)&hits };
    bpf(BPF_MAP_LOOKUP_ELEM, &look);
    printf("hits %ld\n", hits);
    fflush(stdout);
    if (argc > 2)
        pause();
    return 0;
}
