# SPDX-License-Identifier: MIT
# ruff: noqa: E501 (programs of other languages)
"""Programs of Debian without symbols, and something for each to do that takes it about a second
and comes out the same each time."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["I386", "PROGRAMS", "Job", "lay_inputs"]

SEED = 20
LINES = 400
WORDS = [
    "patch",
    "site",
    "record",
    "veneer",
    "journal",
    "probe",
    "trap",
    "ret",
    "call",
    "entry",
    "kernel",
    "tracer",
    "pad",
    "pun",
]


@dataclass(frozen=True)
class Job:
    """The words that a program gets, and its standard input: text, or the name of an input after
    an @. ``packages``: where it comes from, if it is not installed; ``path``: its file, if that is
    not its name; ``ends``: its exit code. In ``env``, ROOT stands for its packages' folder. ``varies``:
    a pattern of what its output has of the time and its PID."""

    words: str | tuple[str, ...]
    text: str = ""
    packages: tuple[str, ...] = ()
    path: str = ""
    ends: int = 0
    env: dict[str, str] = field(default_factory=dict)
    varies: str = ""

    @property
    def arguments(self) -> list[str]:
        """The words, one by one."""
        return self.words.split() if isinstance(self.words, str) else list(self.words)


SQL = """create table t(a integer primary key, b text);
insert into t select value, printf('%d', value * 7919 % 1009) from generate_series(1, 300);
create index i on t(b); select count(*), sum(b) from t where b like '1%';
select b, group_concat(a) from t group by b having count(*) > 1 limit 9; pragma integrity_check;
"""
DC = "[la1+dsa*pla40>y]sy 0sa1lyx 2 200^p 3 100^ 1000007 %p"
TCC = "int f(int n){return n<2?n:f(n-1)+f(n-2);} int main(void){return f(10)!=55;}"
LUA = """local t = {} for i = 1, 300 do t[i] = (i * 7919) % 1009 end table.sort(t)
print(t[1], t[300], #table.concat(t, ","), string.rep("x", 5):gsub("x", "%0y"))
print(pcall(function() error("caught") end), select("#", load("return 1, 2")()))"""
PERL = (
    '$h{$_ * 7919 % 1009}++ for 1..300; print join(",", sort { $a <=> $b } keys %h), "\\n";'
    ' eval { die "caught\\n" }; print $@, sprintf("%.3f", 1 / 3), "abc" =~ /b(.)/ ? $1 : "";'
)
BASH = (
    "f() { (( $1 < 2 )) && echo $1 || echo $(( $(f $(( $1 - 1 ))) + 1 )); }; f 6;"
    " a=(); for i in {1..90}; do a+=($((i * 7919 % 1009))); done; echo ${a[@]} ${#a[@]};"
    " case abc in a*) echo ${PWD##*/} ${a[3]/1/x};; esac; trap 'echo bye' EXIT; (exit 3) || echo $?"
)
DASH = "i=0; while [ $i -lt 90 ]; do i=$((i + 1)); case $i in *7) echo $i;; esac; done; (exit 2) || echo $?"
PYTHON = """
import json, re
class A(dict):
    def __missing__(self, key): return key
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(9), A()[3], json.dumps(sorted({str(n * 7919 % 1009): n for n in range(50)}.items()))[:99])
try: re.compile("(")
except re.error as error: print(error)
"""
GAWK = '{ n[$1 % 7] += $1; gsub(/9/, "x"); s = s $0 } END { for (i = 0; i < 7; i++) print i, n[i]; print length(s), sprintf("%.2f", sqrt(NR)) }'
DEVELOPER = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nowhere",
}  # fmt: skip
M4 = {"M4": "ROOT/usr/bin/m4", "BISON_PKGDATADIR": "ROOT/usr/share/bison"}
GCC = "/usr/lib/gcc/x86_64-linux-gnu/12"
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
MADE = {
    "small.o": "gcc -c -O1 -g code.c -o small.o",
    "disk.img": "PATH=$PATH:/sbin mke2fs -q -F -t ext4 disk.img 1024",
    "box.zip": "zip -q -r box.zip text tree",
    "changes": "diff -u text other > changes || true",
}
"""Inputs that other programs make."""

PROGRAMS: dict[str, Job] = {
    "as": Job("-o a.o code.s"),
    "b2sum": Job("data numbers text"),
    "bash": Job(("-c", BASH)),
    "bc": Job(
        "-q",
        "define f(n) { if (n < 2) return n; return f(n-1) + f(n-2); } f(9); scale=30; 4*a(1)\n",
    ),
    "bison": Job(
        "-o parse.c --defines=parse.h calc.y", packages=("bison", "m4", "libsigsegv2"), env=M4
    ),
    "brotli": Job("-q 5 -c text", packages=("brotli",)),
    "busybox": Job(
        "sort -n numbers",
    ),
    "bzip2": Job("-c data"),
    "cc1": Job("-quiet -O1 -o out.s small.i", path=f"{GCC}/cc1"),
    "cmake": Job("-P script.cmake"),
    "column": Job("-t text"),
    "cpio": Job("-o --reproducible --quiet -H newc", "numbers\ntext\n"),
    "ctags": Job("-f - --sort=yes code.c"),
    "curl": Job("-s file:///etc/services -o out --next -s file:///etc/protocols"),
    "cut": Job("-c 1-3,5- text"),
    "dash": Job(("-c", DASH)),
    "dc": Job(("-e", DC), packages=("dc",)),
    "debugfs": Job("-R stats disk.img"),
    "diff": Job("-u text other", ends=1),
    "e2fsck": Job("-fn disk.img"),
    "factor": Job("1234567890123 18446744073709551557 97 600851475143"),
    "dpkg-deb": Job(
        "-Zgzip --root-owner-group -b package out.deb", env={"SOURCE_DATE_EPOCH": "1700000000"}
    ),
    "find": Job("-L . -name *e* -newer text -o -size +1k -print -o -type d -printf %p\\n"),
    "flex": Job("-o scan.c scan.l", packages=("flex", "m4", "libsigsegv2"), env=M4),
    "gawk": Job((GAWK, "numbers"), packages=("gawk", "libsigsegv2")),
    "gdb": Job(
        "-nx -batch -ex print(1+2)*3 -ex print/x(long)1000*1000 -ex print/t(37)",
        env={"HOME": "/nowhere"},
    ),
    "git": Job("hash-object --no-filters text data numbers", env=DEVELOPER),
    "gpg": Job("--homedir . --no-keyring --batch --no-tty --print-md SHA256 text data"),
    "grep": Job("-nE -e ([a-z])\\1 -e pat+ch$ -e ^.{3,9}e text"),
    "gzip": Job("-9 -n -c data"),
    "hexdump": Job("-C -n 4096 data"),
    "iconv": Job("-f UTF-8 -t UTF-16LE text"),
    "ld": Job(f"-e main -o linked small.o {LIBC}"),
    "ld.gold": Job(f"-e main -o linked small.o {LIBC}"),
    "less": Job("text", env={"TERM": "dumb"}),
    "lua5.4": Job(("-e", LUA), packages=("lua5.4",)),
    "lz4": Job("-9 -c data"),
    "m4": Job("macros.m4", packages=("m4", "libsigsegv2")),
    "make": Job("-s -f rules"),
    "mawk": Job((GAWK, "numbers")),
    "mke2fs": Job(
        (
            "-q",
            "-F",
            "-t",
            "ext4",
            "-U",
            "clear",
            "-E",
            "hash_seed=6b6f6e65-0000-4000-8000-000000000000",
            "new.img",
            "1024",
        ),
        env={"SOURCE_DATE_EPOCH": "1700000000", "E2FSPROGS_FAKE_TIME": "1700000000"},
    ),
    "msgfmt": Job("-o out.mo words.po"),
    "nasm": Job("-f elf64 -o out.o code.asm", packages=("nasm",)),
    "nginx": Job("-t -q -p . -c nginx.conf -e errors", packages=("nginx",)),
    "ninja": Job("-f build.ninja -n -v"),
    "nm": Job("-n small.o"),
    "objdump": Job("-dr small.o"),
    "od": Job("-A d -t x2z -N 4096 data"),
    "openssl": Job("dgst -sha512 text data numbers"),
    "patch": Job("-s -o patched text", "@changes"),
    "perl": Job(("-e", PERL), env={"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}),
    "pigz": Job("-p 1 -n -c data", packages=("pigz",)),
    "postgres": Job("--describe-config", path="/usr/lib/postgresql/15/bin/postgres"),
    "python3.11": Job(
        ("-S", "-c", PYTHON), env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    ),
    "readelf": Job("-aW small.o"),
    "redis-server": Job(
        "- --port 0 --maxclients nan",
        packages=(
            "redis-server",
            "redis-tools",
            "libjemalloc2",
            "liblua5.1-0",
            "lua-cjson",
            "lua-bitop",
            "liblzf1",
            "libatomic1",
        ),
        ends=1,
        varies=r"[0-9]+:C [^#]*#",
    ),
    "rsync": Job(
        "-rlt --no-whole-file --checksum tree/ copy/", packages=("rsync", "libpopt0", "libxxhash0")
    ),
    "sed": Job(("-n", "-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/gp; /pun$/{N;P;D}; $=", "text")),
    "sha256sum": Job("data numbers text"),
    "sort": Job("-k2,2 -k1,1r -s text"),
    "sqlite3": Job(":memory:", SQL),
    "ssh-keygen": Job("-l -f key.pub"),
    "strings": Job("-n 6 data"),
    "tar": Job("--sort=name --mtime=@0 --owner=0 --group=0 -cf out.tar tree text numbers"),
    "tcc": Job("-c -o out.o small.i", packages=("tcc",)),
    "tr": Job("a-m A-M", "@text"),
    "unzip": Job("-t box.zip"),
    "vim.tiny": Job(
        (
            "-u",
            "NONE",
            "-es",
            "-N",
            "+%s/patch/PATCH/g",
            "+g/pun/d",
            "+sort",
            "+w! out",
            "+q!",
            "text",
        ),
        packages=("vim-tiny", "vim-common"),
    ),
    "xgettext": Job("-o - --omit-header code.c"),
    "xz": Job("--keep --stdout --threads=1 numbers"),
    "zip": Job("-X -q -r out.zip text numbers"),
    "zstd": Job("-q -c --single-thread -5 data"),
}


PCRE = ("libselinux1", "libpcre2-8-0")
COREUTILS = ("coreutils", "libacl1", "libattr1", *PCRE, "libgmp10")
LINES_READ = ("libreadline8", "libtinfo6")
I386 = {
    "bc": ("bc", *LINES_READ),
    "cut": COREUTILS,
    "dash": ("dash",),
    "factor": COREUTILS,
    "find": ("findutils", *PCRE),
    "grep": ("grep", "libpcre2-8-0"),
    "gzip": ("gzip",),
    "m4": ("m4", "libsigsegv2"),
    "mawk": ("mawk",),
    "sed": ("sed", "libacl1", *PCRE),
    "sqlite3": ("sqlite3", "libsqlite3-0", "zlib1g", *LINES_READ),
    "tr": COREUTILS,
    "xz": ("xz-utils", "liblzma5"),
}
"""The packages of programs of i386, with all libraries but libc's."""
CODE = r"""
static int parts[16];
struct node { struct node *next; long key; };
static long hash(const unsigned char *s) { long h = 5381; while (*s) h = h * 33 ^ *s++; return h; }
int puts(const char *);
int find(struct node *at, long key)
{
	for (; at; at = at->next)
		if (at->key == key)
			return 1;
	return 0;
}
int main(void)
{
	struct node a = {0, 3}, b = {&a, hash((const unsigned char *)"text")};
	for (int i = 0; i < 16; i++)
		parts[i] = parts[(i * 7) & 15] + i * find(&b, i);
	switch (parts[3]) { case 0: puts("none"); break; case 3: puts("three"); break; default: ; }
	return parts[5] / (parts[6] + 1);
}
"""
FILES = {
    "code.c": CODE,
    "small.i": CODE,
    "code.s": ".text\nf: push %rbp\n mov %rsp,%rbp\n .rept 40\n lea 8(%rax,%rcx,4),%rdx\n jz f\n .endr\n ret\n .data\n .quad f, f - .\n",
    "code.asm": "%macro two 1\n add rax, %1\n imul rax, %1\n%endmacro\nglobal f\nf: two 7\n%rep 40\n two rcx\n jz f\n%endrep\n ret\n",
    "calc.y": "%token N\n%left '+'\n%left '*'\n%%\nall: | all e '\\n';\ne: N | e '+' e | e '*' e | '(' e ')' ;\n%%\n",
    "scan.l": "%option noyywrap\nD [0-9]\n%%\n{D}+\"px\"? return 1;\n[a-z_]+ return 2;\n\"/*\"(.|\\n)*\"*/\" ;\n. return 3;\n%%\n",
    "macros.m4": "define(`f',`ifelse($1,0,0,`eval($1 + f(decr($1)))')')f(20)\nforeach\nsubstr(`kernel',2) translit(`abc',`a-c',`x-z') patsubst(`pad pun',`p',`q') len(`four')\n",
    "rules": "A := $(sort $(foreach n,9 7 5 3,x$(n)))\nall: $(A)\n\t@echo $^\nx%: text\n\t@echo $@ $(word 2,$(A)) $(patsubst x%,y%,$@)\n",
    "words.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n' + "".join(f'msgid "w{n}"\nmsgstr "W{n}"\n\n' for n in range(60)),
    "nginx.conf": "error_log errors; pid pid; events { worker_connections 64; } http { access_log off; client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e; server { listen 127.0.0.1:1; server_name a.b *.c; location ~ ^/x$ { return 301 /y; } } }\n",
    "build.ninja": "rule cc\n command = cc $in -o $out\n" + "".join(f"build o{n}: cc code.c | text\n" for n in range(20)),
    "script.cmake": 'set(t 0)\nforeach(n RANGE 40)\n math(EXPR t "(${t} * 7 + ${n}) % 1009")\n list(APPEND all x${t})\nendforeach()\nlist(SORT all)\nstring(REGEX REPLACE "x([0-9])" "\\\\1y" out "${all}")\nfile(READ text held)\nstring(SHA256 sum "${held}")\nmessage("${out} ${sum}")\n',
    "package/DEBIAN/control": "Package: a\nVersion: 1-1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n b\n",
    "package/usr/a": "text\n" * 99,
    "key.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3uv5qEn6m2n6e1cC0a9lF2b0QkK8w2fN7XyQyM2m3x a@b\n",
}  # fmt: skip


def lay_inputs(where: Path, job: Job) -> None:
    """Write the inputs of jobs into a folder that is there: the same each time, but for those that
    the distribution's programs make. Skips where they cannot."""
    rng = random.Random(SEED)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(LINES)]
    (where / "text").write_text("\n".join(lines) + "\n")
    (where / "other").write_text("\n".join(lines[5:90] + lines[100:] + ["end"]) + "\n")
    (where / "numbers").write_text("".join(f"{n * 7919 % 1009}\n" for n in range(LINES)))
    (where / "data").write_bytes(
        rng.randbytes(4000) + b"".join(bytes(n % 251 for n in range(m)) for m in range(200))
    )
    for name, text in FILES.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    tree = where / "tree" / "deep"
    tree.mkdir(parents=True)
    for number in range(9):
        (tree / f"{number}").write_text(lines[number] * number)
    for name, command in MADE.items():
        if name in job.arguments or job.text == f"@{name}":
            done = subprocess.run(command, shell=True, cwd=where, capture_output=True, check=False)
            if done.returncode:
                pytest.skip(f"{command}: {done.stderr.decode(errors='replace')}")
