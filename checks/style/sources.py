"""Read the sources of a checkout: trees, docstrings, comments and code."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import attrs

LIBRARY = ("rink", "pyspark_rink")
ROOMS = (*LIBRARY, "tests", "integration", "checks", "examples", "bench", "docs", "deploy", ".ci")

PRAGMA = re.compile(r"#\s*(noqa|type:|fmt:|pragma:|pyright:|ruff:|!)")
RULER = re.compile(r"#\s*[─=-]{2}")
"""The line that begins a section: it says nothing about the function below."""

TYPE_NAME = re.compile(r"_?[A-Z][A-Za-z0-9]*[a-z]")
"""Match the beginning of `Role` and `_Role`, not of `ROLE` or `role`."""

TYPE_VARIABLES = ("TypeVar", "TypeVarTuple", "ParamSpec")

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)


@attrs.frozen
class Docstring:
    """Hold the first line of a docstring.

    Attributes:
        line: its number in the file.
        text: without quotes and indentation.
    """

    line: int
    text: str


@attrs.define(slots=False)
class Source:
    """Hold one Python file.

    Attributes:
        path: relative to the checkout.
        text: the whole file.
    """

    path: Path
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines of the file, as Python counts them."""
        return [line.rstrip("\n") for line in io.StringIO(self.text)]

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        """Return all functions, nested ones too."""
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @cached_property
    def docstrings(self) -> list[Docstring]:
        """Return the docstring of each module, class and function."""
        return list(self._docstrings())

    def _docstrings(self) -> Iterator[Docstring]:
        for node in self.nodes:
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node, clean=False)):
                text_begins = len(text) - len(text.lstrip())
                line = node.body[0].lineno + text[:text_begins].count("\n")
                yield Docstring(line, _first_line(text))

    @cached_property
    def attribute_docstrings(self) -> list[Docstring]:
        """Return the string below each assignment in a module or class."""
        return [
            Docstring(below.lineno, _first_line(below.value.value))
            for node in self.nodes
            if isinstance(node, DOCUMENTED)
            for assignment, below in pairwise(node.body)
            if isinstance(assignment, ast.Assign | ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ]

    @cached_property
    def types(self) -> list[tuple[str, int]]:
        """Return name and line of each class and type alias of the module.

        Private ones and those below an `if` count too. A type alias is a capitalised name that the
        module assigns; a type variable is none.
        """
        statements = [
            inner
            for outer in self.tree.body
            for inner in ([*outer.body, *outer.orelse] if isinstance(outer, ast.If) else [outer])
        ]
        return [(name, node.lineno) for node in statements for name in _types_of(node)]

    @cached_property
    def variables(self) -> list[tuple[str, int]]:
        """Return name and line of each parameter and of each variable that is set.

        Attributes in the body of a class are no variables.
        """
        attributes = {
            target
            for node in self.nodes
            if isinstance(node, ast.ClassDef)
            for statement in node.body
            for target in _targets(statement)
        }
        return [
            (name, node.lineno)
            for node in self.nodes
            if node not in attributes and (name := _set_by(node))
        ]

    @cached_property
    def _comment_tokens(self) -> list[tokenize.TokenInfo]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [token for token in tokens if token.type == tokenize.COMMENT]

    def _is_alone(self, comment: tokenize.TokenInfo) -> bool:
        row, column = comment.start
        return not self.lines[row - 1][:column].strip()

    @cached_property
    def comments(self) -> dict[int, bool]:
        """Map each line with a comment to whether the comment has the line alone.

        Pragmas (`noqa`, `type:`, `fmt:`), the shebang and rulers between sections do not count.
        """
        return {
            token.start[0]: self._is_alone(token)
            for token in self._comment_tokens
            if not is_silent(token.string)
        }

    @cached_property
    def code_lines(self) -> int:
        """Count the lines without those of comments and docstrings.

        Blank lines do not count. A string that stands alone as a statement counts as a docstring
        wherever it stands.
        """
        apart = {token.start[0] for token in self._comment_tokens if self._is_alone(token)}
        apart |= {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        return sum(
            1 for number, line in enumerate(self.lines, 1) if line.strip() and number not in apart
        )


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target):
            return [target]
    return []


def _types_of(statement: ast.stmt) -> list[str]:
    """Return the classes and type aliases that a statement defines."""
    match statement:
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if not _is_type_variable(value):
            names = [target.id for target in _targets(statement) if isinstance(target, ast.Name)]
            return [name for name in names if TYPE_NAME.match(name)]
    return []


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith(TYPE_VARIABLES)


def _set_by(node: ast.AST) -> str | None:
    """Return the parameter or variable that a node sets, else None."""
    match node:
        case (
            ast.arg(arg=str(name))
            | ast.Name(id=str(name), ctx=ast.Store())
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return name
    return None


def _first_line(docstring: str) -> str:
    return docstring.strip().partition("\n")[0].rstrip()


def is_silent(comment: str) -> bool:
    """Return whether a comment is for tools or for the eye only."""
    return bool(PRAGMA.match(comment) or RULER.match(comment))


def is_generated(path: Path) -> bool:
    """Return whether a program wrote the file."""
    return "_pb2" in path.name


def files(root: Path, room: str) -> list[Path]:
    """Return the files of a room that people write."""
    return [
        path
        for path in sorted((root / room).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and not is_generated(path)
    ]


def shebang(path: Path) -> str:
    """Return the first line of a script without a suffix, else ""."""
    if path.suffix or not path.is_file():
        return ""
    with path.open("rb") as file:
        first = file.readline(200)
    return first.decode(errors="replace") if first.startswith(b"#!") else ""


def is_python(path: Path) -> bool:
    """Return whether a file is Python, with or without a suffix."""
    return path.suffix == ".py" or "python" in shebang(path)


def sources(root: Path, room: str) -> list[Source]:
    """Return the Python files of a room."""
    return [
        Source(path.relative_to(root), path.read_text(encoding="utf-8"))
        for path in files(root, room)
        if is_python(path)
    ]
