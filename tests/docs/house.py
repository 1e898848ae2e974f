#!/usr/bin/env python3
"""What includes what under src: nothing but the runtime's own folders includes StarPU, what asks for a macro of StarPU
includes it itself, and no files include each other in a circle, a .c and its .h counted as one.

usage: house.py SRC
"""
import os
import re
import sys

STARPU = ("offload/", "policies/simulation/starpu_", "simulate/", "sinks/starpu/", "transport/")


def includes(text):
    return re.findall(r'^#\s*include\s+(["<][^">]+[">])', text, re.M)


def unit(name):
    return re.sub(r"\.(c|h|cu|cuh)$", "", name)


def circles(edges):
    """Strongly connected components of more than one unit (Tarjan 1972)."""
    number, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        on.add(v)
        for w in sorted(edges.get(v, ())):
            if w not in number:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], number[w])
        if low[v] == number[v]:
            one = []
            while not one or one[-1] != v:
                one.append(stack.pop())
                on.discard(one[-1])
            if len(one) > 1:
                found.append(sorted(one))

    sys.setrecursionlimit(10000)
    for v in sorted(edges):
        if v not in number:
            visit(v)
    return found


def main():
    src = sys.argv[1]
    edges, bad = {}, 0
    for folder, _, files in os.walk(src):
        for name in files:
            if not re.search(r"\.(c|h|cu|cuh)$", name):
                continue
            path = os.path.join(folder, name)
            here = os.path.relpath(path, src)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            included = includes(text)
            asked = re.search(r"^#\s*(?:el)?if.*\b(STARPU_\w+)", text, re.M)
            if asked and not any(what.startswith("<starpu") for what in included):
                print(f"{here}: asks for {asked[1]} and does not include StarPU")
                bad += 1
            for what in included:
                if what.startswith("<starpu") and not here.startswith(STARPU):
                    print(f"{here}: includes {what}")
                    bad += 1
                other = unit(what.strip('"<>'))
                if what[0] == '"' and other != unit(here) and os.path.exists(os.path.join(src, what.strip('"'))):
                    edges.setdefault(unit(here), set()).add(other)
    for circle in circles(edges):
        print(f"a circle of {len(circle)} files: {' '.join(circle)}")
        bad += 1
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
