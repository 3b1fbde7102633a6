"""What MkDocs is told beside mkdocs.yml: pages may lie outside of docs/, and link to any file of the repository.

On the site the README is the front page, the list in docs/README.md is a page beside it, and a source to which some
page links is shown on a page of its own, so that the site is whole by itself, also without a network. Pages that play
algorithms are made for it alone.
"""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Where on the site pages are that are not there where they lie in docs/.
ELSEWHERE = {
    ROOT / "README.md": "README.md",
    DOCS / "README.md": "pages.md",
    ROOT / "CHANGELOG.md": "changelog.md",
}
LANGUAGES = {".py": "python", ".h": "cpp", ".cpp": "cpp", ".tcl": "tcl", ".toml": "toml"}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from elsewhere, one for each source that is linked to, and those that play."""
    files.remove(files.src_uris["README.md"])
    for path, uri in ELSEWHERE.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    pages = [Path(str(file.abs_src_path)) for file in files.documentation_pages()]
    sources = {target for page in pages for target in targets(page) if DOCS not in target.parents}
    for source in sorted(sources - ELSEWHERE.keys()):
        file = File.generated(config, place(source), content=shown(source))
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    for name, text in runpy.run_path(str(DOCS / "generate_algorithms.py"))["played"]().items():
        files.append(File.generated(config, f"pictures/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets links lead to where things are on the site."""
    if not page.file.abs_src_path:
        return markdown  # a source
    here = Path(page.file.abs_src_path)

    def moved(link: re.Match[str]) -> str:
        target = resolved(here, link[1])
        return os.path.relpath(place(target), Path(page.file.src_uri).parent) if target.is_file() else link[1]

    return LINK.sub(moved, markdown)


def targets(page: Path) -> Iterator[Path]:
    """The files to which a page links."""
    return filter(Path.is_file, (resolved(page, link) for link in LINK.findall(page.read_text())))


def resolved(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def place(path: Path) -> str:
    """Where a file of the repository is on the site, as MkDocs names it."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def shown(source: Path) -> str:
    """A source as a page, which is not searched."""
    name = source.relative_to(ROOT).as_posix()
    language = LANGUAGES.get(source.suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n# {name}\n\n`````{language}\n{source.read_text()}\n`````\n"
