"""Opens reports in a browser as readers do, and says what is not there.

    check.py WHYWAIT RECORDING… [--large PAGE] [--pictures DIR]

Each report is opened with scripts, without them, in the dark, and with the policy that Jenkins
sends along with what a build has kept, which blocks the page's own scripts and styles. Nothing may
be asked for but the page, the console must be silent, and the verdict, the bar, the path and the
flame graph must be seen. The last line is the sum.
"""

import argparse
import http.server
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import formats
from browser import Browser
from png import Picture

JENKINS = "sandbox; default-src 'none'; img-src 'self'; style-src 'self'"
# How many of a picture's pixels, in a hundred, have the colour that they are to have.
ALIKE = 50
# CPU time to load and draw, seconds.
DRAWN = 1.0
# A page of 20,000 slow requests: its size, and how long writing it may take.
MAX_BYTES, MAX_WRITING_MS = 3_000_000, 2_000

# What is on every report of slow requests, by the element's id.
PARTS = ("bars", "histogram", "path-1", "flame-critical")


class Server:
    """Serves a folder on loopback, with a policy or without one."""

    def __init__(self, folder, policy=None):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=folder)

            def end_headers(self):
                if policy:
                    self.send_header("Content-Security-Policy", policy)
                super().end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server.server_port}/{name}"


class Checks:
    def __init__(self):
        self.passed = 0
        self.failures = []

    def hold(self, what, true, why=""):
        if true:
            self.passed += 1
        else:
            self.failures.append(f"{what}: {why}" if why else what)
            print(f"FAILED {self.failures[-1]}", flush=True)


# The largest box that is drawn in an element, and its colour.
LARGEST = """(() => {
  const element = document.getElementById(%s);
  if (!element) return null;
  const area = (rect) => rect.width * rect.height;
  const place = (rect) => rect.getBoundingClientRect();
  const boxes = [...element.querySelectorAll('rect')]
    .filter((rect) => getComputedStyle(rect).fillOpacity === '1');
  boxes.sort((a, b) => area(place(b)) - area(place(a)));
  if (!boxes.length) return null;
  // What does not fit is scrolled to.
  const part = element.closest('.scroll');
  part.scrollLeft += place(boxes[0]).left - place(part).left;
  const box = place(boxes[0]);
  const width = Math.min(box.right, place(part).right) - box.left;
  return [box.x + scrollX, box.y + scrollY, width, box.height, getComputedStyle(boxes[0]).fill];
})()"""


def check_part(checks, page, what, part):
    """The largest box of a picture is on the screen in its colour."""
    found = page.value(LARGEST % json.dumps(part))
    if not found or found[2] < 3 or found[3] < 3:
        checks.hold(f"{what}: {part} is seen", False, f"its largest box is {found}")
        return
    x, y, width, _height, fill = found
    # Above its text.
    clip = (x + width / 4, y + 1, min(width / 2, 20), 2)
    wanted = tuple(int(value) for value in re.findall(r"\d+", fill)[:3])
    alike = Picture(page.picture(clip=clip)).share(wanted)
    checks.hold(f"{what}: {part} is drawn", alike >= ALIKE, f"{alike} % are {fill}")


def check_page(checks, page, what, report, url, blocked):
    checks.hold(f"{what}: asks for nothing", page.requests() == [url], str(page.requests()))
    complaints = page.complaints()
    if blocked:
        # The browser says that it has blocked what it was told to block.
        complaints = [
            text
            for text in complaints
            if "Content Security Policy" not in text and "sandboxed" not in text
        ]
    checks.hold(f"{what}: the console is silent", not complaints, "; ".join(complaints))
    text = page.value("document.body.innerText")
    titles = [finding["title"] for finding in report["findings"][:1]]
    for title in titles:
        shown = " ".join(title.split()) in " ".join(text.split())
        checks.hold(f"{what}: the verdict", shown, title)
    slow = bool(report["requests"]["slowest"])
    for part in PARTS if slow else ():
        check_part(checks, page, what, part)


def check_scripts(checks, page, what):
    """What scripts add: the slider, and the flame graph's zoom and search."""
    shown = page.value("[...document.querySelectorAll('.tools')].every((e) => !e.hidden)")
    checks.hold(f"{what}: the tools are there", shown)
    boxes = page.value("document.querySelectorAll('#flame-critical g.b').length")
    checks.hold(f"{what}: the flame graph has boxes", boxes > 0, str(boxes))
    page.value(
        """(() => {
          const boxes = [...document.querySelectorAll('#flame-critical g.b rect')];
          const width = (rect) => +rect.getAttribute('width');
          const narrow = boxes.filter((rect) => width(rect) < 900).sort((a, b) =>
            width(b) - width(a))[0];
          (narrow || boxes[0]).dispatchEvent(new MouseEvent('click', { bubbles: true }));
          window.zoomed = narrow || boxes[0];
        })()"""
    )
    width = page.value("+window.zoomed.getAttribute('width')")
    checks.hold(f"{what}: a click zooms", width > 990, str(width))
    page.value(
        """document.querySelector('#flame-critical').dispatchEvent(
          new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))"""
    )
    out = page.value("document.querySelectorAll('#flame-critical g.out').length")
    checks.hold(f"{what}: Escape shows all", out == 0, str(out))
    if page.value("document.querySelector('.saving') !== null"):
        page.value(
            """(() => {
              const slider = document.querySelector('.slider input');
              slider.value = 50;
              slider.dispatchEvent(new Event('input'));
            })()"""
        )
        said = page.value("document.querySelector('.slider output').textContent")
        checks.hold(f"{what}: the slider says", said == "50 %", said)


def check_large(checks, browser, page):
    """The page of a large recording: small enough, quickly written and drawn."""
    size = page.stat().st_size
    checks.hold("large: small enough", size <= MAX_BYTES, f"{size} bytes")
    said = page.with_suffix(".txt").read_text()
    took = int(said.split(" in ")[1].split()[0])
    checks.hold("large: quickly written", took <= MAX_WRITING_MS, said.strip())
    opened = browser.open(page.resolve().as_uri())
    checks.hold("large: drawn soon", opened.seconds <= DRAWN, f"{opened.seconds:.2f} s")
    opened.close()
    print(f"ok large: {said.strip()}, drawn in {opened.seconds:.2f} s", flush=True)


def report(whywait, recording, folder):
    """Writes a recording's page. Gives its name, what the report says as JSON, and the folder."""
    name = recording.name.removesuffix(".tar.gz")
    if recording.is_file():
        unpacked = folder / "recordings" / name
        unpacked.mkdir(parents=True)
        with tarfile.open(recording) as archive:
            archive.extractall(unpacked, filter="data")
        inner = list(unpacked.iterdir())
        recording = inner[0] if len(inner) == 1 and inner[0].is_dir() else unpacked
    page = folder / f"{name}.html"
    subprocess.run(
        [whywait, "report", recording, "--format", "html", "-o", page], check=True, timeout=120
    )
    said = subprocess.run(
        [whywait, "report", recording, "--format", "json"],
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
    )
    return page.name, json.loads(said.stdout), recording


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("whywait")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--large", type=Path, help="the page of a large recording")
    parser.add_argument("--pictures", type=Path, help="keep pictures of the pages here")
    arguments = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="whywait-view-") as scratch, Browser() as browser:
        folder = Path(scratch)
        if arguments.large:
            check_large(checks, browser, arguments.large)
        plain, jenkins = Server(folder), Server(folder, JENKINS)
        for recording in arguments.recordings:
            name, said, recording = report(arguments.whywait, recording, folder)
            title = name.removesuffix(".html")
            formats.check(checks, title, arguments.whywait, recording, said, folder)
            for variant, server, options in (
                ("scripts", plain, {}),
                ("no scripts", plain, {"scripts": False}),
                ("dark", plain, {"dark": True}),
                ("narrow", plain, {"width": 420}),
                ("jenkins", jenkins, {}),
            ):
                what = f"{title}, {variant}"
                url = server.url(name)
                page = browser.open(url, **options)
                if arguments.pictures:
                    arguments.pictures.mkdir(parents=True, exist_ok=True)
                    page.picture(arguments.pictures / f"{what.replace(', ', '-')}.png")
                check_page(checks, page, what, said, url, server is jenkins)
                checks.hold(f"{what}: drawn soon", page.seconds <= DRAWN, f"{page.seconds:.2f} s")
                if variant == "scripts" and said["requests"]["slowest"]:
                    check_scripts(checks, page, what)
                page.close()
            print(f"ok {name}", flush=True)
    print(f"{checks.passed} passed, {len(checks.failures)} failed")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
