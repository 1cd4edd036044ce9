"""Check that texts cite only what exists in this repository."""

import re

import pytest
from texts import ROOT, every_text, without_code, words_for_people

PAGE = re.compile(r"(?<![\w/.<>{}*-])[\w./-]*\w\.md\b")
PATH = re.compile(
    r"(?<![\w/.<>{}-])(?:bench|checks|deploy|docs|examples|integration|pyspark_rink|rink|tests)"
    r"/[\w./*-]*\w\.(?:c|go|java|lua|mjs|php|proto|pyi?|sh|sql|toml|yaml)\b"
)
OUTSIDE = re.compile(
    r"\b(?:DESIGN|MODELS|ETCD-CLIENT)\b"
    r"|\bPEERS(?:\.md| section)"
    r"|(?<![\w/.])shared/"
    r"|(?<!RFC )(?<!RFC \d{4} )(?<!RFC \d{4}, )\bsection \d"  # no page here numbers its sections
)
TEXTS = [
    path for path in every_text() if not path.name.startswith(("test_citations", "test_style"))
]
PAGES = {path.name for path in TEXTS if path.suffix == ".md"}


def text_of(path):
    return path.read_text(encoding="utf-8")


def is_page(word, path):
    """Return whether a word names a page: by its path, or its name alone."""
    if "/" not in word:
        return word in PAGES
    # A script may write a page of another folder, so a link's `..` is not counted.
    from_root = ROOT / re.sub(r"^(\.\.?/)+", "", word)
    return from_root.is_file() or (path.parent / word).is_file()


def outside_in(text):
    return OUTSIDE.findall(text)


def test_pages_that_texts_cite_exist():
    missing = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in TEXTS
        for word in PAGE.findall(text_of(path))
        if not is_page(word, path)
    }
    assert sorted(missing) == []


def test_paths_that_texts_cite_exist():
    """Skip strings of code: they have paths of trees that tests make up."""
    missing = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in TEXTS
        if PATH.search(text_of(path))
        for word in PATH.findall(words_for_people(path))
        if not any(ROOT.glob(word))
    }
    assert sorted(missing) == []


def test_texts_cite_no_document_from_outside():
    citations = {
        f"{path.relative_to(ROOT)}: {cited}"
        for path in TEXTS
        if OUTSIDE.search(text_of(path))
        for cited in outside_in(without_code(words_for_people(path)))
    }
    assert sorted(citations) == []


@pytest.mark.parametrize(
    ("text", "is_cited"),
    [
        ("See ETCD-CLIENT section 7.", True),
        ("as (section 5) says", True),
        ("by shared/notes", True),
        ("PEERS = {}", False),
        ("RFC 9110, section 5", False),
        ("share/roles", False),
    ],
)
def test_document_from_outside_is_told_from_other_words(text, is_cited):
    assert bool(outside_in(text)) is is_cited
