#!/usr/bin/env bash
# The files of deploy/ by their own tools. Tools that this machine lacks and that no package brings are listed as skipped.
# usage: run.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/skips.sh
mkdir -p "$1/deploy"
begin_skips "$1/deploy/skips.txt"

venv=build/deploy-venv
if ! cmp -s tests/deploy/requirements.txt "$venv/installed.txt"; then
  echo "deploy: installing Helm's engine and the schemas into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r tests/deploy/requirements.txt
  cp tests/deploy/requirements.txt "$venv/installed.txt"
fi
"$venv/bin/python" tests/deploy/check.py "$1/bin/nereid"

promtool=$(command -v promtool || echo build/prometheus/usr/bin/promtool)  # make e2e unpacks the package there
if [ -x "$promtool" ]; then
  promtool=$(realpath "$promtool")
  (cd deploy/prometheus && "$promtool" check config prometheus.yml && "$promtool" check rules alerts.yaml && "$promtool" test rules alerts_test.yaml)
else
  skip promtool "neither installed nor unpacked by 'make e2e'"
fi

if command -v systemd-analyze >/dev/null; then
  unit=$1/deploy/nereid.service
  sed "s|^ExecStart=[^ ]*|ExecStart=$(realpath "$1/bin/nereid")|; /^Documentation=/d" tools/packages/nereid.service >"$unit"
  cp tools/packages/nereid.socket "$1/deploy/"
  faults=$(systemd-analyze verify --man=no "$unit" "$1/deploy/nereid.socket" 2>&1 | grep -E 'nereid\.(service|socket)' || true)
  [ -z "$faults" ] || { echo "$faults" >&2; exit 1; }
  echo "deploy: systemd: the units"
else
  skip systemd-analyze "not installed"
fi

if command -v nginx >/dev/null; then
  nginx -t -q -e stderr -p "$(realpath "$1/deploy")" -c "$PWD/deploy/nginx.conf"
  echo "deploy: nginx: nginx.conf"
else
  skip nginx "not installed"
fi

for script in deploy/slurm/*.sh deploy/slurm/*.sub; do bash -n "$script"; done
end_skips
echo "deploy: all passed"
