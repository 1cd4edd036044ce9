"""Find the texts of the repository, and what people read in them."""

import io
import re
import tokenize
from pathlib import Path

from docs_support import prose

ROOT = Path(__file__).parents[1]

FOLDERS = (
    ".ci",
    "bench",
    "checks",
    "deploy",
    "docs",
    "examples",
    "integration",
    "pyspark_rink",
    "rink",
    "tests",
)
KINDS = {".c", ".go", ".java", ".lua", ".md", ".mjs", ".php", ".proto", ".py", ".sh", ".sql"}
KINDS |= {".toml", ".yaml"}
NAMES = {"Dockerfile", "Makefile"}

_DIRECTIVE = re.compile(r"#\s*(?:noqa|ruff|type|pragma)\b.*")
_CODE_SPAN = re.compile(r"`[^`]*`")
_BEFORE_STATEMENT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_UNSEEN = {tokenize.COMMENT, tokenize.NL}


def every_text():
    """Return the path of each text that belongs to this repository."""
    below = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    return [
        path
        for path in sorted([*ROOT.glob("*"), *below])
        if path.suffix in KINDS or path.name in NAMES or path.parent == ROOT / ".ci"
        if path.is_file() and "__pycache__" not in path.parts
    ]


def comments(source):
    """Return the comments and docstrings of Python, without directives."""
    texts, begins_statement = [], True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts.append(_DIRECTIVE.sub("", token.string))
        elif token.type == tokenize.STRING and begins_statement:
            texts.append(token.string)
        if token.type not in _UNSEEN:
            begins_statement = token.type in _BEFORE_STATEMENT
    return "\n".join(texts)


def words_for_people(path):
    """Return a page without its blocks of code, or a source's comments."""
    if path.suffix == ".md":
        return prose(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return comments(text)
    if path.suffix == ".lua":
        return "\n".join(re.findall(r"--(.*)", text))
    return text


def without_code(words):
    """Return words without what stands in backticks."""
    return _CODE_SPAN.sub("", words)
