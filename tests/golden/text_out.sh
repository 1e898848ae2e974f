#!/bin/bash
# What `transformers` makes of models that were trained on a text and saved, where it is installed: text_out.py.
. "$(dirname "$0")/../common.sh" || exit 1

python=${PYTHON:-python3}
[ -n "${SP_LONG:-}" ] || { echo "skipped: not a long run"; exit 77; }
$python -c 'import torch, transformers' 2> /dev/null || { echo "skipped: no transformers"; exit 77; }
TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1 $python "$here/text_out.py" "$STARPIPE" "$work/models" 2> "$work/stderr" > "$work/said" ||
    fail "$(tail -n 1 "$work/stderr")"
cut -c 1-500 "$work/said" | head -n 40
finish
