#!/usr/bin/env python3
"""The whole way, text in and text out: python3 text_out.py STARPIPE FOLDER, which is made and filled

Every model of tests/data/sample is trained anew on a text and saved; `transformers` loads what was saved. The tokens of
the text, the greedy continuations of prompts and the end at eos are the same. Differences are printed; exit
status 1 if there are any."""
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../data/sample")
spec = importlib.util.spec_from_file_location("sample_make", os.path.join(DATA, "make.py"))
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

PROMPTS = ["The", "The water", "A ", " a slice", "Der Zug h", "one line\r\n", "def sign(x", "Привет", "Emoji: 👍🏽", "e\u0301", "2026",
           "no such text"]


def command(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, timeout=600)
    if done.returncode:
        sys.exit(f"starpipe {' '.join(map(str, args))}: status {done.returncode}: {done.stderr.decode()[:300]}")
    return done.stdout


def sample(program, dir, prompt):
    out = json.loads(command(program, "sample", dir, f"--prompt={prompt}", "--temperature", 0, "--tokens", make.LIMIT,
                             "--format", "json"))
    out.pop("model")
    return out


def check_model(program, name, folder):
    """Complaints, and how many continuations were compared."""
    model, saved, book = (os.path.join(folder, name + end) for end in (".model", ".saved", ".txt"))
    shutil.copytree(os.path.join(DATA, name), model, ignore=shutil.ignore_patterns("*.safetensors", "expected.json"))
    with open(book, "w", encoding="utf-8", newline="") as f:
        f.write("\n".join(d.replace("MARK", "").replace("SECOND", "") for d in make.DOCUMENTS) + "\n")
    command(program, "train", "--data", book, "--model", model, "--seq", 64, "--steps", 60, "--lr", 5e-3,
            "--micro-batches", 8, "--save", saved)
    tokens = os.path.join(folder, name + ".bin")
    command(program, "tokenize", book, "--model", saved, "--output", tokens, "--document-separator", "none")
    writer, wrong = make.Writer(saved), []
    with open(book, encoding="utf-8", newline="") as f:
        ids = writer.tokenizer(f.read(), add_special_tokens=False, split_special_tokens=True)["input_ids"]
    with open(tokens, "rb") as f:
        same = ids == [t for t, in struct.iter_unpack("<H", f.read())]
    if not same:
        wrong.append(f"{name}: the text has other tokens")
    compared, ends = 0, None
    for prompt in PROMPTS:
        want, why = writer.case(prompt)
        if why:
            print(f"{name}: without {prompt!r}: {why}")
            continue
        got = sample(program, saved, prompt)
        # A run of bytes that is no UTF-8 at the end: transformers says none of its characters, starpipe the whole ones.
        if want["text"] is None:
            got["text"] = None
        elif want["text"].endswith("\ufffd"):
            want["text"] = want["text"].rstrip("\ufffd")
            got["text"] = got["text"][:len(want["text"])]
        wrong += [f"{name} {prompt!r}: {k} is {got[k]!r}, wanted {want[k]!r}" for k in want if got[k] != want[k]]
        compared += 1
        # A token that comes up late becomes the end.
        late = [t for t in want["tokens"][5:] if t not in want["tokens"][:5]]
        ends = ends or (late and (prompt, late[0]))
    if not ends:
        return wrong + [f"{name}: no token to end with"], compared
    prompt, eos = ends
    make.write_json({"eos_token_id": [eos, 3]}, saved, "generation_config.json")
    want, _ = make.Writer(saved).case(prompt)
    got = sample(program, saved, prompt)
    if want["ended_by"] != "eos" or any(got[k] != want[k] for k in ("tokens", "ended_by")):
        wrong.append(f"{name} {prompt!r}, eos {eos}: {got}, wanted {want}")
    return wrong, compared + 1


def main():
    program, folder = sys.argv[1:]
    os.makedirs(folder)
    make.torch.set_num_threads(1)
    wrong = []
    for name in make.MODELS:
        said, compared = check_model(program, name, folder)
        print(f"{name}: {compared} continuations, {len(said)} differences")
        wrong += said
        if compared < 5:
            wrong.append(f"{name}: only {compared} continuations were compared")
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
