"""What the tests take from docs/fleet.md."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/fleet.md"


def blocks():
    """Yields (heading, engine or None, sql): the heading is the nearest one above the block."""
    heading = ""
    for match in re.finditer(
        r"^#+ (?P<heading>[^\n]*)$|^```sql(?: (?P<engine>\w+))?\n(?P<sql>.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        re.M | re.S,
    ):
        if match["sql"] is None:
            heading = match["heading"]
        else:
            yield heading, match["engine"], match["sql"]


def questions():
    """The queries that all engines understand, by heading."""
    return {heading: sql for heading, engine, sql in blocks() if engine is None}


def python():
    """The page's lines of Python."""
    return re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1]


def statements(engine, heading):
    """An engine's statements below a heading, one by one."""
    return [
        statement + ";"
        for found, of, sql in blocks()
        if (found, of) == (heading, engine)
        for statement in re.split(r";\s*\n", sql)
        if statement.strip()
    ]


def write_section(name, text):
    """Replaces a generated section of the page."""
    begin, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->\n"
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    PAGE.write_text(before + begin + text + end + after, encoding="utf-8")
