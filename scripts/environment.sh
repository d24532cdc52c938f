#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes the Python environment and installs ftpatch, with `tests` what its tests need as well.
# usage: environment.sh PYTHON VENV [tests]
set -eu
python=$1 venv=$2 with=${3:-}

if ! command -v "$python" >/dev/null; then
    echo "no $python; install Python 3.11 or later (Debian: apt-get install python3 python3-venv)" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$("$python" --version): ftpatch needs 3.11 or later; say make PYTHON=python3.x" >&2
    exit 1
fi
# Debian splits venv off; without it ensurepip is missing.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        sh "$(dirname "$0")/apt-get.sh" update -q
        sh "$(dirname "$0")/apt-get.sh" install -qy --no-install-recommends python3-venv
    else
        echo "Python's venv is missing; install it: apt-get install python3-venv" >&2
        exit 1
    fi
fi
if [ "$with" = tests ]; then
    what='.[test]'
    echo "installing ftpatch and what its tests need in $venv: 0.8 GB of Python packages, minutes"
else
    what=.
    echo "installing ftpatch in $venv: 0.2 GB of Python packages, a minute or more, once"
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check -e "$what"
