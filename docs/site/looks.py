"""What the theme wants of the pages: tables in a box that scrolls on a phone, and no scripts but those of the search."""
from docutils import nodes

# Sphinx before 6 loads them for other themes.
NOT_NEEDED = ("jquery.js", "underscore.js", "_sphinx_javascript_frameworks_compat.js")


def box_tables(app, doctree, docname):
    for table in list(doctree.findall(nodes.table)):
        box = nodes.container(classes=["table"])
        table.replace_self(box)
        box += table


def leave_out(app, pagename, templatename, context, doctree):
    context["script_files"] = [file for file in context["script_files"] if not str(getattr(file, "filename", file)).endswith(NOT_NEEDED)]


def setup(app):
    app.connect("doctree-resolved", box_tables)
    app.connect("html-page-context", leave_out)
    return {"parallel_read_safe": False}
