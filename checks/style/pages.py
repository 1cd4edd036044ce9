"""Count the words and the long sentences of the pages for users.

Code blocks and HTML comments do not count. Inline code is one word. A link is its text. A heading,
a list item and each cell of a table is a text of its own. A sentence ends at . ! ? or : before a
space or the end of the text; "e.g." and "i.e." end none. A word has a letter or a digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

MAX_WORDS = 30
NOT_FOR_USERS = ("internals", "design")

_CODE = re.compile(r"(`+).+?\1")
_LINK = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
_TAG = re.compile(r"</?[a-zA-Z][^>]*>")
_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?:][)\]\"'*_]*(?=\s|$)")
_ITEM = re.compile(r"([-*+]|\d+[.)])\s+")
_ROW_OF_RULES = re.compile(r"[|:\s-]+$")
_WORD = re.compile(r"\w")


@attrs.frozen
class Text:
    """Hold a paragraph, list item, heading or cell.

    Attributes:
        line: where it begins.
        words: the text, in Markdown.
    """

    line: int
    words: str


@attrs.frozen
class Sentence:
    """Hold one sentence.

    Attributes:
        line: where its text begins.
        words: how many.
        opening: its first words.
    """

    line: int
    words: int
    opening: str


def user_pages(root: Path) -> list[Path]:
    """Return README.md and the pages of docs/ that are for users."""
    docs = root / "docs"
    pages = [
        path
        for path in sorted(docs.rglob("*.md"))
        if path.relative_to(docs).parts[0] not in NOT_FOR_USERS
    ]
    return [root / "README.md", *pages]


def fences(markdown: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its number and whether it is in a code block.

    The fences of a block are part of it.
    """
    fence = ""
    for number, line in enumerate(markdown.splitlines(), 1):
        code = line.strip()
        if fence:
            yield number, line, True
            if code.startswith(fence) and not code.strip(fence[0]):
                fence = ""
        else:
            opened = re.match(r"(`{3,}|~{3,})", code)
            fence = opened[1] if opened else ""
            yield number, line, bool(fence)


def texts(markdown: str) -> Iterator[Text]:
    """Yield the texts of a page."""
    blanked = re.sub(
        r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), markdown, flags=re.DOTALL
    )
    begun: Text | None = None
    for number, line, is_code in fences(blanked):
        words = line.strip().lstrip(">").strip()
        is_alone = words.startswith(("|", "#"))
        if begun and (is_code or is_alone or not words or _ITEM.match(words)):
            yield begun
            begun = None
        if is_code or not words:
            continue
        if words.startswith("|"):
            if not _ROW_OF_RULES.match(words):
                cells = re.split(r"(?<!\\)\|", words.strip("|"))
                yield from (Text(number, cell.strip()) for cell in cells if cell.strip())
        elif is_alone:
            yield Text(number, words.lstrip("# "))
        elif begun:
            begun = Text(begun.line, f"{begun.words} {words}")
        else:
            begun = Text(number, _ITEM.sub("", words, count=1))
    if begun:
        yield begun


def plain(markdown: str) -> str:
    """Return a text with code as one word, links as text, and no tags."""
    return _TAG.sub(" ", _LINK.sub(r"\1", _CODE.sub("code", markdown)))


def word_count(text: str) -> int:
    """Return how many words have a letter or a digit."""
    return sum(1 for word in text.split() if _WORD.search(word))


def words(markdown: str) -> int:
    """Return how many words a page has."""
    return sum(word_count(plain(text.words)) for text in texts(markdown))


def sentences(markdown: str) -> Iterator[Sentence]:
    """Yield the sentences of a page."""
    for text in texts(markdown):
        for sentence in _END.split(plain(text.words)):
            if count := word_count(sentence):
                yield Sentence(text.line, count, " ".join(sentence.split()[:6]))


def long_sentences(markdown: str) -> list[Sentence]:
    """Return the sentences above the limit."""
    return [sentence for sentence in sentences(markdown) if sentence.words > MAX_WORDS]
