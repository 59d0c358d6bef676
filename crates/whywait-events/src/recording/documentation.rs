//! The sections of `docs/recording.md` about tables, from the tables' declarations.

use std::fmt::Write;

use parquet::basic::Type;
use whywait_testkit::{check_section, paragraphs, repository, wrapped};

use super::column::Kind;
use super::table::{Column, Field, Table, Tables};
use crate::{PART_COUNT, each_table};

#[test]
fn the_tables_are_documented_as_declared() {
    let mut document = Document::default();
    each_table(&mut document);
    let page = repository("docs/recording.md");
    // Its section goes on with what the names of counters mean.
    let (tables, counters) = document
        .text
        .split_once("### `counters`")
        .expect("there is a table of counters");
    check_section(&page, "tables", &format!("{}\n", tables.trim_end()));
    check_section(&page, "counters", &format!("### `counters`{counters}"));
}

#[derive(Default)]
struct Document {
    text: String,
}

impl Tables for Document {
    fn table<T: Table>(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let since = if T::LATER {
            "\n\nAbsent in recordings from before there was this table."
        } else {
            ""
        };
        let head = "| column | type | unit | meaning |\n|---|---|---|---|";
        let about = wrapped(&format!("{}{since}", paragraphs(T::ABOUT)));
        write!(self.text, "### `{}`\n\n{about}\n{head}\n", T::NAME).expect("text grows");
        for field in T::FIELDS {
            self.text.push_str(&lines(field));
        }
    }
}

/// A field's lines of its table: one for each column, or for all where they have no meaning of
/// their own.
fn lines(field: &Field) -> String {
    let names = field.columns.iter().map(|column| column.name);
    let kind = field.kinds[0];
    if field.columns.len() == 1 || field.columns[0].about.is_empty() {
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        return line(&names.join(", "), field, &field.columns[0], kind);
    }
    let columns = field.columns.iter().zip(field.kinds);
    columns
        .map(|(column, kind)| line(&format!("`{}`", column.name), field, column, *kind))
        .collect()
}

fn line(names: &str, field: &Field, column: &Column, kind: Kind) -> String {
    let sql = match kind.physical {
        Type::BOOLEAN => "BOOLEAN",
        Type::INT32 => "INTEGER",
        Type::INT64 => "BIGINT",
        Type::BYTE_ARRAY => "VARCHAR",
        other => panic!("{other} has no name in SQL"),
    };
    let null = if kind.nullable { ", or NULL" } else { "" };
    let about = match column.about {
        [] => field.about,
        about => about,
    };
    let mut meaning = paragraphs(about);
    let choices = (field.choices)();
    if !choices.is_empty() {
        let choices: Vec<_> = choices
            .iter()
            .map(|(name, about)| format!("`{name}`: {}", uncapitalised(&paragraphs(about))))
            .collect();
        write!(meaning, " {}", choices.join(" ")).expect("text grows");
    }
    if let Some(default) = field.default {
        write!(meaning, " NULL in older recordings: as good as {default}.").expect("text grows");
    }
    let unit = unit(field, column);
    format!("| {names} | {sql}{null} | {unit} | {meaning} |\n")
}

fn unit(field: &Field, column: &Column) -> &'static str {
    let apart = field.columns.len() > 1 && field.columns.len() != PART_COUNT;
    let moment = field.type_name == "Ns" && column.about.is_empty();
    match column.name {
        name if name.ends_with("_ns") && moment => "ns (time)",
        name if name.ends_with("_ns") && !apart => "ns",
        name if name.starts_with("bytes_") => "bytes",
        _ => "",
    }
}

fn uncapitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_lowercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
