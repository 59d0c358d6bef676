//! What a request or a call is called, by its first bytes: the route of HTTP/1, the statement of
//! PostgreSQL's and MySQL's protocols, Redis' command, the kind of record that DNS is asked for.
//! With HTTP/2 its fields say it: the route, or gRPC's method.
//!
//! A name holds nothing of a value. What is not known to be a part of the program's own vocabulary
//! is replaced: a name is made of what is kept, never of what is taken away. It is ASCII that can
//! be seen, of at most [`LONGEST`] bytes.

mod dns;
mod fields;
mod front;
mod http;
mod kept;
mod mysql;
mod postgres;
mod redis;
mod sql;

pub use dns::{question, record_type};
pub use fields::{FieldTable, NoFields};
pub use kept::{KeptNames, OTHERS};

/// No name is longer.
pub const LONGEST: usize = 256;

/// What first bytes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The method and the path of HTTP.
    Route(String),
    /// What is asked of a database: a statement of SQL, a command.
    Statement(String),
    /// It prepares this statement. Later ones on the same connection run it by the key; `None`: by
    /// a number that the answer says.
    Prepares(Option<u64>, String),
    /// It runs what was prepared under this key.
    Runs(u64),
}

/// What the first bytes of a request or a call say; `total`: how many bytes it has. `None`: its
/// protocol is none of those that are known here.
pub fn said(bytes: &[u8], total: u64) -> Option<Said> {
    http::route(bytes)
        .map(Said::Route)
        .or_else(|| redis::command(bytes).map(Said::Statement))
        .or_else(|| postgres::said(bytes, total))
        .or_else(|| mysql::said(bytes, total))
}

/// Runs of digits in a word of the program's become `N`, as in names of threads: tables and
/// savepoints are numbered. A single digit stays.
fn without_numbers(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut digits = String::new();
    for c in word.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        match digits.len() {
            0 | 1 => text.push_str(&digits),
            _ => text.push('N'),
        }
        digits.clear();
        text.push(c);
    }
    text.pop();
    text
}

#[cfg(test)]
mod tests;
