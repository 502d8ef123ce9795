"""How Sphinx makes a site of the Markdown files of this repository: ``make site``.

The files stay where they are and link to each other as a forge wants it, so the site has the
folders of the repository. Warnings are errors: a link to a page, a file or an anchor that is not
there ends the build, and so does a page that docs/index.md does not list.
"""

project = "imgbuild"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "examples/README.md",
    "examples/keras-standalone/README.md",
    "tests/image/README.md",
    "tests/standin/README.md",
    "benchmarks/README.md",
]
nitpicky = True
myst_heading_anchors = 4  # named as GitHub names them
# `site:` is what lies beside the pages and is no file of the repository: the catalogue.
myst_url_schemes = {"http": None, "https": None, "site": {"url": "../{{path}}"}}

html_theme = "furo"
html_title = "imgbuild"
html_copy_source = False
html_show_copyright = False
html_use_index = False
