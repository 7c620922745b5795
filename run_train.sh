#!/usr/bin/env bash
# Trains: sets up .venv on the first call, then runs titan-pretrain.
#
#   ./run_train.sh                                     llama3_debug, about three minutes on two CPU cores
#   CONFIG=llama3_160m ./run_train.sh --set data.dataset=text --set 'data.path=["corpus/"]'
#   MODULE=llama3 CONFIG=llama3_8b NGPU=8 ./run_train.sh
#
# CONFIG: preset or TOML file. MODULE: model family of the preset. NGPU: processes. Further arguments
# go to titan-pretrain. PYTHON, TITAN_VENV and TITAN_TORCH steer the set-up, see docs/quickstart.md.
set -uo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/scripts/common.sh"

prepare_venv train
arguments=(--config "${CONFIG:-llama3_debug}")
if [ -n "${MODULE:-}" ]; then arguments+=(--module "$MODULE"); fi
if [ -n "${NGPU:-}" ]; then arguments+=(--nproc "$NGPU"); fi
exec "$python" -m titan_pretrain "${arguments[@]}" "$@"
