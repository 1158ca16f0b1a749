"""The documentation site, which Sphinx builds from the Markdown pages as they stand in the repository (`make docs`).

The source folder is the root of the repository, so that links between docs/, studies/results/ and the pages of the root
are those of the repository. Links to any other file or folder lead to a page that shows it.
"""

import functools
import importlib
import inspect
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import jax
from docutils import nodes
from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.osutil import relative_uri

from shoal import algorithms

ROOT = Path(__file__).resolve().parents[1]
NAVIGATION = tomllib.loads((ROOT / "docs" / "navigation.toml").read_text(encoding="utf-8"))
PAGES = ["docs/*.md", "docs/*/*.md", "studies/results/*.md", "studies/again/*.md"]
PAGES += ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(?=[)#])")

project = "Shoal"
author = copyright = "Shoal developers"
html_title = "Shoal"
root_doc = "docs/index"
include_patterns = PAGES
exclude_patterns = [".*", "build", "dist", "runs", "studies/records", "tests", "src"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.linkcode", "sphinx_copybutton"]
suppress_warnings: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "dollarmath"]
html_math_renderer = "mathml"
myst_url_schemes = ["http", "https", "mailto", "file-of"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
default_role = "code"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"

logger = logging.getLogger(__name__)

# Signatures in the reference, also in the names of jaxtyping's types, name it as users import it.
jax.Array.__name__, jax.Array.__qualname__, jax.Array.__module__ = "jax.Array", "Array", "jax"


# Navigation: sections become tables of contents of the front page, which shows none of them itself.


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the sections to the front page."""
    if page == root_doc:
        for caption, names in NAVIGATION.items():
            lines = "\n".join(names)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


def allow_outside_navigation(app: Sphinx, doctree: nodes.document) -> None:
    """Leave the pages of results, which studies link to, out of the navigation without a warning."""
    if app.env.docname.startswith(("studies/results/", "studies/again/")):
        app.env.metadata[app.env.docname]["orphan"] = True


def add_filters(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Let readers of the claims filter them."""
    if page == "docs/studies":
        app.add_js_file(None, body=f"window.ALGORITHMS = {json.dumps(sorted(algorithms.NAMES))};")
        app.add_js_file("claims.js")


# Links to files that are no pages of the site.


def mark_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Give links to other files and folders of the repository a scheme of their own."""
    folder = (ROOT / page).parent

    def marked(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[0]  # Sphinx warns
        name = target.relative_to(ROOT).as_posix()
        is_page = target.suffix == ".md" and name.removesuffix(".md") in app.env.found_docs
        return match[0] if is_page or target.suffix in (".png", ".gif", ".svg") else f"file-of:{name}"

    source[0] = LINK.sub(marked, source[0])


def resolve_files(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Point the marked links to the pages of their files."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if uri.startswith("file-of:"):
            name, _, anchor = uri.removeprefix("file-of:").partition("#")
            shown().add(name)
            lines = f"#{anchor.replace('L', 'line-', 1)}" if anchor else ""
            node["refuri"] = app.builder.get_relative_uri(page, file_page(name)) + lines


@functools.cache
def shown() -> set[str]:
    """The files and folders that a page links to."""
    return set()


def file_page(name: str) -> str:
    """The page that shows a file or a folder."""
    return f"files/{name}"


def write_file_pages(app: Sphinx, error: Exception | None) -> None:
    """A page for each file and folder that is linked to, and for what these folders hold.

    They are plain: with the theme's navigation, writing them would take longer than the whole site.
    """
    if error is not None or app.builder.format != "html":
        return
    names = shown()
    for name in sorted(names):
        if (ROOT / name).is_dir():
            names.update(path.relative_to(ROOT).as_posix() for path in contents(ROOT / name) if path.is_file())
    for name in sorted(names):
        path, page = ROOT / name, file_page(name)
        out = Path(app.outdir) / f"{page}.html"
        out.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            body = listing(app, path, names)
        else:  # and the file itself, for readers without a checkout
            body = f'<p><a href="{path.name}" download>Download</a></p>{highlighted(path)}'
            shutil.copyfile(path, out.with_name(path.name))
        out.write_text(FILE.format(name=name, body=body, root="../" * page.count("/")), encoding="utf-8")


FILE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} - Shoal</title>
<link rel="stylesheet" href="{root}_static/pygments.css"><link rel="stylesheet" href="{root}_static/file.css"></head>
<body><script>document.body.dataset.theme = localStorage.getItem("theme") || "auto"</script>
<nav><a href="{root}docs/index.html">Shoal</a></nav><h1>{name}</h1>{body}</body></html>
"""


def contents(folder: Path) -> list[Path]:
    """What a folder shows."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__pycache__")))


def listing(app: Sphinx, folder: Path, names: set[str]) -> str:
    """A folder as a list of links."""
    here = file_page(folder.relative_to(ROOT).as_posix())
    lines = []
    for path in contents(folder):
        name = path.relative_to(ROOT).as_posix()
        link = app.builder.get_relative_uri(here, file_page(name))
        lines.append(f'<li><a href="{link}">{path.name}</a></li>' if name in names else f"<li>{path.name}</li>")
    return f"<ul>{''.join(lines)}</ul>"


def highlighted(path: Path) -> str:
    """A file with the numbers of its lines, which are anchors; a notebook without its markup."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = get_lexer_for_filename("a.txt")
    form = HtmlFormatter(linenos="inline", anchorlinenos=True, lineanchors="line", cssclass="highlight file")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":  # as a script: text in comments, and cells in their order
            cells = [(cell["cell_type"] == "code", "".join(cell["source"])) for cell in json.loads(text)["cells"]]
            text = "\n\n\n".join(body if code else re.sub("(?m)^", "# ", body) for code, body in cells)
            lexer = get_lexer_for_filename("a.py")
        return highlight(text, lexer, form)
    except UnicodeDecodeError:
        return f"<p>A binary file of {path.stat().st_size:,} bytes.</p>"


# Equations, as MathML: browsers draw it without a script.


def write_equation(display: str, writer: Any, node: nodes.Element) -> None:
    """An equation, which scrolls sideways where it is too wide; a command that is not known is a warning."""
    found = convert(node.astext(), display=display)
    if command := re.search(r">(\\[A-Za-z]+)<", found):
        logger.warning("The equation has the unknown command %s.", command[1], location=node)
    writer.body.append(f'<div class="equation">{found}</div>' if display == "block" else found)
    raise nodes.SkipNode


# The reference.


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The page of an object's source, at its line; relative to the pages of docs/reference/."""
    found: Any = importlib.import_module(info["module"])
    for part in info["fullname"].split("."):
        found = getattr(found, part, None)
    try:
        found = inspect.unwrap(found.fget if isinstance(found, property) else found)
        path, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (TypeError, OSError, AttributeError):
        return None
    if path is None or not Path(path).is_relative_to(ROOT / "src"):
        return None
    name = Path(path).relative_to(ROOT).as_posix()
    shown().add(name)
    return f"../../{file_page(name)}.html#line-{line}"


CODE = r"(``.+?``|`.+?`|\*\*\w+\*\*|^\* |::\n\n(?:(?: +[^\n]*)?\n)+)"


def prepare_docstring(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Keep equations as they stand: indented blocks of a module's docstring, and ``*`` and ``|`` in sentences."""
    text = re.sub(r"(?m)^Alias for field number \d+$", "", "\n".join(lines)).replace("\0", ":")
    if what == "module":
        text = re.sub(r"(?m)(?<=^[^ \n])(.*\n\n)(?=    )", r"\1::\n\n", text)
    parts = re.split(CODE, text, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def one_text(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from reading the words before a colon as the type of a field."""
    if what == "attribute":
        lines[:] = [line.replace(":", "\0") for line in lines]


def hide_fields(app: Sphinx, what: str, name: str, found: Any, *rest: Any) -> tuple[str, None] | None:
    """No signature for classes whose fields are listed below it."""
    fields = hasattr(found, "_fields") or hasattr(found, "__dataclass_fields__")
    return ("", None) if what == "class" and fields else None


def write_entrance(app: Sphinx, error: Exception | None) -> None:
    """Lead from the root of the site to the front page."""
    if error is None and app.builder.format == "html":
        page = relative_uri("index", f"{root_doc}.html")
        text = f'<!doctype html><title>Shoal</title><meta http-equiv="refresh" content="0; url={page}">\n'
        text += f'<link rel="canonical" href="{page}"><a href="{page}">Shoal</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    inline, block = (functools.partial(write_equation, display) for display in ("inline", "block"))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("source-read", mark_files)
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", allow_outside_navigation)
    app.connect("html-page-context", add_filters)
    app.connect("doctree-resolved", resolve_files)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=900)
    app.connect("autodoc-process-docstring", one_text, priority=100)
    app.connect("autodoc-process-signature", hide_fields)
    app.connect("build-finished", write_entrance)
    app.connect("build-finished", write_file_pages)
