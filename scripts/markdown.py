"""Markdown that is generated: paragraphs and list items at most 100 columns wide."""

import re
import textwrap

COLUMNS = 100
ITEM = re.compile(r"- |\d+\. ")
# What stays on one line: code, and a figure with its percent sign.
TOGETHER = re.compile(r"`[^`]+`|\d %")
KEPT = "\N{NO-BREAK SPACE}"


def wrap(page):
    """The page with its paragraphs and list items filled anew. Tables, headings, code and comments
    stay as they are."""
    lines, paragraph, fenced = [], [], False

    def fill():
        if paragraph:
            item = ITEM.match(paragraph[0])
            indent = " " * len(item[0]) if item else ""
            text = " ".join(line.strip() for line in paragraph)
            text = TOGETHER.sub(lambda found: found[0].replace(" ", KEPT), text)
            filled = textwrap.wrap(
                text,
                COLUMNS,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines.extend(line.replace(KEPT, " ") for line in filled)
            paragraph.clear()

    for line in page.split("\n"):
        fenced ^= line.startswith("```")
        if fenced or not line.strip() or line.startswith(("|", "#", "<!--", "```")):
            fill()
            lines.append(line)
        elif ITEM.match(line):
            fill()
            paragraph.append(line)
        else:
            paragraph.append(line)
    fill()
    return "\n".join(lines)
