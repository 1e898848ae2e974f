"""The site of the documentation: README.md is its front page, and the Pages section of README.md its navigation.

Markdown files stay as a forge shows them; pages.py, links.py, manual.py and looks.py make pages of a site of them. Nothing asks
for anything outside of the site, so that a directory on a disk is enough to serve it, and a search too.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "starpipe"
root_doc = "index"
extensions = ["myst_parser", "pages", "links", "manual", "looks"]
source_suffix = {".md": "markdown", ".1": "man"}
include_patterns = []  # pages.py says what is a page

# links.py knows what a relative link means, here and on a forge.
myst_all_links_external = True

highlight_language = "none"  # of a block that names none
html_theme = "theme"
html_theme_path = [str(HERE)]
html_title = project
html_show_sourcelink = html_copy_source = False
html_use_index = False
html_permalinks_icon = "#"
