//! Markdown from documentation comments.

/// Documentation as the compiler has it: lines with a space before each, an empty one between
/// paragraphs.
pub fn paragraphs(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        match line.trim() {
            "" => text.push_str("\n\n"),
            line if text.is_empty() || text.ends_with('\n') => text.push_str(line),
            line => {
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    text
}

/// Paragraphs, wrapped at 100 columns.
pub fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for paragraph in text.split("\n\n") {
        let mut column = 0;
        for word in paragraph.split(' ') {
            let width = word.chars().count();
            if column > 0 && column + 1 + width > 100 {
                wrapped.push('\n');
                column = 0;
            } else if column > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += width;
        }
        wrapped.push_str("\n\n");
    }
    wrapped.truncate(wrapped.len() - 1);
    wrapped
}
