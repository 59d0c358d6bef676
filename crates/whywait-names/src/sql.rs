//! Statements of SQL without their values.
//!
//! This is no parser: the text may end anywhere, and its dialect is known by the protocol alone.
//! Words, signs and the names of tables and columns are kept, and all that may be a value becomes
//! `?`. Where two settings of a server disagree on where a value ends, the statement ends before
//! it.

use crate::{LONGEST, without_numbers};

/// How quotes and comments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `"a"` is a name; comments nest; `$tag$` quotes.
    Postgres,
    /// `"a"` is a value, a backslash escapes, `#` begins a comment.
    MySql,
}

const VALUE: &str = "?";
const CUT: &str = "...";

/// A token of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    /// There was a space, or a comment, before it.
    apart: bool,
}

/// The statement; `whole`: the text does not go on. `None`: it is none.
pub(crate) fn template(text: &[u8], whole: bool, dialect: Dialect) -> Option<String> {
    let mut lexer = Lexer {
        text,
        at: 0,
        apart: false,
        whole,
        dialect,
        tokens: Vec::new(),
    };
    let ends = lexer.run() && whole;
    let mut tokens = lexer.tokens;
    while tokens.last().is_some_and(|token| token.text == ";") {
        tokens.pop();
    }
    let first = tokens.first()?.text.as_bytes().first()?;
    if !first.is_ascii_alphabetic() && *first != b'(' {
        return None;
    }
    if !ends {
        leave_out_unfinished_row(&mut tokens);
    }
    let mut out = String::new();
    for token in &tokens {
        if token.apart && !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&token.text);
    }
    if !ends || out.len() > LONGEST {
        out.truncate(LONGEST - CUT.len());
        out.push_str(CUT);
    }
    Some(out)
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    apart: bool,
    /// The text does not go on.
    whole: bool,
    dialect: Dialect,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    /// Reads all of the text. False: it ended within something, or what follows cannot be told.
    fn run(&mut self) -> bool {
        while let Some(byte) = self.peek(0) {
            let reads = match byte {
                0 => return true,
                b' ' | b'\t' | b'\r' | b'\n' => {
                    self.at += 1;
                    self.apart = true;
                    true
                }
                b'-' if self.peek(1) == Some(b'-') => self.line_comment(),
                b'#' if self.dialect == Dialect::MySql => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.comment(),
                b'\'' => self.string(byte),
                b'"' if self.dialect == Dialect::MySql => self.string(byte),
                b'"' | b'`' => self.quoted_name(byte),
                b'$' if self.dialect == Dialect::Postgres => self.dollar(),
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit())
                    && !self.follows_name() =>
                {
                    self.number()
                }
                b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80.. => self.word(),
                b'!'..=b'>' | b'@'..=b'~' => {
                    self.at += 1;
                    self.push(char::from(byte).to_string());
                    true
                }
                _ => {
                    self.at += 1;
                    self.value();
                    true
                }
            };
            if !reads {
                return false;
            }
        }
        true
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn follows_name(&self) -> bool {
        let last = self.tokens.last().filter(|_| !self.apart);
        last.is_some_and(|token| token.text.ends_with(|c: char| c.is_ascii_alphanumeric()))
    }

    fn push(&mut self, text: String) {
        let apart = std::mem::take(&mut self.apart);
        self.tokens.push(Token { text, apart });
        if self.tokens.last().is_some_and(|token| token.text == ")") {
            self.join_rows();
        }
    }

    /// A value. Of a list of them one is kept.
    fn value(&mut self) {
        if let [.., before, comma] = &self.tokens[..]
            && comma.text == ","
            && before.text == VALUE
        {
            self.tokens.pop();
            self.apart = false;
            return;
        }
        self.push(VALUE.to_owned());
    }

    /// Of rows of values that look alike one is kept: `(?), (?)`.
    fn join_rows(&mut self) {
        let Some(begins) = group_begins(&self.tokens) else {
            return;
        };
        let (before, row) = self.tokens.split_at(begins);
        let Some((comma, before)) = before.split_last() else {
            return;
        };
        let Some(first) = before.len().checked_sub(row.len()) else {
            return;
        };
        let texts = |tokens: &[Token]| tokens.iter().map(|token| token.text.clone()).collect();
        let (above, below): (Vec<String>, Vec<String>) = (texts(&before[first..]), texts(row));
        if comma.text == "," && above == below {
            self.tokens.truncate(begins - 1);
        }
    }

    /// False: it is one to some servers only.
    fn line_comment(&mut self) -> bool {
        let is_dash = self.peek(0) == Some(b'-');
        let spaced = self.peek(2).is_none_or(|next| next <= b' ');
        if is_dash && !spaced && self.dialect == Dialect::MySql {
            return false;
        }
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        self.at += end.map_or(rest.len(), |end| end + 1);
        self.apart = true;
        true
    }

    fn comment(&mut self) -> bool {
        self.at += 2;
        self.apart = true;
        let mut depth = 1;
        while depth > 0 {
            match (self.peek(0), self.peek(1)) {
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                }
                (Some(b'/'), Some(b'*')) if self.dialect == Dialect::Postgres => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return false,
            }
        }
        true
    }

    /// A value in quotes. False: it does not end, or a backslash before a quote may end it and may
    /// not, as the server is set.
    fn string(&mut self, quote: u8) -> bool {
        let escapes = self.drop_prefix();
        self.value();
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\\'), Some(next)) if next == quote && !escapes => return false,
                (Some(b'\\'), Some(_)) if escapes || self.dialect == Dialect::MySql => self.at += 2,
                (Some(byte), Some(next)) if byte == quote && next == quote => self.at += 2,
                (Some(byte), _) if byte == quote => {
                    self.at += 1;
                    return true;
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return false,
            }
        }
    }

    /// Takes away what says how a string is written (`E'…'`, `x'…'`, `_utf8mb4'…'`). True: in it a
    /// backslash escapes, whatever the settings are.
    fn drop_prefix(&mut self) -> bool {
        let Some(token) = self.tokens.last().filter(|_| !self.apart) else {
            return false;
        };
        let word = token.text.to_ascii_lowercase();
        let says_how = matches!(&*word, "e" | "n" | "b" | "x") || word.starts_with('_');
        if says_how {
            self.apart = token.apart;
            self.tokens.pop();
        }
        word == "e" && self.dialect == Dialect::Postgres
    }

    /// `"a"` or `` `a` ``. One that is no plain word is written as a value.
    fn quoted_name(&mut self, quote: u8) -> bool {
        let begins = self.at + 1;
        let rest = self.text.get(begins..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == quote) else {
            return false;
        };
        self.at = begins + length + 1;
        if self.peek(0) == Some(quote) {
            // A quote within the name: where it ends is for others to say.
            return false;
        }
        match plain_name(&rest[..length]) {
            Some(name) => self.push(name),
            None => self.value(),
        }
        true
    }

    /// `$1`, or `$tag$ … $tag$`.
    fn dollar(&mut self) -> bool {
        let rest = &self.text[self.at + 1..];
        let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        let tag = rest.iter().take_while(|byte| is_tag(byte)).count();
        if rest.get(tag) != Some(&b'$') {
            if tag == rest.len() && !self.whole {
                return false;
            }
            self.at += 1 + tag;
            self.value();
            return true;
        }
        let mark = &self.text[self.at..self.at + tag + 2];
        let quoted = &self.text[self.at + mark.len()..];
        let end = quoted.windows(mark.len()).position(|at| at == mark);
        self.value();
        match end {
            Some(end) => {
                self.at += 2 * mark.len() + end;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> bool {
        self.drop_sign();
        let mut last = 0;
        while let Some(byte) = self.peek(0) {
            let goes_on = byte.is_ascii_alphanumeric()
                || matches!(byte, b'.' | b'_')
                || (matches!(byte, b'+' | b'-') && matches!(last, b'e' | b'E'));
            if !goes_on {
                break;
            }
            last = byte;
            self.at += 1;
        }
        self.value();
        true
    }

    /// Takes away the sign of a number, which is a part of the value.
    fn drop_sign(&mut self) {
        if let [.., before, sign] = &self.tokens[..]
            && matches!(&*sign.text, "-" | "+")
            && matches!(&*before.text, "(" | "," | "=" | "<" | ">" | "*" | "/" | "%")
        {
            self.apart = sign.apart;
            self.tokens.pop();
        }
    }

    /// A word. False: the text ends with it, and it may go on.
    fn word(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let goes_on = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || *byte >= 0x80
        };
        let length = rest.iter().take_while(|byte| goes_on(byte)).count();
        self.at += length;
        if !self.whole && length == rest.len() {
            return false;
        }
        match plain_name(&rest[..length]) {
            Some(name) => self.push(name),
            None => self.value(),
        }
        true
    }
}

/// The name, if it is a plain word: what is longer than PostgreSQL allows is none.
fn plain_name(word: &[u8]) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    let begins = word.first().is_some_and(|byte| !byte.is_ascii_digit());
    let is_name = begins && word.len() <= 63 && word.iter().all(plain);
    let word = is_name.then(|| str::from_utf8(word).ok())??;
    Some(without_numbers(word))
}

/// Where the group in brackets begins with which the tokens end.
fn group_begins(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().rev() {
        match &*token.text {
            ")" => depth += 1,
            "(" => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// How much of the last row of many is there depends on the values.
fn leave_out_unfinished_row(tokens: &mut Vec<Token>) {
    let Some(end) = tokens.iter().rposition(|token| token.text == ")") else {
        return;
    };
    if let [comma, row @ ..] = &tokens[end + 1..]
        && comma.text == ","
        && row.first().is_none_or(|token| token.text == "(")
    {
        tokens.truncate(end + 1);
    }
}
