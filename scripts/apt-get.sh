#!/bin/sh
# SPDX-License-Identifier: MIT
# apt-get for a machine that has its own business with packages (a timer, another terminal): waits up
# to WAIT seconds for locks. APT's DPkg::Lock::Timeout is for dpkg's locks alone; where the lists or
# the archives are locked, it fails at once.
# usage: apt-get.sh WORD...
set -eu
: "${WAIT:=300}"
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
end=$(($(date +%s) + WAIT))
said=$(mktemp)
trap 'rm -f "$said"' EXIT
while :; do
    status=0
    apt-get -o DPkg::Lock::Timeout="$WAIT" "$@" 2>"$said" || status=$?
    if [ "$status" = 0 ] || ! grep -q 'Could not get lock' "$said" || [ "$(date +%s)" -ge "$end" ]; then
        cat "$said" >&2
        exit "$status"
    fi
    echo "waiting for another apt-get" >&2
    sleep 1
done
