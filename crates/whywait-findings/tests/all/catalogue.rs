//! What is generated from the catalogue, and what the catalogue must hold.

use std::collections::BTreeSet;
use std::fs;

use whywait_findings::Code;
use whywait_testkit::{check_file, check_section, repository};

/// Names in a folder of the repository.
fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(repository(folder)).expect("the folder is there");
    entries
        .map(|entry| {
            let name = entry.expect("it can be listed").file_name();
            name.to_string_lossy().into_owned()
        })
        .collect()
}

fn table(head: &str, row: impl Fn(Code) -> String) -> String {
    let columns = head.matches('|').count() - 1;
    let rows: String = Code::all().map(|code| row(code) + "\n").collect();
    format!("{head}\n|{}\n{rows}", "---|".repeat(columns))
}

#[test]
fn each_room_is_in_the_catalogue() {
    let mut rooms: BTreeSet<String> = Code::all()
        .map(|code| code.name().replace('-', "_"))
        .collect();
    rooms.insert("mod.rs".to_owned());
    assert_eq!(names_in("crates/whywait-findings/src/detectors"), rooms);
}

#[test]
fn each_finding_has_its_page_and_the_index_a_row() {
    let mut pages = BTreeSet::from(["README.md".to_owned()]);
    for code in Code::all() {
        let page = format!("{}.md", code.name());
        check_file(&repository("docs/findings").join(&page), &code.explain());
        pages.insert(page);
    }
    let rows = table("| code | severity | what it means |", |code| {
        let name = code.name();
        format!(
            "| [`{name}`]({name}.md) | {} | {} |",
            code.severities(),
            code.meaning()
        )
    });
    let index = format!(
        "# Findings\n\n\
         What whywait's reports may find. `whywait explain CODE` prints the page of a finding.\n\n\
         These pages are generated from `crates/whywait-findings/src/detectors/`.\n\n{rows}"
    );
    check_file(&repository("docs/findings/README.md"), &index);
    assert_eq!(names_in("docs/findings"), pages);
}

#[test]
fn the_readme_lists_the_findings() {
    let rows = table("| code | what it means |", |code| {
        let name = code.name();
        format!(
            "| [`{name}`](docs/findings/{name}.md) | {} |",
            code.meaning()
        )
    });
    check_section(&repository("README.md"), "findings", &rows);
}

#[test]
fn the_design_lists_the_invariants() {
    let rows = table("| code | severity | the invariant that broke |", |code| {
        let name = code.name();
        format!(
            "| [`{name}`](../findings/{name}.md) | {} | {} |",
            code.severities(),
            code.invariant()
        )
    });
    check_section(&repository("docs/design/findings.md"), "findings", &rows);
}
