//! Makes strings from outside safe to print.
//!
//! Thread names, command lines, symbol names and paths are chosen by whoever wrote the program that
//! is watched, or by whoever talks to it. Printed raw they could move the cursor, forge a finding
//! or hide one.

use unicode_width::UnicodeWidthChar;

/// What the reader's terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Charset {
    /// UTF-8.
    #[default]
    Unicode,
    /// ASCII only.
    Ascii,
}

/// More marks than this on one letter pile up over the neighbouring lines. No living script needs
/// as many.
const MARKS_PER_LETTER: usize = 3;

/// `raw` with everything made visible that a terminal would obey or hide, cut in its middle to at
/// most `max_width` columns.
///
/// Control characters become `\x1b`, `\n` and the like; bidirectional overrides and other
/// characters without a shape of their own become `\u{202e}`. With [`Charset::Ascii`] so does all
/// that is not ASCII, but for common punctuation that has an ASCII spelling. The backslash itself
/// stays, so that escaping twice changes nothing.
pub fn escape(raw: &str, charset: Charset, max_width: usize) -> String {
    let mut marks = 0;
    let units: Vec<ShownChar> = raw
        .chars()
        .map(|c| {
            marks = if width(c) == 0 { marks + 1 } else { 0 };
            unit(c, charset, marks)
        })
        .collect();
    let total: usize = units.iter().map(ShownChar::width).sum();
    if total <= max_width {
        let mut text = String::with_capacity(raw.len());
        units.iter().for_each(|unit| unit.push_to(&mut text));
        return text;
    }
    cut(&units, charset, max_width)
}

/// The width of a string that is already escaped, in terminal columns.
pub fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The width of a character, in terminal columns.
pub fn width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// A character as it will be shown. A cut never goes through one, so that half an escape is never
/// seen.
enum ShownChar {
    Char(char),
    Text(String),
    Fixed(&'static str),
}

impl ShownChar {
    fn width(&self) -> usize {
        match self {
            ShownChar::Char(c) => width(*c),
            ShownChar::Text(text) => text.len(),
            ShownChar::Fixed(text) => text.len(),
        }
    }

    fn push_to(&self, out: &mut String) {
        match self {
            ShownChar::Char(c) => out.push(*c),
            ShownChar::Text(text) => out.push_str(text),
            ShownChar::Fixed(text) => out.push_str(text),
        }
    }
}

fn unit(c: char, charset: Charset, marks: usize) -> ShownChar {
    match c {
        ' '..='~' => ShownChar::Char(c),
        '\n' => ShownChar::Fixed("\\n"),
        '\r' => ShownChar::Fixed("\\r"),
        '\t' => ShownChar::Fixed("\\t"),
        '\0'..='\u{9f}' => ShownChar::Text(format!("\\x{:02x}", u32::from(c))),
        _ if invisible(c) => ShownChar::Text(format!("\\u{{{:x}}}", u32::from(c))),
        _ if charset == Charset::Ascii => match spelling(c) {
            Some(text) => ShownChar::Fixed(text),
            None => ShownChar::Text(format!("\\u{{{:x}}}", u32::from(c))),
        },
        _ if width(c) == 0 && marks > MARKS_PER_LETTER => {
            ShownChar::Text(format!("\\u{{{:x}}}", u32::from(c)))
        }
        _ => ShownChar::Char(c),
    }
}

/// Whether a terminal shows the character, and neither obeys it nor hides it.
pub fn shows(c: char) -> bool {
    !c.is_control() && !invisible(c)
}

/// The characters of Unicode 16's categories Cf, Zl, Zp and Co, those with the property
/// `Default_Ignorable_Code_Point`, the spaces that are not ASCII and the blank Braille pattern: all
/// that changes a line or hides in it without showing.
fn invisible(c: char) -> bool {
    matches!(
        u32::from(c),
        0xa0 | 0xad | 0x34f | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2
            | 0x115f..=0x1160 | 0x1680 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x2000..=0x200f
            | 0x2028..=0x202f | 0x205f..=0x206f | 0x2800 | 0x3000 | 0x3164 | 0xe000..=0xf8ff
            | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0x110bd | 0x110cd
            | 0x13430..=0x1343f | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff
            | 0xf0000..=0x10ffff
    )
}

/// How ASCII spells the punctuation that whywait's own sentences use.
fn spelling(c: char) -> Option<&'static str> {
    Some(match c {
        '…' => "...",
        '→' => "->",
        '–' | '—' => "-",
        '’' | '‘' => "'",
        '“' | '”' => "\"",
        '≥' => ">=",
        '≤' => "<=",
        '×' => "x",
        '·' => "*",
        'µ' | 'μ' => "u",
        _ => return None,
    })
}

/// Keeps both ends: a path's file name and a command's program are both worth seeing.
fn cut(units: &[ShownChar], charset: Charset, max_width: usize) -> String {
    let mut text = String::new();
    let dots = ShownChar::Fixed("...");
    let gap = if charset == Charset::Unicode {
        ShownChar::Char('…')
    } else {
        dots
    };
    let Some(room) = max_width.checked_sub(gap.width()) else {
        return text;
    };
    let (head, tail) = (room - room / 2, room / 2);
    fitting(units.iter(), head).for_each(|unit| unit.push_to(&mut text));
    gap.push_to(&mut text);
    let last: Vec<&ShownChar> = fitting(units.iter().rev(), tail).collect();
    last.into_iter()
        .rev()
        .for_each(|unit| unit.push_to(&mut text));
    text
}

fn fitting<'a>(
    units: impl Iterator<Item = &'a ShownChar>,
    room: usize,
) -> impl Iterator<Item = &'a ShownChar> {
    units
        .scan(0, move |used, unit| {
            *used += unit.width();
            Some((*used, unit))
        })
        .take_while(move |(used, _)| *used <= room)
        .map(|(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unicode(raw: &str) -> String {
        escape(raw, Charset::Unicode, usize::MAX)
    }

    fn ascii(raw: &str) -> String {
        escape(raw, Charset::Ascii, usize::MAX)
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "tokio-runtime-w",
            "größe/日本",
            "e\u{301}",
            "C:\\x1b",
            "<F as axum::handler::Handler<T>>::call",
        ] {
            assert_eq!(unicode(text), text);
        }
    }

    #[test]
    fn controls_become_visible() {
        assert_eq!(
            unicode("a\x1b[31mb\x7f\r\n\t\0\u{9b}2J"),
            "a\\x1b[31mb\\x7f\\r\\n\\t\\x00\\x9b2J"
        );
    }

    #[test]
    fn bidirectional_and_invisible_characters_become_visible() {
        assert_eq!(
            unicode("a\u{202e}b\u{2066}c\u{200b}d\u{feff}"),
            "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{feff}"
        );
        assert_eq!(
            unicode("\u{e0041}\u{2028}\u{a0}\u{3164}"),
            "\\u{e0041}\\u{2028}\\u{a0}\\u{3164}"
        );
    }

    #[test]
    fn marks_do_not_pile_up() {
        assert_eq!(
            unicode(&format!("a{}b", "\u{301}".repeat(5))),
            "a\u{301}\u{301}\u{301}\\u{301}\\u{301}b"
        );
    }

    #[test]
    fn ascii_spells_what_it_can() {
        assert_eq!(ascii("1 → 2 … 3 µs é"), "1 -> 2 ... 3 us \\u{e9}");
    }

    #[test]
    fn cuts_in_the_middle_and_never_through_an_escape() {
        assert_eq!(
            escape("/usr/lib/very/long/libc.so.6", Charset::Unicode, 15),
            "/usr/li…bc.so.6"
        );
        assert_eq!(escape("abcdefghij", Charset::Ascii, 7), "ab...ij");
        assert_eq!(
            escape("\x1b\x1b\x1b\x1b", Charset::Unicode, 11),
            "\\x1b…\\x1b"
        );
        assert_eq!(escape("日本日本", Charset::Unicode, 5), "日…本");
        assert_eq!(escape("abc", Charset::Unicode, 0), "");
    }

    fn harmless(text: &str) -> bool {
        text.chars().all(shows)
    }

    /// Strings of any characters, with more of the dangerous ones than chance would give.
    fn hostile() -> impl Strategy<Value = String> {
        let dangerous = prop::sample::select(vec![
            '\x1b', '\u{9b}', '\u{202e}', '\u{301}', '\u{200d}', '日', '\\', ' ',
        ]);
        let c = prop_oneof![any::<char>(), dangerous, prop::char::range(' ', '~')];
        prop::collection::vec(c, 0..60).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nothing_dangerous_remains(raw in hostile(), max in 0usize..80) {
            let text = escape(&raw, Charset::Unicode, max);
            prop_assert!(harmless(&text), "{text:?}");
            prop_assert!(columns(&text) <= max);
        }

        #[test]
        fn ascii_is_printable_ascii(raw in hostile(), max in 0usize..80) {
            let text = escape(&raw, Charset::Ascii, max);
            prop_assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text:?}");
            prop_assert!(text.len() <= max);
        }

        #[test]
        fn twice_is_once(raw in hostile(), max in 0usize..80) {
            for charset in [Charset::Unicode, Charset::Ascii] {
                let once = escape(&raw, charset, max);
                prop_assert_eq!(escape(&once, charset, max), once);
            }
        }
    }

    #[test]
    fn every_character_is_harmless() {
        for c in '\0'..=char::MAX {
            let text = unicode(&c.to_string());
            assert!(harmless(&text) && !text.is_empty(), "{c:?}");
        }
    }
}
