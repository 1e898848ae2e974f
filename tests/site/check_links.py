#!/usr/bin/env python3
"""Every link of a site goes somewhere, and no page asks for anything outside of it: check_links.py SITE.

Files and anchors that the pages name must be there; a style, a script or a picture must be of the site. Links to other
sites are not followed. Prints a line for each fault; exit status 1 if there is one.
"""
import pathlib
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself, by element; a link fetches if it is of one of these kinds.
FETCHED = {"img": ["src", "srcset"], "script": ["src"], "iframe": ["src"], "source": ["src", "srcset"], "embed": ["src"],
           "object": ["data"], "video": ["src"], "audio": ["src"]}
FETCHING = {"stylesheet", "icon", "preload", "modulepreload", "manifest", "dns-prefetch", "preconnect"}
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.fetched, self.style = set(), [], [], False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = {name: value or "" for name, value in attributes}
        self.anchors.update(attributes[name] for name in ("id", "name") if name in attributes)
        self.style = tag == "style"
        self.fetched += styled(attributes.get("style", ""))
        for name in FETCHED.get(tag, []):
            self.fetched += [word.split()[0] for word in attributes.get(name, "").split(",") if word.split()] \
                if name == "srcset" else [attributes[name]] if name in attributes else []
        if tag == "link":
            kinds = set(attributes.get("rel", "").split())
            (self.fetched if kinds & FETCHING else self.links).append(attributes.get("href", ""))
        elif tag in ("a", "area"):
            self.links += [attributes["href"]] if "href" in attributes else []
        elif tag == "form":
            self.links += [attributes.get("action", "")]

    def handle_endtag(self, tag):
        self.style = False

    def handle_data(self, data):
        if self.style:
            self.fetched += styled(data)


def styled(text):
    return [one or other for one, other in STYLE_URL.findall(text)]


def faults(site):
    paths = sorted(site.rglob("*.html"))
    pages = {path: Page(path) for path in paths}
    styles = {path: styled(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.css"))}
    for path in [*pages, *styles]:
        fetched = pages[path].fetched if path in pages else styles[path]
        for target in fetched:
            if target.startswith("data:"):
                continue
            uri = urlsplit(target)
            if uri.scheme or uri.netloc:
                yield path, f"fetches what is elsewhere: {target}"
            elif uri.path and not (path.parent / unquote(uri.path)).is_file():
                yield path, f"no such file: {target}"
    for path, page in pages.items():
        for target in page.links:
            uri = urlsplit(target)
            if uri.scheme or uri.netloc:
                continue
            if uri.path.startswith("/"):
                yield path, f"a link from the root of the server: {target}"
                continue
            to = (path.parent / unquote(uri.path)).resolve() if uri.path else path
            if site not in to.parents:
                yield path, f"leaves the site: {target}"
            elif not to.is_file():
                yield path, f"no such file: {target}"
            # The playground keeps what it shows in its address: #view=plan is no anchor.
            elif uri.fragment and "=" not in uri.fragment and to in pages and unquote(uri.fragment) not in pages[to].anchors:
                yield path, f"no such anchor: {target}"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    found = sorted({(str(path.relative_to(site)), fault) for path, fault in faults(site)})
    for path, fault in found:
        print(f"{path}: {fault}")
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages, {len(found)} faults")
    sys.exit(bool(found) or not pages)


main()
