#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/../lib/nereid/bin/nereid" "$@"
