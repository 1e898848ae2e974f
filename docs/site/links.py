"""Links of the Markdown files, which are written for a forge: relative paths of files, GitHub's anchors of headings.

A link to a page of the site goes there. One to any other file of the sources goes to a page with that file, which is
made for it: so a site needs no forge, and shows the sources that its text is about.
"""
import html
import os
import re
from urllib.parse import unquote, urlsplit

from docutils import nodes
from pygments.lexers import TextLexer, guess_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

PLAYGROUND = "build-playground/playground.html"  # as docs/playground.md names it
logger = logging.getLogger(__name__)


class Anchors(SphinxTransform):
    """Headings have the anchors that a forge gives them."""

    default_priority = 400

    def apply(self, **_):
        if not self.env.docname.startswith("manual/"):
            seen = {}
            for section in self.document.findall(nodes.section):
                title = section.next_node(nodes.title).astext()
                slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
                seen[slug] = seen.get(slug, -1) + 1
                section["ids"] = [f"{slug}-{seen[slug]}" if seen[slug] else slug]


class NoComments(SphinxTransform):
    """HTML comments say how tables are made and commands are run: nothing to read, or to search for."""

    default_priority = 400

    def apply(self, **_):
        for raw in list(self.document.findall(nodes.raw)):
            if raw.astext().lstrip().startswith("<!--"):
                raw.parent.remove(raw)


def source_page(path, top):
    """The name of the page with a file, or with the list of a folder."""
    name = os.path.relpath(path, top)
    return f"{name}/index" if os.path.isdir(path) else name


def resolve(app, doctree, docname):
    folder = os.path.dirname(app.project.doc2path(docname))
    for link in list(doctree.findall(nodes.reference)):
        uri = urlsplit(link.get("refuri", ""))
        if link.get("internal") or uri.scheme or not uri.path:
            continue
        path = os.path.normpath(os.path.join(folder, unquote(uri.path)))
        page = app.project.path2doc(path) or app.project.path2doc(os.path.join(path, "README.md"))
        if not page:
            if not os.path.exists(path) or os.path.relpath(path, app.srcdir).startswith(".."):
                logger.warning("no such file: %s", link["refuri"], location=link)
                continue
            page = source_page(path, app.srcdir)
            app.env.linked_sources.setdefault(path, set()).add(docname)
        anchor = f"#{uri.fragment}" if uri.fragment else ""
        link["refuri"] = app.builder.get_relative_uri(docname, page) + anchor
        link["internal"] = True
    if app.config.playground:
        for literal in list(doctree.findall(nodes.literal)):
            if literal.astext() == PLAYGROUND:
                above = "../" * docname.count("/")
                literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=f"{above}playground.html"))


def highlighted(app, path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        lexer = guess_lexer_for_filename(path, text)
    except ClassNotFound:
        lexer = TextLexer()
    return f'<div class="source">{app.builder.highlighter.highlight_block(text, lexer.aliases[0], force=True)}</div>'


def collect_sources(app):
    """A page for each file and folder that a page links to, and for all that is in such a folder."""
    sources = dict(app.env.linked_sources)
    for path, linked_from in app.env.linked_sources.items():
        for folder, folders, files in os.walk(path):
            for name in folders + files:
                sources.setdefault(os.path.join(folder, name), linked_from)
    for path, linked_from in sorted(sources.items()):
        page = source_page(path, app.srcdir)
        if page in app.project.docnames:  # the folder has a README.md
            continue

        def link(target, text):
            return f'<a href="{app.builder.get_relative_uri(page, target)}">{html.escape(text)}</a>'

        name = html.escape(os.path.relpath(path, app.srcdir))
        back = ", ".join(link(other, app.env.titles[other].astext()) for other in sorted(linked_from))
        if os.path.isdir(path):
            files = sorted(os.listdir(path))
            body = "".join(f"<li>{link(source_page(os.path.join(path, file), app.srcdir), file)}</li>" for file in files)
            body = f"<ul>{body}</ul>"
        else:
            body = highlighted(app, path)
        yield page, {"title": name, "body": f"<h1>{name}</h1><p>Linked from {back}.</p>{body}"}, "page.html"


def begin(app):
    app.env.linked_sources = {}


def setup(app):
    app.add_transform(Anchors)
    app.add_transform(NoComments)
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", collect_sources)
    return {"parallel_read_safe": False}
