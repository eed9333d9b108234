"""Reading HTML pages, ordinary and hostile."""

from __future__ import annotations

import random
import time

import pytest
from yarl import URL

from activities.html_page import decoded, read_page
from workflows.crawl_site import MAX_LINKS, MAX_TITLE

SITE = URL("http://a.example/")

DEADLINE = 20.0
"""Seconds for a few pages of a megabyte: they take about one; what is quadratic takes hours."""

SIZE = 1_000_000


def links(text: str) -> list[str]:
    return [link.removeprefix("http://a.example") for link in read_page(text, SITE).links]


@pytest.mark.parametrize(
    "text",
    [
        '<a href="/x">',
        "<a href='/x'>",
        "<a href=/x>",
        "<A HREF=/x>",
        "<a\n class=c\n href\n =\n '/x'\n>",
        "<a title='a > b' href=/x>",
        "<a disabled href=/x>",
        "<a =odd href=/x>",
        "<a href=/x href=/y>",
        "<a href=/x / >",
        "<a/href=/x/>".replace("/x/", "/x"),
        "<area href=' /x '>",
        "<p><a href=/x>no end <b>at all",
        "< a href=/y><a href=/x>",
        "<a href='/x'class=c>",
        "<abbr href=/y></a href=/y><a href=/x>",
        "<a href=/x>1</a><a href=/x>2</a>",
        "<a name=y></a><a href></a><a href=''></a><a href=/x>",
    ],
)
def test_a_link_is_found_however_it_is_written(text: str) -> None:
    assert links(text) == ["/x"]


@pytest.mark.parametrize(
    "text",
    [
        "<!-- <a href=/y> --><a href=/x>",
        "<!--><a href=/x>",
        "<!-- <a href=/y> --!><a href=/x>",
        "<!DOCTYPE html><a href=/x>",
        "<?xml <a href=/y ?><a href=/x>",
        "<script>'<a href=/y>'</script><a href=/x>",
        "<SCRIPT>'<a href=/y>'</Script ><a href=/x>",
        "<style>/* <a href=/y> */</style><a href=/x>",
        "<textarea><a href=/y></textarea><a href=/x>",
        "<script src=s /><a href=/x>",
        "<a href=/x><!-- <a href=/y>",
        "<a href=/x><script> <a href=/y>",
        "<a href=/x><a href='/y",
        "<a href=/x><a href=/y",
        "<title><a href=/y></title><a href=/x>",
    ],
)
def test_what_only_looks_like_a_link_is_none(text: str) -> None:
    assert links(text) == ["/x"]


def test_entities_in_addresses_and_titles_are_resolved() -> None:
    page = read_page("<title>a &lt;&amp;&#66; &nope;</title><a href='/?a=1&amp;b=2'>", SITE)
    assert (page.title, page.links) == ("a <&B &nope;", ["http://a.example/?a=1&b=2"])


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("<title> The\n start </title>", "The start"),
        ("<TITLE lang=en>x</TITLE>", "x"),
        ("<title>a <b>bold</b> <!-- step</title>", "a <b>bold</b> <!-- step"),
        ("<title>first</title><svg><title>second</title></svg>", "first"),
        ("<title></title>", None),
        ("<title>no end", "no end"),
        ("none", None),
    ],
)
def test_a_title_is_the_first_ones_text(text: str, title: str | None) -> None:
    assert read_page(text, SITE).title == title


def test_a_page_is_read_within_bounds() -> None:
    many = "".join(f"<a href='/{n}'>" for n in range(MAX_LINKS * 2)) + f"<a href='/{'x' * 1000}'>"
    read = read_page(f"<title>{'t' * 1000}</title><title>again</title>{many}", SITE)
    assert read.title == "t" * MAX_TITLE
    assert len(read.links) == MAX_LINKS


def test_a_base_element_counts() -> None:
    assert links("<base href='/sub/'><base href='/no/'><a href='x'><a href='http://['>") == ["/sub/x"]


@pytest.mark.parametrize(
    "unit",
    [
        "<a =",
        "<a ",
        "<",
        "</",
        "<!",
        "<!--",
        "<![",
        "<![1]>",
        "<?",
        "&",
        "&#",
        "<a b='",
        "<a b=\"'",
        "<a b = ",
        "<a href=",
        "<a b c",
        "<title>",
        "<title",
        "</title",
        "<script>",
        "<script/>",
        "</script",
        "<style></style>",
        " ",
        "/",
        "<a    /",
        "<a href='&#",
        "<a href=x>",
    ],
)
def test_a_hostile_page_takes_no_longer_than_its_size_asks_for(unit: str) -> None:
    page = unit * (SIZE // len(unit))
    start = time.perf_counter()
    for text in (page, f"<title>{page}", f"<a {page}", f"<a href='{page}", f"<!--{page}", f"<script>{page}"):
        read_page(text, SITE)
    assert time.perf_counter() - start < DEADLINE


def test_a_page_of_nothing_but_foreign_links_is_given_up() -> None:
    base = f"<base href='/{'a/../' * 700}'>"
    page = base + "".join(f"<a href=//{n}.example>" for n in range(SIZE // 25))
    start = time.perf_counter()
    assert read_page(page, SITE).links == []
    assert time.perf_counter() - start < DEADLINE


@pytest.mark.parametrize("digits", [10, 5000])
def test_a_number_that_is_no_character_is_no_error(digits: int) -> None:
    number = f"&#{'1' * digits};"
    assert links(f"<title>{number}</title><a href='{number}'><a href=/x>")[-1] == "/x"


def test_nothing_made_of_markup_is_an_error() -> None:
    chance = random.Random(1)  # noqa: S311 - a repeatable choice
    pieces = [
        "<", ">", "/", "!", "--", "[", "]", "a", "base", "title", "script", " href", "=", "'", '"', " ", "//",
        "\n", "&#", "9", ";", "\0", "?", "#", ":", "@", "%", "\u2100", "\ud800", "http:", "xn--", ".",
    ]  # fmt: skip
    for _ in range(20_000):
        read_page("<a href=" + "".join(chance.choices(pieces, k=chance.randrange(20))) + "><a href=/x>", SITE)


@pytest.mark.parametrize("codec", ["punycode", "idna", "unicode_escape"])
def test_a_codec_that_is_no_charset_is_not_used(codec: str) -> None:
    assert decoded(b"\\x-y" * 50_000, f" charset={codec}") == "\\x-y" * 50_000
