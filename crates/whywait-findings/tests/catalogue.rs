//! What is generated from the catalogue, and what the catalogue must hold.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use whywait_findings::Code;
use whywait_testkit::{blessing, check_file, check_section, repository};

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
    let rooms: BTreeSet<String> = Code::all()
        .map(|code| code.name().replace('-', "_"))
        .collect();
    assert_eq!(names_in("crates/whywait-findings/src/detectors"), rooms);
}

/// `cargo fmt` does not look into the macro that declares the rooms.
#[test]
fn the_rooms_are_formatted() {
    let rooms = repository("crates/whywait-findings/src/detectors");
    let files = Code::all().map(|code| rooms.join(code.name().replace('-', "_")).join("mod.rs"));
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024"]).args(files);
    if !blessing() {
        rustfmt.arg("--check");
    }
    match rustfmt.output() {
        Ok(done) => assert!(
            done.status.success(),
            "`WHYWAIT_BLESS=1 cargo test` formats the rooms:\n{}",
            String::from_utf8_lossy(&done.stdout)
        ),
        Err(error) => eprintln!("not tested: rustfmt does not run: {error}"),
    }
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
