//! Text in GitHub's Markdown.

use crate::{Charset, escape};

/// A text in which nothing means anything to Markdown or HTML, and no name becomes a mention, an
/// issue or a link. Cut to some 800 columns.
pub fn text(raw: &str) -> String {
    const MAX: usize = 800;
    let shown = escape(raw, Charset::Unicode, MAX);
    let mut text = String::with_capacity(shown.len());
    let mut chars = shown.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '@' => text.push_str("&#64;"),
            '#' => text.push_str("&#35;"),
            // What begins a link.
            ':' if chars.peek() == Some(&'/') => text.push_str("&#58;"),
            '.' if text.ends_with("www") => text.push_str("&#46;"),
            '|' => text.push_str("&#124;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '$' => {
                text.push_str(&format!("&#{};", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_only_text() {
        assert_eq!(
            text("<b>`x|y` @all #1 [a](b) *c*\n http://www.x std::y"),
            "&lt;b&gt;&#96;x&#124;y&#96; &#64;all &#35;1 &#91;a&#93;(b) &#42;c&#42;&#92;n \
             http&#58;//www&#46;x std::y"
        );
    }
}
