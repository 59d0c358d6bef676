//! Lays out styled text in lines of a terminal's width.

use whywait_words::{Charset, columns, escape, width};

use super::TextOptions;

/// What a piece of text is, and so how it looks in colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Style {
    Plain,
    Error,
    Warning,
    Note,
    Good,
    Gutter,
    Help,
    Strong,
    Dim,
    Bad,
    Bar,
}

impl Style {
    /// The parameters of the terminal's "select graphic rendition" sequence. Only the eight basic
    /// colours: readers have chosen those to suit their background.
    const fn sgr(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Error => "1;31",
            Style::Warning => "1;33",
            Style::Note | Style::Good => "1;32",
            Style::Gutter => "1;34",
            Style::Help => "1;36",
            Style::Strong => "1",
            Style::Dim => "2",
            Style::Bad => "31",
            Style::Bar => "36",
        }
    }
}

/// More than this is no longer a sentence to read but an attempt to flood the screen.
const MAX_SPAN_WIDTH: usize = 800;

/// The text so far. Everything that enters it goes through [`escape`]: no caller has to remember
/// that a name is hostile.
#[derive(Debug)]
pub struct Page {
    options: TextOptions,
    text: String,
}

impl Page {
    /// An empty page.
    pub fn new(options: TextOptions) -> Self {
        Page {
            options,
            text: String::new(),
        }
    }

    /// What is on it.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.options.width
    }

    /// Whether all is shown.
    pub fn verbose(&self) -> bool {
        self.options.verbose
    }

    /// Whether more than ASCII can be shown.
    pub fn unicode(&self) -> bool {
        self.options.charset == Charset::Unicode
    }

    /// `raw` escaped and cut to at most `max_width` columns.
    pub fn cut(&self, raw: &str, max_width: usize) -> String {
        escape(raw, self.options.charset, max_width)
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A line of the gutter alone, where there is room.
    pub fn gutter(&mut self) {
        if self.options.verbose {
            self.paragraph("   |", "", &[]);
        }
    }

    /// A paragraph, wrapped at words. Its first line starts with `first`, the others with `rest`,
    /// both in the gutter's style.
    pub fn paragraph(&mut self, first: &str, rest: &str, spans: &[(Style, &str)]) {
        let cells: Vec<PageChar> = spans
            .iter()
            .flat_map(|&(style, raw)| {
                let text = escape(raw, self.options.charset, MAX_SPAN_WIDTH);
                text.chars()
                    .map(|c| PageChar {
                        style,
                        c,
                        width: width(c),
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut left = cells.as_slice();
        let mut prefix = first;
        loop {
            let room = self.options.width.saturating_sub(columns(prefix)).max(1);
            let (line, next) = break_line(left, room);
            self.line(prefix, line);
            if next.is_empty() {
                return;
            }
            (left, prefix) = (next, rest);
        }
    }

    /// A line of a table. Its columns are the caller's to keep within the width.
    pub fn row(&mut self, spans: &[(Style, &str)]) {
        for (style, raw) in spans {
            let text = escape(raw, self.options.charset, self.options.width);
            self.run(*style, &text);
        }
        self.text.push('\n');
    }

    fn line(&mut self, prefix: &str, cells: &[PageChar]) {
        let prefix = if cells.is_empty() {
            prefix.trim_end()
        } else {
            prefix
        };
        self.run(Style::Gutter, prefix);
        for run in cells.chunk_by(|a, b| a.style == b.style) {
            let text: String = run.iter().map(|cell| cell.c).collect();
            self.run(run[0].style, &text);
        }
        self.text.push('\n');
    }

    fn run(&mut self, style: Style, text: &str) {
        let sgr = style.sgr();
        if !self.options.colour || sgr.is_empty() || text.trim().is_empty() {
            self.text.push_str(text);
        } else {
            self.text.extend(["\x1b[", sgr, "m", text, "\x1b[0m"]);
        }
    }
}

/// A character on the page.
struct PageChar {
    style: Style,
    c: char,
    width: usize,
}

impl PageChar {
    fn is_space(&self) -> bool {
        self.c == ' '
    }
}

/// The first line of `cells` that fits `room` columns, and what is left for the next lines. Breaks
/// at a space, or within a word that has no line to itself. Always takes something, so that
/// wrapping ends.
fn break_line(cells: &[PageChar], room: usize) -> (&[PageChar], &[PageChar]) {
    let mut used = 0;
    let over = cells.iter().position(|cell| {
        used += cell.width;
        used > room
    });
    let Some(over) = over else {
        return (trim_end(cells), &[]);
    };
    // A space just beyond the room still ends the line well.
    let space = (0..=over).rev().find(|index| may_break(cells, *index));
    let line_has_text = |end: &usize| cells[..*end].iter().any(|cell| !cell.is_space());
    let end = space.filter(line_has_text).unwrap_or(over.max(1));
    let next = cells[end..]
        .iter()
        .position(|cell| !cell.is_space())
        .map_or(cells.len(), |skip| end + skip);
    (trim_end(&cells[..end]), &cells[next..])
}

/// Whether a line may end before the character at `index`: at a space, but not between a figure and
/// its unit.
fn may_break(cells: &[PageChar], index: usize) -> bool {
    const UNITS: [&str; 7] = ["ns", "us", "ms", "s", "min", "h", "%"];
    if !cells[index].is_space() {
        return false;
    }
    let after_figure = index > 0 && cells[index - 1].c.is_ascii_digit();
    let next = cells[index + 1..].iter().map(|cell| cell.c);
    let word: String = next
        .take_while(|c| c.is_alphanumeric() || *c == '%')
        .take(4)
        .collect();
    !(after_figure && UNITS.contains(&word.as_str()))
}

fn trim_end(cells: &[PageChar]) -> &[PageChar] {
    let end = cells
        .iter()
        .rposition(|cell| !cell.is_space())
        .map_or(0, |last| last + 1);
    &cells[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize, colour: bool) -> Page {
        Page::new(TextOptions {
            width,
            colour,
            charset: Charset::Unicode,
            ..TextOptions::default()
        })
    }

    fn wrapped(width: usize, text: &str) -> String {
        let mut page = page(width, false);
        page.paragraph("> ", "  ", &[(Style::Plain, text)]);
        page.into_text()
    }

    #[test]
    fn wraps_at_words() {
        assert_eq!(
            wrapped(10, "one two three four"),
            "> one two\n  three\n  four\n"
        );
        assert_eq!(wrapped(9, "one two   three"), "> one two\n  three\n");
    }

    #[test]
    fn keeps_a_figure_and_its_unit_together() {
        assert_eq!(
            wrapped(9, "took 12 ms in all"),
            "> took\n  12 ms\n  in all\n"
        );
        assert_eq!(wrapped(9, "took 12 msgs"), "> took 12\n  msgs\n");
    }

    #[test]
    fn breaks_a_word_that_is_too_long() {
        assert_eq!(wrapped(6, "abcdefghij kl"), "> abcd\n  efgh\n  ij\n  kl\n");
        assert_eq!(wrapped(1, "ab"), "> a\n  b\n");
    }

    #[test]
    fn counts_columns_not_characters() {
        assert_eq!(wrapped(6, "日本語"), "> 日本\n  語\n");
    }

    #[test]
    fn an_empty_paragraph_is_its_prefix() {
        assert_eq!(wrapped(9, ""), ">\n");
        assert_eq!(wrapped(9, "     "), ">\n");
    }

    #[test]
    fn a_style_ends_with_its_line() {
        let mut page = page(7, true);
        page.paragraph(
            "",
            "",
            &[(Style::Strong, "one two three"), (Style::Plain, ".")],
        );
        assert_eq!(
            page.into_text(),
            "\x1b[1mone two\x1b[0m\n\x1b[1mthree\x1b[0m.\n"
        );
    }

    #[test]
    fn nothing_enters_unescaped() {
        let mut page = page(80, false);
        page.paragraph("", "", &[(Style::Plain, "a\n\x1b[2Jb")]);
        assert_eq!(page.into_text(), "a\\n\\x1b[2Jb\n");
    }
}
