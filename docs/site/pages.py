"""The pages of the site, and their order.

A page is each Markdown file below; README.md of a folder is the index of that folder. Manual pages are what `make`
left in the directory `manual`, a configuration value, and `playground` is the page of the playground, if it was built.
The navigation is read from the Pages section of README.md; what it leaves out follows.
"""
import os
import pathlib
import re

from sphinx.errors import ConfigError
from sphinx.project import Project

MARKDOWN = ["README.md", "CHANGELOG.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md", "packaging/**/*.md"]
TOPIC = re.compile(r"^- (\w+): (.*?)(?=^- |\Z)", re.M | re.S)
LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")


class Pages(Project):
    def __init__(self, app):
        super().__init__(app.srcdir, app.config.source_suffix)
        top = pathlib.Path(app.srcdir)
        found = {path.relative_to(top).with_suffix(""): path for glob in MARKDOWN for path in top.glob(glob)}
        self.paths = {
            str(name.with_name("index") if name.name == "README" else name): str(path) for name, path in found.items()
        }
        for path in pathlib.Path(app.config.manual).glob("*.1"):
            self.paths[f"manual/{path.stem}"] = str(path)
        self.names = {path: name for name, path in self.paths.items()}

    def discover(self, *_, **__):
        self.docnames = set(self.paths)
        return self.docnames

    def path2doc(self, filename):
        return self.names.get(os.path.normpath(os.path.join(self.srcdir, filename)))

    def doc2path(self, docname, absolute=True):
        path = self.paths[docname]
        return path if absolute else os.path.relpath(path, self.srcdir)


def take_pages(app):
    app.project = app.env.project = Pages(app)


def capital(text):
    return text[0].upper() + text[1:]


def topics(app, readme):
    """(caption, [(label, page)]) of each item of the Pages section; a page is listed once."""
    seen = {"index"}
    _, heading, section = readme.partition("\n## Pages\n")
    if not heading:
        raise ConfigError("README.md has no section Pages, which the navigation of the site is made from")
    for caption, text in TOPIC.findall(section.partition("\n## ")[0]):
        links = [(label, app.project.path2doc(target)) for label, target in LINK.findall(text)]
        yield caption, [(capital(label), page) for label, page in links if page and not (page in seen or seen.add(page))]
    if "manual/starpipe" in app.project.docnames:
        yield "Manual", [("Commands", "manual/starpipe")]  # which lists the other pages of the manual
    others = sorted(page for page in app.project.docnames - seen if not page.startswith("manual/"))
    yield "More", [(None, page) for page in others]


def add_navigation(app, docname, source):
    if docname != "index":
        return
    for caption, entries in topics(app, source[0]):
        lines = [f"{label} </{page}>" if label else f"/{page}" for label, page in entries]
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```\n"])


def add_playground(app, config):
    config.html_context["playground"] = bool(config.playground)
    if config.playground:
        config.html_extra_path = [config.playground]


def setup(app):
    app.add_config_value("manual", "", "env")
    app.add_config_value("playground", "", "env")
    app.connect("config-inited", add_playground)
    app.connect("builder-inited", take_pages, priority=0)
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": False}
