# Sourced by run_train.sh and run_tests.sh: finds a Python, makes the virtual environment, keeps it current.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TITAN_VENV:-$root/.venv}
python=$venv/bin/python

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

# 0: a usable Python; 1: not there, or too old or too new; 2: right version, but without the venv module
judge_python() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' 2>/dev/null || return 1
    "$1" -c 'import venv, ensurepip' 2>/dev/null || return 2
}

find_python() {
    local candidate without_venv=
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10 python3.14; do
        judge_python "$candidate"
        case $? in
            0) printf '%s\n' "$candidate"; return ;;
            2) without_venv=${without_venv:-$candidate} ;;
        esac
    done
    if [ -n "$without_venv" ]; then
        fail "Python ($without_venv) lacks the venv module; install it (Debian and Ubuntu: apt install python3-venv)"
    fi
    fail "no Python 3.10 to 3.14 found; install one (Debian and Ubuntu: apt install python3 python3-venv), or name it with PYTHON=/path/to/python3"
}

# prepare_venv train|tests
prepare_venv() {
    local base
    if ! "$python" -c '' 2>/dev/null; then
        base=$(find_python) || exit $?
        printf 'making a virtual environment in %s\n' "$venv"
        "$base" -m venv "$venv" || fail "virtual environment ($venv) can't be made (see above); TITAN_VENV=FOLDER puts it elsewhere"
    else
        judge_python "$python"
        [ $? -ne 1 ] || fail "Python of $venv is not 3.10 to 3.14; remove that folder, or name another with TITAN_VENV=FOLDER"
    fi
    "$python" "$root/scripts/setup_venv.py" "$1" || exit $?
}
