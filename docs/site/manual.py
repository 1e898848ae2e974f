"""Manual pages, which the program writes in the macros of man(7), as pages of the site; mandoc converts them."""
import re
import subprocess
import xml.etree.ElementTree as xml

from docutils import nodes
from sphinx import addnodes
from sphinx.parsers import Parser

PAGE = re.compile(r"<b>(starpipe[a-z0-9-]*)</b>\(1\)")


def convert(roff):
    """The <section>s of a manual page."""
    command = ["mandoc", "-man", "-T", "html", "-O", "fragment"]
    done = subprocess.run(command, input=roff, capture_output=True, text=True, check=True)
    return xml.fromstring(f"<page>{PAGE.sub(LINKED, done.stdout)}</page>").iter("section")


LINKED = r'<a href="\1.html"><b>\1</b></a>(1)'


class Manual(Parser):
    supported = ("man",)

    def parse(self, inputstring, document):
        name = self.env.docname.rpartition("/")[2]
        title = name.replace("-", " ") if "-" in name else f"The command {name}"
        page = nodes.section("", nodes.title("", title), ids=[name])
        document += page
        self.add_pages_below(name, page)
        for part in convert(inputstring):
            if part.get("class") == "Sh":
                page += self.section(part)

    def section(self, part):
        """A section of it; sections in it, and HTML between them."""
        heading = part[0]
        title = "".join(heading.itertext())
        node = nodes.section("", nodes.title("", title.capitalize()), ids=[heading.get("id").lower()])
        for child in part[1:]:
            if child.tag == "section":
                node += self.section(child)
            else:
                node += nodes.raw("", xml.tostring(child, encoding="unicode"), format="html")
        return node

    def add_pages_below(self, name, page):
        """The pages of commands are below that of the program, and those of their commands below theirs."""
        names = sorted(other.rpartition("/")[2] for other in self.env.found_docs if other.startswith("manual/"))

        def above(other):
            return max((one for one in names if other.startswith(f"{one}-")), key=len, default=None)

        below = [f"manual/{other}" for other in names if above(other) == name]
        if below:
            page += addnodes.toctree(
                entries=[(None, other) for other in below], includefiles=below, parent=self.env.docname, hidden=True,
                glob=False, caption=None, maxdepth=-1, numbered=0, titlesonly=False, includehidden=False)


def setup(app):
    app.add_source_parser(Manual)
    return {"parallel_read_safe": False}
