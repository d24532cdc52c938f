#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job on a sample kernel image. usage: demo.sh FTPATCH IMAGE
set -eu
ftpatch=$1 image=$2
bin=$(cd "$(dirname "$ftpatch")" && pwd)
mkdir -p demo
cp -f "$image" demo/vmlinux
rm -f demo/vmlinux.ftpatch
PATH=$bin:$PATH
cd demo

run() {
    echo "\$ $*"
    "$@" || [ "$?" = "${expected:-0}" ] || exit 1
    echo
}

run ftpatch status vmlinux
run ftpatch enable vmlinux -f 'vfs_*'
expected=1 run ftpatch diff vmlinux # 1: files differ
run ftpatch check vmlinux.ftpatch
run ftpatch undo vmlinux.ftpatch
run cmp vmlinux vmlinux.ftpatch
echo "the file is byte for byte what it was"
echo
echo "The command is $bin/ftpatch; for this shell:"
echo "    export PATH=$bin:\$PATH"
