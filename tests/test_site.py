"""The site of docs/ in a browser: every page is whole, asks nobody else for anything, and leads where it says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from browser import Browser, Page, needs_a_browser

ROOT = Path(__file__).resolve().parent.parent
WIDE, NARROW = 1280, 400
pytestmark = needs_a_browser

# What a page shows when all its images have come: its heading, images that are none, links, and what may be linked to.
SEEN = """
Promise.allSettled([...document.images].map((image) => {
  image.loading = "eager";
  return image.decode();
})).then(() => ({
  heading: document.querySelector("h1")?.textContent.trim() ?? "",
  broken: [...document.images].filter((image) => !image.complete || !image.naturalWidth).map((image) => image.src),
  links: [...document.querySelectorAll(".md-content a[href], .md-nav a[href], .md-footer a[href]")].map((a) => a.href),
  ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
}))
"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Silent(SimpleHTTPRequestHandler):
    """A server that tells of nothing, and has no icon for pages that name none."""

    def do_GET(self) -> None:
        """Files, but for that."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *values: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """Where the site is served, just made, and its files."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", files
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def resized(page: Page, width: int) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)


def test_every_page_is_whole_and_its_links_lead_somewhere(site: tuple[str, list[str]], browser: Browser) -> None:
    home, files = site
    pages = [name for name in files if name.endswith(".html") and not name.startswith(("source/", "404", "search"))]
    assert len(pages) > 50
    page = browser.page(home)
    ids, links, trouble = dict[str, set[str]](), dict[str, set[str]](), list[str]()
    for name in pages:
        page.asked.clear()
        resized(page, WIDE)
        page.go(home + name)
        seen = page.ask(SEEN)
        ids[name], links[name] = set(seen["ids"]), set(seen["links"])
        trouble += [f"{name}: {error}" for error in page.errors]
        trouble += [f"{name} asks for {url}" for url in page.asked if not url.startswith((home, "data:"))]
        trouble += [f"{name}: no image is {source}" for source in seen["broken"]]
        trouble += [] if seen["heading"] else [f"{name} has no heading"]
        for width in (WIDE, NARROW):
            resized(page, width)
            trouble += [f"{name} is {more} too wide for {width}" for more in [page.ask(SIDEWAYS)] if more > 0]
        page.errors.clear()
    for name, found in links.items():
        for target, anchor in map(urldefrag, found):
            there = target.removeprefix(home) or "index.html"
            if there in ids:
                trouble += [f"{name}: {there} has no {anchor}"] if anchor and unquote(anchor) not in ids[there] else []
            elif target.startswith(home) and there not in files:
                trouble.append(f"{name}: there is no {there}")
    page.close()
    assert not trouble, "\n".join(trouble)


def test_a_page_that_is_linked_to_plays(site: tuple[str, list[str]], browser: Browser) -> None:
    home, _ = site
    page = browser.page(home + "algorithms.html")
    page.ask("document.querySelector('[href=\"pictures/all_reduce.html\"]').scrollIntoView({ block: 'center' })")
    page.click("[href='pictures/all_reduce.html']")
    page.until("location.href.endsWith('/pictures/all_reduce.html') && document.readyState === 'complete'")
    page.press("End")
    ended = "[...document.querySelectorAll('.now .right')].length"
    assert page.until(ended) == page.ask("document.querySelectorAll('.panel').length") > 10
    assert page.ask("document.querySelectorAll('.missing').length") == 0
    assert page.errors == []
    page.close()


def test_the_search_finds(site: tuple[str, list[str]], browser: Browser) -> None:
    home, _ = site
    page = browser.page(home + "tour.html")
    page.click(".md-search__input")
    page.write("oversubscription")
    found = page.until("[...document.querySelectorAll('.md-search-result__link')].map((a) => a.href)")
    assert any("/simulate.html" in link for link in found)
    assert page.errors == []
    page.close()
