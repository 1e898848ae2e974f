#!/usr/bin/env python3
"""The prose of the documentation and of comments in C: how sentences begin, private words; of pages also links, and how
long all of it is.

usage: check_prose.py TOP WORDS

TOP is the source tree. WORDS has a line for each expression that is not used, a tab, and what to say instead; then a tab
and "pages" if comments may use it. Prints a line for each fault; exit status 1 if there is one.
"""

import pathlib
import re
import sys

FOLDERS = ["include", "src", "tests", "examples", "bench"]  # of code
LONGEST = 30000  # words of README.md and docs/, as wc -w counts them
OPENINGS = ["Of", "Those", "That of", "What", "Where", "Whether", "Beside"]
OPENING = re.compile(r"(?:^|[.!?:;]['\")*_]* +)[(*_\"']*(" + "|".join(OPENINGS) + r")\b")
LINK = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^)\s]+)\)")


CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)  # strings, so that none is a comment


def blank(match):
    """Nothing in its place, on as many lines."""
    return re.sub(r"[^\n]", " ", match[0])


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


class Page:
    def __init__(self, path):
        self.path = path
        self.raw = path.read_text(encoding="utf-8")
        text = re.sub(r"^( *)```.*?^\1``` *$", blank, self.raw, flags=re.M | re.S)
        self.text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
        self.prose = re.sub(r"`[^`]*`", lambda m: blank(m).replace(" ", "x"), self.text)

    def anchors(self):
        found = re.findall(r'<a (?:id|name)="([^"]+)"', self.raw)
        seen = {}
        for heading in re.findall(r"^#+ +(.+?) *#*$", self.text, re.M):
            name = slug(heading)
            found.append(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
        return found

    def blocks(self):
        """Paragraphs, items of lists and cells of tables, each on one line, with the number of its first."""
        number, lines = 0, []
        for n, line in enumerate(self.prose.split("\n") + [""], 1):
            cell = re.match(r" *\|", line)
            item = re.match(r" *(?:[-*+>]|\d+\.) +", line)
            apart = not line.strip() or cell or item or line.startswith("#")
            if lines and apart:
                yield number, " ".join(lines)
                lines = []
            if cell:
                yield from ((n, text.strip()) for text in line.split("|"))
            elif line.strip() and not line.startswith("#"):
                number = number if lines else n
                lines.append(line[item.end():] if item else line.strip())


def comments(path):
    """Paragraphs of the comments of a file in C, each on one line, with the line that its comment begins on."""
    text = path.read_text(encoding="utf-8")
    for match in CODE.finditer(text):
        if match[0].startswith("/"):
            inside = re.sub(r"\n[ \t]*\*? ?", "\n", re.sub(r"^/\*+<?|\*/$|^//+", "", match[0]))
            for block in re.split(r"\n\s*\n", inside):
                yield text.count("\n", 0, match.start()) + 1, " ".join(block.split())


def openings(blocks):
    for number, block in blocks:
        for match in OPENING.finditer(block):
            at = block[match.start(1):match.start(1) + 50]
            yield number, f"a sentence begins with '{match[1]}': {at}"


def private(lines, words):
    for number, line in lines:
        for word, say, *_ in words:
            for match in re.finditer(rf"\b{word}\b", line, re.I):
                yield number, f"'{match[0]}': say {say}"


def page_faults(page, words, pages):
    yield from openings(page.blocks())
    yield from private(enumerate(page.prose.split("\n"), 1), words)
    for number, line in enumerate(page.text.split("\n"), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.path.parent / name).resolve() if name else page.path
            if not path.exists():
                yield number, f"no such file: {target}"
            elif anchor and path.suffix == ".md":
                if path not in pages:
                    pages[path] = Page(path)
                if anchor not in pages[path].anchors():
                    yield number, f"no such heading: {target}"


def main():
    top = pathlib.Path(sys.argv[1]).resolve()
    words = [
        line.rstrip("\n").split("\t")
        for line in open(sys.argv[2], encoding="utf-8")
        if line.strip() and not line.startswith("#")
    ]
    docs = [top / "README.md", *sorted((top / "docs").rglob("*.md"))]
    others = [path for folder in ("examples", "bench") for path in sorted((top / folder).rglob("*.md"))]
    code = [path for folder in FOLDERS for path in sorted((top / folder).rglob("*")) if path.suffix in (".c", ".h", ".cu")]
    pages = {path: Page(path) for path in docs + others}
    count = 0
    for path in docs + others + code:
        if path in pages:
            found = page_faults(pages[path], words, pages)
        else:
            blocks = list(comments(path))
            found = [*openings(blocks), *private(blocks, [word for word in words if len(word) == 2])]
        for number, fault in sorted(found):
            print(f"{path.relative_to(top)}:{number}: {fault}")
            count += 1
    length = sum(len(pages[path].raw.split()) for path in docs)
    print(f"{length} words in {len(docs)} pages, {count} faults")
    if length > LONGEST:
        print(f"README.md and docs/ have more than {LONGEST} words")
    sys.exit(count > 0 or length > LONGEST)


main()
