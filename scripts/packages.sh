#!/bin/sh
# SPDX-License-Identifier: MIT
# What the tests need from the distribution. As root on Debian the missing packages are installed;
# elsewhere the line to install them is printed, and what is skipped without them.
set -eu

# package                 what is skipped without it
needed='
gcc                       programs and encodings that are built while testing
libc6-dev                 programs and encodings that are built while testing
binutils                  GNU as and readelf as oracles
clang                     rebuilding the samples
libclang-rt-dev           the bench of tracers: XRay at run time
lld                       rebuilding the samples
mold                      which link editors give complete tables
g++                       functions that lost their record
gcc-aarch64-linux-gnu     arm64 encodings by GNU as, rebuilding the samples
libc6-dev-arm64-cross     arm64 programs under qemu-user
gcc-riscv64-linux-gnu     riscv64 encodings by GNU as, rebuilding the samples
libc6-dev-riscv64-cross   riscv64 programs under qemu-user
gcc-s390x-linux-gnu       s390x encodings by GNU as
libc6-dev-s390x-cross     s390x programs under qemu-user
gcc-powerpc64le-linux-gnu ppc64le encodings by GNU as
libc6-dev-ppc64el-cross   ppc64le programs under qemu-user
binutils-arm-linux-gnueabihf  32-bit ARM encodings by GNU as
gcc-arm-linux-gnueabihf   32-bit ARM programs
libc6-dev-armhf-cross     32-bit ARM programs under qemu-user
g++-riscv64-linux-gnu     exceptions of riscv64 programs through traced calls
g++-powerpc64le-linux-gnu exceptions of ppc64le programs through traced calls
g++-arm-linux-gnueabihf   exceptions of 32-bit ARM programs through traced calls
g++-s390x-linux-gnu       exceptions of s390x programs through traced calls
gcc-i686-linux-gnu        i386 programs
g++-i686-linux-gnu        exceptions of i386 programs through traced calls
g++-aarch64-linux-gnu     exceptions of arm64 programs through traced calls
libc6-dev-i386-cross      i386 programs
busybox-static            functions of a stripped static program
gdb                       what debuggers see of traced programs
gdb-multiarch             what debuggers see of arm64 and riscv64 programs under qemu-user
chromium                  HTML reports in a browser
chromium-driver           HTML reports in a browser
uftrace                   the bench of tracers, and reports for uftrace
golang-go                 reports for pprof, Go programs while they run
trace-cmd                 reports for trace-cmd
kernelshark               reports for KernelShark
apache2-utils             nginx under load, traced while it runs
valgrind                  what valgrind says of traced programs
musl-tools                traced and probed programs of another libc
qemu-user-static          programs of other architectures
acl                       setfacl and getfacl as oracles of who may do what
man-db                    what man makes of the manual pages
mandoc                    what mandoc finds wrong with them
attr                      getfattr as an oracle of attributes
xz-utils                  xz as an oracle, and the bench
zstd                      zstd as an oracle
kmod                      modinfo as an oracle of compressed modules
lz4                       lz4 as an oracle
bzip2                     bzip2 as an oracle
qemu-system-x86           booting x86 kernels
qemu-system-arm           booting arm64 and 32-bit ARM kernels
qemu-system-misc          booting riscv64 and s390x kernels
qemu-system-ppc           booting ppc64le kernels
opensbi                   booting riscv64 kernels
ovmf                      booting patched kernels by UEFI
qemu-efi-aarch64          booting patched arm64 kernels by UEFI
bsdextrautils             EFI zboot images of arm64 kernels
initramfs-tools           booting patched kernels to user space with their modules
kexec-tools               a kernel that crashes into another
makedumpfile              crash dumps as kdump stores them
e2fsprogs                 root file systems of booted kernels
grub-pc-bin               booting patched kernels by GRUB
grub-efi-amd64-bin        booting patched kernels by GRUB, from UEFI
grub-common               booting patched kernels by GRUB
xorriso                   disks that GRUB boots from
mtools                    disks that UEFI boots from
sbsigntool                patched kernels signed for Secure Boot
openssl                   patched kernels signed for Secure Boot
'
missing=
if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system: tests that miss a tool are skipped, and say which" >&2
    exit 0
fi
for package in $(echo "$needed" | awk '{ print $1 }'); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then
    echo "installing$missing"
    sh "$(dirname "$0")/apt-get.sh" update -q >/dev/null
    # shellcheck disable=SC2086
    sh "$(dirname "$0")/apt-get.sh" install -qy --no-install-recommends $missing >/dev/null
    exit 0
fi
echo "some tests will be skipped; to run them all: apt-get install$missing" >&2
for package in $missing; do
    echo "$needed" | awk -v p="$package" '$1 == p { $1 = ""; print "  without " p ":" $0 }' >&2
done
