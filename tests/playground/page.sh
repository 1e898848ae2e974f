#!/bin/bash
# The page of the playground without a browser: linked for this machine with nothing but what is compiled to WebAssembly
# too, it prints what the command prints, and refuses what that refuses.
. "$(dirname "$0")/../common.sh" || exit 1

page=$builddir/tests/playground/page
cd "$work" || exit 1

# ---- what it is linked from

# Objects of kernels have a name of their own. The page has those that know nothing of a processor.
kernels=$(grep -o 'libsp_kernels_la-[a-z0-9_]*\.o' "$page.map" | sort -u)
[ "$kernels" = libsp_kernels_la-flops.o ] ||
    fail "the page calls kernels, which are not compiled to WebAssembly: $kernels"
# What hashes files wants a library that is not compiled to WebAssembly.
! grep -q 'libsp_tokenizer\.a(' "$page.map" || fail "the page calls tokenizers, whose libraries are not compiled either"
for file in $(cd "$here/../.." && grep -rl 'xxhash.h' src --include='*.c' | grep -v '^src/model/tokenizer/'); do
    ! grep -q "libsp_pure.a($(basename "$file" .c).o)" "$page.map" || fail "the page calls $file, which hashes files"
done

# ---- what it prints

# same WORDS...
same()
{
    local status

    starpipe "$@" > command.out 2> command.err
    status=$?
    "$page" "$@" > page.out 2> page.err
    [ $? -eq $status ] || fail "$*: exit status is not $status: $(cat page.err)"
    cmp -s command.out page.out || fail "$*: the page prints something else"
    cmp -s command.err page.err || fail "$*: the page says $(cat page.err), not $(cat command.err)"
}

same list
for name in $(starpipe list | cut -d ' ' -f 1); do
    same show --schedule "$name" --stages 4 --micro-batches 8 --layers 16 --format json
done
same show --schedule 1f1b --stages 4 --micro-batches 8 --model gpt3-7b --seq 16384 --hardware h200 --format svg
same show --schedule 1f1b --stages 4 --micro-batches 8 --model gpt3-7b --data-parallel 2 --format text
same show --schedule 1fb1 --stages 4 --micro-batches 8
same show --schedule zbv --stages 0
"$page" choices > page.out || fail "choices: exit status $?"
grep -q '"gpt-tiny"' page.out && grep -q '"h200"' page.out || fail "choices: $(cat page.out)"
"$page" train 2> page.err && fail "the page trains"
grep -q "no command 'train'" page.err || fail "train: $(cat page.err)"
finish
