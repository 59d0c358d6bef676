//! whywait's own texts, as in `whywait explain`: headings, paragraphs, lists, and what is quoted.

use maud::{Markup, html};

/// A paragraph, a heading or an item of a list.
enum Block<'a> {
    Heading(&'a str),
    Paragraph(Vec<&'a str>),
    Item(Vec<&'a str>),
    Code(Vec<&'a str>),
}

/// The text as markup. Everything in it is escaped.
pub(crate) fn prose(text: &str) -> Markup {
    let blocks = blocks(text);
    let is_item = |block: &Block| matches!(block, Block::Item(_));
    html! {
        @for run in blocks.chunk_by(|a, b| is_item(a) && is_item(b)) {
            @match &run[0] {
                Block::Heading(text) => h4 { (quoted(text)) },
                Block::Paragraph(lines) => p { (quoted(&lines.join(" "))) },
                Block::Code(lines) => pre { (lines.join("\n")) },
                Block::Item(_) => ul {
                    @for block in run {
                        @if let Block::Item(lines) = block { li { (quoted(&lines.join(" "))) } }
                    }
                },
            }
        }
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    // An empty line ends what was before it.
    let mut open = false;
    for line in text.lines() {
        let words = line.trim();
        match (&mut blocks.last_mut().filter(|_| open), line) {
            (_, _) if words.is_empty() => {
                open = false;
                continue;
            }
            (Some(Block::Code(lines)), _) if line.starts_with("    ") => lines.push(&line[4..]),
            (None, _) if line.starts_with("    ") => blocks.push(Block::Code(vec![&line[4..]])),
            (_, _) if line.starts_with('#') => {
                blocks.push(Block::Heading(words.trim_start_matches(['#', ' '])));
                open = false;
                continue;
            }
            (_, _) if line.starts_with("- ") => blocks.push(Block::Item(vec![&words[2..]])),
            (Some(Block::Paragraph(lines) | Block::Item(lines)), _) => lines.push(words),
            _ => blocks.push(Block::Paragraph(vec![words])),
        }
        open = true;
    }
    blocks
}

/// What stands between back quotes is code, and between two stars strong.
fn quoted(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 {
                code { (part) }
            } @else {
                @for (index, part) in part.split("**").enumerate() {
                    @if index % 2 == 1 { strong { (part) } } @else { (part) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_explain_says_becomes_markup() {
        let text =
            "# Head\n\nA `b` <c>\nof **d**.\n\n- one\n  more\n- two\n\n    code  it\n    is\n";
        assert_eq!(
            prose(text).into_string(),
            "<h4>Head</h4><p>A <code>b</code> &lt;c&gt; of <strong>d</strong>.</p>\
             <ul><li>one more</li><li>two</li></ul><pre>code  it\nis</pre>"
        );
    }
}
