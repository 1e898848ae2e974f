#!/bin/bash
# Processes that share heads, MLP and vocabulary: losses, gradients, bytes on the wire and activations are those of one
# process on the same samples, whatever the schedule; what does not fit is refused, and a process that stops ends the run.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77
. "$(dirname "$0")/grid.sh"

exact=yes context=yes
two="--tensor-parallel 2" four="--tensor-parallel 4" whole="--sequence-parallel off"
grid 1 4 gpt-tiny 2 $four --stages 1
grid 1 4 llama-tiny 4 $two --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule zb1p --recompute full
grid 1 4 llama-tiny 4 $two --stages 2 --schedule 1f1b --recompute selective
grid 1 2 gpt-tiny 4 $two --stages 1 --recompute every=2
grid 2 8 llama-tiny 4 $two --stages 2 --schedule 1f1b --zero 1
grid 2 8 gpt-tiny 4 $two --stages 2 --schedule 1f1b
one=sppo slices=4 grid 1 4 llama-tiny 2 $two --stages 2 --schedule sppo
one=sppo slices=3 grid 1 8 gpt-tiny 2 $four --stages 2 --schedule seq1f1b
grid 1 4 gpt-tiny 2 $four $whole --stages 1
grid 1 4 llama-tiny 4 $two $whole --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 2 8 llama-tiny 4 $two $whole --stages 2 --schedule zb1p --recompute full --zero 1
one=sppo slices=3 grid 1 8 gpt-tiny 2 $four $whole --stages 2 --schedule sppo
exact=no
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule dualpipev
grid 2 4 llama-tiny 2 $two --stages 4 --schedule 1f1b --partition 3,2,2,1 --zero 1
finish
