#!/usr/bin/env bash
# Tests: sets up nox in .venv on the first call, then runs its default sessions.
#
#   ./run_tests.sh                   everything that CI runs
#   ./run_tests.sh -s tests -- -k scaler
set -uo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/scripts/common.sh"

prepare_venv tests
exec "$python" -m nox -f "$root/noxfile.py" "$@"
