"""Opens reports in a browser as readers do, and says what is not there.

    check.py WHYWAIT RECORDING… [--made FOLDER] [--whole] [--pictures DIR] …

Each report is opened with scripts, without them, and with the policy that Jenkins sends along with
what a build has kept, which blocks the page's own scripts and styles; the first ones, or with
--whole all of them, in the dark and on a narrow screen, too. Nothing may be asked for but the page,
the console must be silent, and the verdict, the bar, the path and the flame graph must be seen.
What other programs read of the recording is held against those; see formats.py. The last line is
the sum.
"""

import argparse
import http.server
import json
import queue
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import formats
from browser import Browser
from collector import Collector
from png import Picture
from trace_processor import TraceProcessor

JENKINS = "sandbox; default-src 'none'; img-src 'self'; style-src 'self'"
# How many of a picture's pixels, in a hundred, have the colour that they are to have.
ALIKE = 50
# CPU time to load and draw, seconds.
DRAWN = 1.0
# A page of 20,000 slow requests: its size, and how long writing it may take.
MAX_BYTES, MAX_WRITING_MS = 3_000_000, 2_000

# What is on every report of slow requests, by the element's id.
PARTS = ("bars", "histogram", "path-1", "flame-critical")

# How a page is opened: which policy is sent along, and how the browser is set.
ALWAYS = (
    ("scripts", None, {}),
    ("no scripts", None, {"scripts": False}),
    ("jenkins", JENKINS, {}),
)
LOOKS = (
    ("dark", None, {"dark": True}),
    ("narrow", None, {"width": 400}),
    ("narrow and dark", None, {"width": 400, "dark": True}),
    ("half", None, {"width": 800}),
)
# Says what cannot be read. Not where styles are blocked: there is no layout then.
LAYOUT = (Path(__file__).parent / "layout.js").read_text()
# So many reports are opened in all of these ways.
WITH_LOOKS = 6
# Reports that are made while browsers open others, and browsers.
AHEAD = 2
BROWSERS = 2


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
        self.one = threading.Lock()

    def hold(self, what, true, why=""):
        with self.one:
            if true:
                self.passed += 1
            else:
                self.failures.append(f"{what}: {why}" if why else what)
                print(f"FAILED {self.failures[-1]}", flush=True)


# The largest box that is drawn in an element, and its colour.
LARGEST = """(() => {
  // The narrow picture stands in for the wide one where that is hidden.
  const seen = (element) => element && element.getClientRects().length > 0;
  const ids = [%(id)s, %(id)s + '-narrow'];
  const element = ids.map((id) => document.getElementById(id)).find(seen);
  if (!element) return null;
  const area = (rect) => rect.width * rect.height;
  const place = (rect) => rect.getBoundingClientRect();
  const boxes = [...element.querySelectorAll('rect')]
    .filter((rect) => getComputedStyle(rect).fillOpacity === '1');
  // A line that marks a percentile may stand before a narrow one.
  const marks = [...element.querySelectorAll('line.mark')].map(place);
  const crosses = (box) => (mark) => mark.left < box.right + 1 && mark.right > box.left - 1;
  const hidden = (rect) => marks.some(crosses(place(rect)));
  boxes.sort((a, b) => hidden(a) - hidden(b) || area(place(b)) - area(place(a)));
  if (!boxes.length) return null;
  const box = place(boxes[0]);
  return [box.x + scrollX, box.y + scrollY, box.width, box.height,
    getComputedStyle(boxes[0]).fill];
})()"""


def check_part(checks, page, what, part):
    """The largest box of a picture is on the screen in its colour."""
    found = page.value(LARGEST % {"id": json.dumps(part)})
    if not found or found[2] < 3 or found[3] < 3:
        checks.hold(f"{what}: {part} is seen", False, f"its largest box is {found}")
        return
    x, y, width, _height, fill = found
    # Above its text.
    clip = (x + width / 4, y + 1, min(width / 2, 20), 2)
    wanted = tuple(int(value) for value in re.findall(r"\d+", fill)[:3])
    alike = Picture(page.picture(clip=clip)).share(wanted)
    checks.hold(f"{what}: {part} is drawn", alike >= ALIKE, f"{alike} % are {fill}")


def check_silent(checks, page, what, url, blocked):
    """It asks for nothing, and the browser has nothing to say."""
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


def check_layout(checks, page, what, blocked):
    """Labels neither cover each other nor are cut, nothing is wider than the window, and all text
    stands out from its ground."""
    if not blocked:
        complaints = page.value(LAYOUT)
        checks.hold(f"{what}: can be read", not complaints, "; ".join(complaints))


def words(text):
    return " ".join(text.split())


def check_page(checks, page, what, report, url, blocked):
    check_silent(checks, page, what, url, blocked)
    check_layout(checks, page, what, blocked)
    # What is seen without opening anything, and all that is there.
    seen = words(page.value("document.body.innerText"))
    there = words(page.value("document.body.textContent"))
    for finding in report["findings"][:1]:
        checks.hold(f"{what}: the verdict", words(finding["title"]) in seen, finding["title"])
    missing = [
        text
        for finding in report["findings"]
        for text in (finding["title"], *(one["text"] for one in finding["evidence"]))
        if words(text) not in there
    ]
    checks.hold(f"{what}: findings and evidence", not missing, "; ".join(missing[:3]))
    drawn = [request for request in report["requests"]["slowest"] if request["path"]]
    for part in PARTS if drawn else ():
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
    check_timeline(checks, page, what)
    for part in ("#slowest .request", "#timeline", "#flames .graph"):
        legend = page.value(f"document.querySelector('{part} .legend').innerText")
        checks.hold(f"{what}: colours of {part} have names", legend.strip(), legend)
    said = page.value("document.querySelector('details.text pre').textContent")
    checks.hold(f"{what}: the text is there to copy", "coverage: " in said, said[:200])
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
        said = page.value(
            """(() => {
              const saving = document.querySelector('.saving');
              const slider = saving.querySelector('.slider input');
              const before = saving.querySelector('svg').textContent;
              slider.value = 100;
              slider.dispatchEvent(new Event('input'));
              return [before, saving.querySelector('svg').textContent];
            })()"""
        )
        checks.hold(f"{what}: the bar says how much again", said[0] in said[1], str(said))


def check_timeline(checks, page, what):
    """Every slow request can be chosen, and the picture zooms and moves."""
    chosen = "document.querySelector('#timeline .chosen').textContent"
    press = """(() => {
      const canvas = document.querySelector('#timeline canvas');
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key: %s }));
    })()"""
    all_of_them = page.value("document.getElementById('timeline').dataset.requests.split(';')")
    slowest = max(int(one.split(" ")[1]) for one in all_of_them)
    of_slowest = [one.split(" ")[2] for one in all_of_them if int(one.split(" ")[1]) == slowest]
    said = page.value(chosen)
    named = said.rsplit(" ", 1)[-1]
    checks.hold(f"{what}: the slowest is chosen", named in of_slowest, said)
    for _ in all_of_them[:50]:
        page.value(press % "'ArrowLeft'")
    page.value(press % "'+'")
    for _ in all_of_them[:50]:
        page.value(press % "'ArrowLeft'")
    if len(all_of_them) <= 50:
        said = page.value(chosen)
        first = all_of_them[0].split(" ")[2]
        checks.hold(f"{what}: the first one can be chosen", said.endswith(f" {first}"), said)


FIGURE = re.compile(r"[\d,.]+ (?:%|ns|us|ms|s)\b|[\d,.]+ %")


def check_large(checks, browser, folder):
    """The page of a large recording: small enough, quickly written and drawn, and it says what the
    text says."""
    page = folder / "large.html"
    size = page.stat().st_size
    checks.hold("large: small enough", size <= MAX_BYTES, f"{size} bytes")
    said, *text = (folder / "large.txt").read_text().splitlines()
    took = int(said.split(" in ")[1].split()[0])
    checks.hold("large: quickly written", took <= MAX_WRITING_MS, said)
    opened = browser.open(page.resolve().as_uri())
    checks.hold("large: drawn soon", opened.seconds <= DRAWN, f"{opened.seconds:.2f} s")
    shown = words(opened.value("document.body.textContent"))
    verdict = text[0].split(": ", 1)[-1]
    checks.hold("large: the text's verdict", words(verdict) in shown, verdict)
    # The text leaves steps and stacks out that the page has, and folds others.
    until = next(at for at, line in enumerate(text) if line.startswith("slowest: "))
    figures = [figure for line in text[:until] for figure in FIGURE.findall(line)]
    missing = [figure for figure in figures if figure not in shown]
    checks.hold("large: the text's figures", figures and not missing, ", ".join(missing))
    opened.close()
    print(
        f"ok large: {said}, drawn in {opened.seconds:.2f} s, {len(figures)} figures of the text",
        flush=True,
    )


def check_hostile(checks, browser, folder):
    """Names that would like to be markup are shown, and nothing of them runs."""
    seen = (folder / "hostile.txt").read_text()
    for name in ("hostile.html", "hostile-diff.html"):
        for variant, scripts in (("scripts", True), ("no scripts", False)):
            what = f"{name}, {variant}"
            url = (folder / name).resolve().as_uri()
            page = browser.open(url, scripts=scripts)
            check_silent(checks, page, what, url, False)
            checks.hold(f"{what}: nothing ran", page.value("window.ran === undefined"))
            asked = [event.get("method") for event in browser.events + page.events]
            checks.hold(f"{what}: asks nobody", "Page.javascriptDialogOpening" not in asked)
            text = page.value("document.body.innerText")
            checks.hold(f"{what}: names are seen", seen in text, text[:200])
            kinds = page.value(
                "[...new Set([...document.querySelectorAll('*')].map((e) => e.localName))]"
            )
            strange = {"img", "iframe", "object", "embed", "link", "base", "form"} & set(kinds)
            checks.hold(f"{what}: no elements of theirs", not strange, str(strange))
            page.close()
    print("ok hostile names", flush=True)


def check_diff(checks, browser, whywait, sides, folder, serve):
    """A comparison's page says what its text says, and can be read as reports can."""
    base, head = sides
    name = "diff.html"
    compare = [whywait, "diff", base, head]
    subprocess.run([*compare, "--format", "html", "-o", folder / name], check=True, timeout=120)
    said = subprocess.run(compare, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    said = said.stdout.splitlines()
    for variant, policy, options in ALWAYS + LOOKS:
        what = f"diff, {variant}"
        url = serve[policy].url(name)
        page = browser.open(url, **options)
        check_silent(checks, page, what, url, policy is not None)
        check_layout(checks, page, what, policy is not None)
        shown = words(page.value("document.body.textContent"))
        checks.hold(f"{what}: the verdict", words(said[0]) in shown, said[0])
        figures = [figure for line in said for figure in FIGURE.findall(line)]
        missing = [figure for figure in figures if figure not in shown]
        checks.hold(f"{what}: the text's figures", figures and not missing, ", ".join(missing))
        check_part(checks, page, what, "parts")
        dots = page.value("document.querySelectorAll('#dots circle').length")
        checks.hold(f"{what}: a dot for each run", dots >= 2, str(dots))
        page.close()
    print("ok diff", flush=True)


def name_of(recording):
    """A name for what is shown: the folder `recording` of a lab's run has its parent's."""
    name = recording.name.removesuffix(".tar.gz")
    return recording.parent.name if name == "recording" else name


def unpacked(recording, folder):
    """The folder of a recording."""
    if not recording.is_file():
        return recording
    target = folder / "recordings" / name_of(recording)
    target.mkdir(parents=True)
    with tarfile.open(recording) as archive:
        archive.extractall(target, filter="data")
    inner = list(target.iterdir())
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else target


def report(checks, tools, recording, folder):
    """Writes a recording's page and holds its other formats. Gives the page's name, and what the
    report says as JSON."""
    name = name_of(recording)
    recording = unpacked(recording, folder)
    command = [tools.whywait, "report", recording]
    page = folder / f"{name}.html"
    subprocess.run([*command, "--format", "html", "-o", page], check=True, timeout=120)
    said = subprocess.run(
        [*command, "--format", "json"], check=True, timeout=120, stdout=subprocess.PIPE
    )
    said = json.loads(said.stdout)
    formats.check(checks, name, tools, recording, said, folder)
    return name, said


def check_report(checks, browser, name, said, ways, serve, pictures):
    """Opens a report in all these ways."""
    for variant, policy, options in ways:
        what = f"{name}, {variant}"
        url = serve[policy].url(f"{name}.html")
        page = browser.open(url, **options)
        if pictures:
            page.picture(pictures / f"{name}-{variant.replace(' ', '-')}.png")
        check_page(checks, page, what, said, url, policy is not None)
        checks.hold(f"{what}: drawn soon", page.seconds <= DRAWN, f"{page.seconds:.2f} s")
        if variant == "scripts" and said["requests"]["slowest"]:
            check_scripts(checks, page, what)
        page.close()
    print(f"ok {name}", flush=True)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("whywait")
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--from", dest="folders", type=Path, help="a folder of labs' recordings")
    parser.add_argument("--made", type=Path, help="pages that no recording makes")
    parser.add_argument("--diff", nargs=2, type=Path, help="compare these recordings")
    parser.add_argument("--whole", action="store_true", help="open all pages in all ways")
    parser.add_argument("--pprof", required=True, help="Go's pprof")
    parser.add_argument("--trace-processor", required=True, help="Perfetto's, a folder")
    parser.add_argument("--collector", help="OpenTelemetry's")
    parser.add_argument("--pictures", type=Path, help="keep pictures of the pages here")
    return parser.parse_intermixed_args()


def main():
    arguments = options()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    recordings = list(arguments.recordings)
    if arguments.folders:
        recordings += sorted(meta.parent for meta in arguments.folders.glob("**/meta.json"))
    checks = Checks()
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="whywait-view-"))
        folder = Path(scratch)
        browsers = queue.SimpleQueue()
        for _ in range(BROWSERS):
            browsers.put(stack.enter_context(Browser()))
        tools = formats.Tools(
            arguments.whywait,
            arguments.pprof,
            stack.enter_context(TraceProcessor(arguments.trace_processor)),
            arguments.collector and stack.enter_context(Collector(arguments.collector)),
        )
        pool = stack.enter_context(ThreadPoolExecutor(AHEAD))
        reports = [pool.submit(report, checks, tools, one, folder) for one in recordings]
        serve = {policy: Server(folder, policy) for policy in (None, JENKINS)}

        def opening(check, *what):
            browser = browsers.get()
            try:
                check(checks, browser, *what)
            finally:
                browsers.put(browser)

        def of_report(index, made):
            name, said = made.result()
            looks = arguments.whole or index < WITH_LOOKS
            ways = ALWAYS + LOOKS if looks else ALWAYS
            opening(check_report, name, said, ways, serve, arguments.pictures)

        openers = stack.enter_context(ThreadPoolExecutor(BROWSERS))
        opened = []
        if arguments.made:
            opened.append(openers.submit(opening, check_large, arguments.made))
            opened.append(openers.submit(opening, check_hostile, arguments.made))
        if arguments.diff:
            sides = [unpacked(side, folder / "diff") for side in arguments.diff]
            of_diff = (arguments.whywait, sides, folder, serve)
            opened.append(openers.submit(opening, check_diff, *of_diff))
        for index, made in enumerate(reports):
            opened.append(openers.submit(of_report, index, made))
        for one in opened:
            one.result()
    print(f"{checks.passed} passed, {len(checks.failures)} failed")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
