#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The GitHub Action: checks $IMAGES, one per line, but for $EXCLUDE, one per line, with $BASELINE and
# $EXPECTED where they are set; annotations go to standard output, a SARIF log to $SARIF if that is set.
set -euo pipefail

words=()
while IFS= read -r image; do
    case $image in
        '') ;;
        -*) words+=("./$image") ;; # no option
        *) words+=("$image") ;;
    esac
done <<<"$IMAGES"
[ ${#words[@]} -gt 0 ] || { echo "::error title=ftpatch::no images given"; exit 2; }
while IFS= read -r glob; do
    [ -z "$glob" ] || words+=("--exclude=$glob")
done <<<"${EXCLUDE:-}"
[ -z "${BASELINE:-}" ] || words+=("--baseline=$BASELINE")
[ -z "${EXPECTED:-}" ] || words+=("--expected=$EXPECTED")

if [ -n "${SARIF:-}" ]; then
    ftpatch check --format sarif -q "${words[@]}" >"$SARIF" || true # the next one says it again
fi
ftpatch check --format github "${words[@]}"
