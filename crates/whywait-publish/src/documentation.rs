//! The section of `docs/fleet.md` about tables, from their declarations.

use std::fmt::Write;

use whywait_testkit::{check_section, paragraphs, repository, wrapped};

use crate::table::{COMMON, ColumnKind, PublishedColumn};
use crate::tables::TABLES;

#[test]
fn the_tables_are_documented_as_declared() {
    let mut text = format!("### Columns of every table\n\n{}", head());
    COMMON
        .iter()
        .for_each(|column| text.push_str(&line(column)));
    // The one that says most first.
    for table in TABLES.iter().rev() {
        let about = wrapped(&paragraphs(table.about));
        write!(text, "\n### `{}`\n\n{about}\n{}", table.name, head()).expect("text grows");
        table
            .columns
            .iter()
            .for_each(|column| text.push_str(&line(column)));
    }
    check_section(&repository("docs/fleet.md"), "tables", &text);
}

fn head() -> &'static str {
    "| column | type | meaning |\n|---|---|---|\n"
}

fn line(column: &PublishedColumn) -> String {
    let kind = match column.kind {
        ColumnKind::Text => "VARCHAR",
        ColumnKind::Integer => "BIGINT",
        ColumnKind::Boolean => "BOOLEAN",
        ColumnKind::Number => "DOUBLE",
        ColumnKind::Time => "TIMESTAMP",
    };
    let null = if column.nullable { ", or NULL" } else { "" };
    let unit = match column.name.ends_with("_ns") || column.name == "ns" {
        true => " (ns)",
        false => "",
    };
    let about = paragraphs(column.about);
    format!("| `{}` | {kind}{null}{unit} | {about} |\n", column.name)
}
