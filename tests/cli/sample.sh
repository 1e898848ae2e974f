#!/bin/bash
# sample: the text that `transformers` writes with the models of tests/data/sample, what may be drawn, forms of the
# output, refusals.
. "$(dirname "$0")/../common.sh" || exit 1

models="gpt2 llama2 llama3 qwen2"
for model in $models; do
    cp -r "$SP_TESTDATA/sample/$model" "$work/$model"
done
cd "$work" || exit 1
if ! starpipe sample gpt2 --prompt x --tokens 1 > stdout 2> stderr; then
    grep -q 'this build reads no tokenizers' stderr && { cat stderr; exit 77; }
    fail "sample: $(cat stderr)"
    finish
fi

# ---- every case of transformers, and draws

command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
cat > cases.py << 'END'
import concurrent.futures, json, os, subprocess, sys
program, models = sys.argv[1], sys.argv[2:]


def run(model, prompt, *options):
    """What `sample` prints, as bytes, and complaints."""
    command = [program, "sample", model, f"--prompt={prompt}", "--threads", "1", *map(str, options)]
    done = subprocess.run(command, capture_output=True, timeout=120)
    what = " ".join(ascii(c) for c in command[1:])
    if done.returncode or done.stderr:
        return None, [f"{what}: status {done.returncode}, {done.stderr[:200]!r}"]
    return done.stdout, []


def compare(model, case):
    options = ["--special-tokens"] * case.get("special_tokens", False)
    options += ["--temperature", 0, "--tokens", case.get("limit", 64)]
    out, wrong = run(model, case["prompt"], "--format", "json", *options)
    if wrong:
        return wrong
    what = f"{model} {case['prompt']!a} {options}"
    try:
        got = json.loads(out)
    except ValueError as error:
        return [f"{what}: no JSON: {error}: {out[:300]!r}"]
    want = {"model": model, **{k: case[k] for k in ("prompt", "prompt_tokens", "tokens", "text", "ended_by")}}
    if set(got) != set(want):
        return [f"{what}: keys {sorted(got)}"]
    # A run of bytes that is no UTF-8: its whole characters may be said, or not.
    if case["text"] is None:
        got["text"] = None
    elif case["text"].endswith("\ufffd") and got["text"].endswith("\ufffd"):
        want["text"] = case["text"].rstrip("\ufffd")
        got["text"] = got["text"][:len(want["text"])]
    wrong = [f"{what}: {k} is {got[k]!a}, wanted {want[k]!a}" for k in want if got[k] != want[k]]
    return wrong or ["compared"]


def draw(model, prompt, may):
    """One token each of some seeds: all may be drawn, and they differ."""
    drawn = []
    for seed in range(5):
        out, wrong = run(model, prompt, "--format", "json", "--tokens", 1, "--seed", seed, "--temperature",
                         may["temperature"], "--top-k", may["top_k"], "--top-p", may["top_p"])
        if wrong:
            return wrong
        drawn += json.loads(out)["tokens"]
    what = f"{model} {prompt!a} {may}: drawn were {drawn}"
    if not set(drawn) <= set(may["ids"]):
        return [what]
    return ["drew several" if len(set(drawn)) > 1 else "drew one"]


jobs = []
for model in models:
    with open(os.path.join(model, "expected.json"), encoding="utf-8") as f:
        cases = json.load(f)
    jobs += [(compare, model, case) for case in cases]
    # The most even of the draws, more of the first model.
    draws = sorted(((may, case["prompt"]) for case in cases for may in case.get("next", [])),
                   key=lambda d: -d[0]["temperature"])
    jobs += [(draw, model, prompt, may) for may, prompt in draws[:4 if model == models[0] else 2]]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    said = [s for job in [pool.submit(*j) for j in jobs] for s in job.result()]
results = ("compared", "drew one", "drew several")
count = [said.count(r) for r in results]
print(*[s for s in said if s not in results][:12], sep="\n")
print(f"{count[0]} of {sum(j[0] is compare for j in jobs)} cases; {count[1]} + {count[2]} draws, "
      f"{count[2]} with several tokens")
sys.exit(sum(count) != len(jobs) or count[2] <= count[1])
END
python3 cases.py "$STARPIPE" $models > said || fail "not what transformers has"
sed '/^$/d' said | cut -c 1-700

# ---- forms of the output

# sampled FILE ARGUMENTS...: its stdout goes to FILE.
sampled()
{
    local file=$1

    shift
    starpipe sample "$@" --threads 1 > "$file" 2> stderr && [ ! -s stderr ] && return
    fail "sample $*: $(cat stderr)"
}

# same A B WHAT, differ A B WHAT
same()
{
    cmp -s "$1" "$2" || fail "$3: $(head -c 200 "$1"), and $(head -c 200 "$2")"
}
differ()
{
    ! cmp -s "$1" "$2" || fail "$3: $(head -c 200 "$1") twice"
}

prompt="Der Zug hält" # ends with eos
sampled text gpt2 --prompt "$prompt" --temperature 0
printf '%s\n' "$prompt über Nacht in Köln; die Straße ist naß." > want
same want text "text and a newline"
sampled nothing gpt2 --prompt "$prompt" --temperature 0 --output file
same want file "--output"
[ ! -s nothing ] || echo "with --output stdout has: $(head -c 100 nothing)"
sampled text ./gpt2/ "--prompt=$prompt" --temperature=0 --tokens=1000000
same want text "a limit far behind eos"
sampled json gpt2 --prompt "$prompt" --temperature 0 --format json
sampled nothing gpt2 --prompt "$prompt" --temperature 0 --format json --output file
same json file "--format json --output"
[ "$(wc -l < json)" -eq 1 ] || fail "JSON of $(wc -l < json) lines"

# ---- draws

for model in $models; do
    on="$model --tokens 30 --temperature 2"
    sampled one $on --prompt The --seed 1
    sampled again $on --prompt The --seed 1
    sampled two $on --prompt The --seed 2
    same one again "$model, one seed"
    differ one two "$model, two seeds"
    sampled greedy $on --prompt The --temperature 0
    sampled best $on --prompt The --top-k 1 --seed 3
    same greedy best "$model, --top-k 1"
    sampled best $on --prompt The --top-p 1e-6 --seed 4
    same greedy best "$model, --top-p 1e-6"
    sampled cold $on --prompt The --temperature 1e-30 --seed 5
    same greedy cold "$model, --temperature 1e-30"
done
sampled all gpt2 --prompt The --tokens 30 --temperature 2 --seed 1 --top-k 0 --top-p 1
sampled one gpt2 --prompt The --tokens 30 --temperature 2 --seed 1
same one all "all tokens, the default"
sampled all gpt2 --prompt The --tokens 30 --temperature 2 --seed 1 --top-k 390
sampled most gpt2 --prompt The --tokens 30 --temperature 2 --seed 1 --top-k 1000000
same all most "a top-k above the vocabulary"
for model in $models; do
    sampled hot $model --prompt The --tokens 90 --temperature 1e6 # all tokens come, which no text has, too
done

# ---- prompts

# The positions end: the last part of a prompt counts, and what is written goes on.
long=$(yes 'The water runs down to the river. ' | head -n 40 | tr -d '\n')
for model in $models; do
    starpipe sample $model --threads 1 --prompt "$long" --temperature 0 --tokens 5 > long 2> stderr ||
        fail "$model, a long prompt: $(cat stderr)"
    starpipe sample $model --threads 1 --prompt "Count with me. $long" --temperature 0 --tokens 5 > longer 2> /dev/null
    [ "$(wc -l < stderr)" -le 1 ] || fail "$model, a long prompt: $(cat stderr)"
    tail -c 100 long > long.end
    tail -c 100 longer > longer.end
    same long.end longer.end "$model, the beginning of a long prompt"
    starpipe sample $model --threads 1 --prompt "Count with me:" --tokens 300 --temperature 3 --top-p 0.99 --format json \
        > beyond 2> stderr || fail "$model, beyond the positions: $(cat stderr)"
done
for prompt in $'\xff\xfeThe\xc3' $'\xf0\x9f\x8c' $'\xed\xa0\x80'; do
    for model in $models; do
        starpipe sample $model --threads 1 --prompt "$prompt" --tokens 4 --temperature 0 --format json > json 2> stderr
        status=$?
        if [ $status -eq 0 ]; then
            python3 -c 'import json, sys; json.loads(open(sys.argv[1], "rb").read().decode())' json 2> stderr ||
                fail "$model, a prompt that is no UTF-8: $(tail -n 1 stderr)"
        elif [ $status -ne 2 ] || [ "$(wc -l < stderr)" -ne 1 ] || ! grep -q UTF-8 stderr; then
            fail "$model, a prompt that is no UTF-8: status $status, $(cat stderr)"
        fi
    done
done
sampled none qwen2 --tokens 4 --temperature 0
sampled empty.text qwen2 --tokens 4 --temperature 0 --prompt ''
sampled newline qwen2 --tokens 4 --temperature 0 --prompt $'\n'
same none empty.text "no prompt, and an empty one"
[ "$(cat newline)" = $'\n'"$(cat none)" ] || [ "$(cat newline)" = "$(cat none)" ] ||
    fail "without bos a text begins behind a line break: $(cat none newline)"

# ---- stdout that is no place

starpipe sample gpt2 --prompt The --tokens 64 2> stderr | head -c 1 > first
status=${PIPESTATUS[0]}
[ "$(cat first)" = T ] || fail "the first byte is $(cat first)"
case $status in
0 | 1 | 141) ;;
*) fail "a closed pipe: status $status, $(cat stderr)" ;;
esac
for to in /dev/full none; do
    if [ $to = none ]; then
        starpipe sample gpt2 --prompt The --tokens 2 >&- 2> stderr
    else
        [ -w $to ] || continue
        starpipe sample gpt2 --prompt The --tokens 2 > $to 2> stderr
    fi
    status=$?
    [ $status -eq 1 ] && [ "$(wc -l < stderr)" -eq 1 ] || fail "$to: status $status, $(cat stderr)"
done

# ---- refusals

mkdir empty
: > file
# broken NAME: a copy of gpt2, to be broken.
broken()
{
    cp -r gpt2 "$1"
}
broken weightless && rm weightless/model.safetensors
broken cut && head -c 100000 gpt2/model.safetensors > cut/model.safetensors
broken wordless && rm wordless/tokenizer.json
broken garbled && echo '{"version": "1.0"' > garbled/tokenizer.json
broken configless && rm configless/config.json
broken narrow && sed -i 's/"vocab_size": [0-9]*/"vocab_size": 300/' narrow/config.json
refused 'DIR' sample --prompt x
refused 'DIR|one|llama2' sample gpt2 llama2 --prompt x
refused "'nowhere' is neither a preset nor a directory" sample nowhere --prompt x
refused 'empty' sample empty --prompt x
refused 'file' sample file --prompt x
refused 'configless.*config.json' sample configless --prompt x
refused 'gpt-tiny has no weights' sample gpt-tiny --prompt x
refused 'weightless.*(weights|model.safetensors)' sample weightless --prompt x
refused 'cut/model.safetensors' sample cut --prompt x
refused 'garbled.*tokenizer.json' sample garbled --prompt x
refused 'narrow' sample narrow --prompt x
starpipe sample wordless --prompt x --tokens 2 > stdout 2> stderr && grep -q 'wordless has no tokenizer.json: .* as bytes$' stderr ||
    fail "a model without a tokenizer: $(cat stderr)"
for value in -1 nan inf x '' 1e400; do
    refused 'temperature' sample gpt2 --prompt x --temperature "$value"
done
for value in 0 2 -0.5 nan x 1.0001; do
    refused 'top-p' sample gpt2 --prompt x --top-p "$value"
done
for value in -1 1.5 x; do
    refused 'top-k' sample gpt2 --prompt x --top-k "$value"
done
for value in 0 -1 1.5 x 1000001; do
    refused 'tokens' sample gpt2 --prompt x --tokens "$value"
done
refused 'seed' sample gpt2 --prompt x --seed x
refused 'format' sample gpt2 --prompt x --format xml
refused '--tempreature' sample gpt2 --prompt x --tempreature 1
refused 'cannot write nowhere/file: No such file' sample gpt2 --prompt x --output nowhere/file
refused 'cannot write empty: Is a directory' sample gpt2 --prompt x --output empty
echo there > there
refused 'temperature' sample gpt2 --prompt x --temperature -1 --output there
[ "$(cat there)" = there ] || fail "a refusal has written its file"
cp gpt2/model.safetensors weights
starpipe sample gpt2 --prompt x --output gpt2/model.safetensors > stdout 2> stderr
cmp -s weights gpt2/model.safetensors || fail "--output has replaced the weights"

# Ends of text as others write them: taken, or refused in a line.
for eos in '"eos_token_id": "x"' '"eos_token_id": -1' '"eos_token_id": 99999999999' '"eos_token_id": 1e30' \
    '"eos_token_id": [[384]]' '"eos_token_id": []' '"eos_token_id": null' '"eos_token_id": {}' '"x": 1' '"x"' ''; do
    echo "{$eos}" > gpt2/generation_config.json
    starpipe sample gpt2 --prompt The --tokens 3 --temperature 0 > stdout 2> stderr
    status=$?
    [ $status -eq 0 ] || [ $status -eq 2 ] && [ "$(wc -l < stderr)" -le 1 ] ||
        fail "generation_config.json with $eos: status $status, $(head -n 3 stderr)"
done
finish
