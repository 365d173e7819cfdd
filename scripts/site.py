#!/usr/bin/env python3
"""The two ends of `make docs`: collecting the book's source, and following every link of the site.

    site.py collect DIRECTORY    the pages of docs/SUMMARY.md, at their places, with what they link to, and book.toml
    site.py check DIRECTORY      fails with the list of links that lead to no file or to no heading
"""

from __future__ import annotations

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPOSITORY = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Only links and .md names become pages: without the preprocessor `index`, README.md stays README.html, as its links say.
BOOK = """[book]
title = "Terrace"
src = "."
[build]
use-default-preprocessors = false
[output.html]
default-theme = "light"
additional-css = ["wide.css"]
[output.html.fold]
enable = true
level = 0
"""
# Tables and output of programs are wider than mdBook's column.
WIDE = ":root { --content-max-width: 1050px; }\n"


def collect(to: Path) -> None:
    summary = REPOSITORY / "docs/SUMMARY.md"
    pages = [(summary.parent / target).resolve() for target in LINK.findall(summary.read_text())]
    for page in pages:
        text = page.read_text()
        copied = to / page.relative_to(REPOSITORY)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text)
        for target in LINK.findall(text):
            beside(page, target.partition("#")[0], to)
    # The summary is written for a reader of docs/; the book begins one level above.
    outer = LINK.sub(lambda link: f"]({(summary.parent / link[1]).resolve().relative_to(REPOSITORY)})", summary.read_text())
    (to / "SUMMARY.md").write_text(outer)
    (to / "book.toml").write_text(BOOK)
    (to / "wide.css").write_text(WIDE)


def beside(page: Path, target: str, to: Path) -> None:
    """Copies what a page links to, unless it is a page itself."""
    if not target or ":" in target or target.endswith(".md"):
        return
    source = (page.parent / target).resolve()
    copied = to / source.relative_to(REPOSITORY)
    if source.is_dir():
        shutil.copytree(source, copied, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    else:
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copied)


class Page(HTMLParser):
    """The links and the names that a page has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if key in ("href", "src") and value and tag in ("a", "img"):
                self.links.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


def check(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name not in ("print.html", "toc.html", "404.html")}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("/"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                wrong.append(f"{path.relative_to(site)}: {link} (no such heading)")
    if len(pages) < 20 or wrong:
        sys.exit("\n".join([f"{len(pages)} pages; links that lead nowhere:", *sorted(set(wrong))]))
    print(f"{len(pages)} pages, every link leads somewhere")


if __name__ == "__main__":
    {"collect": collect, "check": check}[sys.argv[1]](Path(sys.argv[2]).resolve())
