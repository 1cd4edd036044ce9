"""Read the pages: their code, links and headings; run their examples.

A block of Python is run if a comment stands right before it, which readers do not see:

    <!-- run -->                      as it stands, on an etcd in memory
    <!-- run                          after these lines, which give it the names it needs
    def lead(token): raise Enough
    -->
    <!-- run: server -->              by `integration`: it starts etcd servers
    <!-- run: spark -->               by `integration`: on a real Spark, an etcd in memory, a Redis
    <!-- run: saved -->               by `integration`: saved as the file that the text before names

The README hides nothing. Each of its blocks of Python is a file that the text before it names, and
`integration` runs this file as it stands.
"""

import ast
import contextlib
import inspect
import re
import textwrap
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
_FOLDERS = ("bench", "deploy", "docs", "examples", "integration", "tests")
ALL_PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for name in _FOLDERS for page in (ROOT / name).rglob("*.md"))]
)

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- run(?:: *(\w+))? *(?:\n(.*))?-->", re.DOTALL)


class Enough(Exception):  # noqa: N818 - an end, not an error
    """End an example that would go on for ever."""


def shop():
    """Return a new app with two streams.

    Examples of streams use these names.
    """
    from rink.streams import App, Record

    class Order(Record):
        customer: str
        amount: int = 0

    class Total(Record):
        customer: str
        total: int

    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer")
    totals = app.stream("totals", record=Total, partition_by="customer")
    return app, Order, orders, Total, totals


@attrs.frozen
class Block:
    """Hold one fenced block; `setup` is None if it is not run."""

    page: Path
    line: int
    language: str
    code: str
    setup: str | None
    needs: str

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def compiled(self):
        """Compile the code with the line numbers of its page."""
        lines = "\n" * self.line + self.code
        return compile(lines, str(self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def blocks(page, language):
    """Return the blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if found[2] != language:
            continue
        before = text[: found.start()].rstrip()
        mark = _MARK.fullmatch(before[max(0, before.rfind("<!--")) :])
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=language,
            code=textwrap.dedent(found[3]),
            setup=(mark[2] or "") if mark else None,
            needs=(mark[1] or "") if mark else "",
        )


def all_blocks(language):
    return [block for page in PAGES for block in blocks(page, language)]


def scripts(page):
    """Return the blocks of Python to save, by the file's name.

    The page asks its readers to save them.
    """
    text = page.read_text(encoding="utf-8")
    named = {}
    for match in _FENCE.finditer(text):
        if match[2] != "python":
            continue
        before = re.sub(r"<!--[^<]*-->$", "", text[: match.start()].rstrip()).rstrip()
        for name in re.findall(r"[Ss]ave this as `(\w+\.py)`", before.rpartition("\n\n")[2]):
            assert name not in named
            named[name] = match[3]
    return named


def run(block, request, **names):
    """Run a block, and then each test that it defines.

    The tests get their fixtures.

    Args:
        block: to be run.
        request: of pytest.
        names: the names that the block finds beside those of its setup.

    Returns:
        The names that there are in the end.
    """
    assert block.setup is not None
    space = {"__name__": "example", "Enough": Enough, **names}
    exec(compile(textwrap.dedent(block.setup), f"setup of {block.where}", "exec"), space)
    before = set(space)
    with contextlib.suppress(Enough):
        exec(block.compiled(), space)
    for name in [name for name in space if name.startswith("test_") and name not in before]:
        asked = inspect.signature(space[name]).parameters
        space[name](**{fixture: request.getfixturevalue(fixture) for fixture in asked})
    return space


def prose(page):
    """Return a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page):
    """Return the targets of the page's links."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page):
    """Return the valid fragments of a page: its headings' anchors.

    They are spelt as the usual renderers do.
    """
    found = re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def code_words(*pages):
    """Return every name in code: in backticks, or in a block of Python."""
    words = set()
    for page in pages:
        for span in re.findall(r"`([^`\n]+)`", prose(page)):
            words.update(re.findall(r"\w+", span))
        for block in blocks(page, "python"):
            words.update(re.findall(r"\w+", block.code))
    return words


def rows(page, heading):
    """Return the cells of each table row under a heading.

    The keys are the names in the first cells.
    """
    _, _, section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    found = {}
    for line in section.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            found[name[1]] = cells[1:]
    return found
