#!/usr/bin/env bash
# The core library exports every name of the Triton 2.51 core library, and of its own only NEREID_*.  usage: exported_names.sh LIBRARY
set -euo pipefail
want=$(dirname "$0")/exported_names.txt
got=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | grep -v '^NEREID_' | sort -u)
diff <(sort -u "$want") - <<<"$got"
echo "exported names: $(wc -l <"$want"), all there"
