//! What holds each number: a recording of a lab of which a label breaks when the number is 0 or
//! infinite, or else a test that fails. The page says which, and is held to it here.
//!
//! With `WHYWAIT_SWEEP=1` in the environment, what the page does not say, or no longer rightly, is
//! looked for and written there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs};

use whywait_events::recording::Recording;
use whywait_model::{Input, Model};
use whywait_testkit::{Kept, in_parallel, kept_recordings, repository};

use super::LISTED;
use super::tests::{PAGE, page};
use super::varied::{Extreme, VARIABLE, Variation, reading, with};
use crate::{Facts, Verdict, find, verdict};

/// What holds numbers.
pub(super) type Holders = BTreeMap<Variation, Holder>;

/// What breaks when a number is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// A label of the recording of this lab's variant.
    Lab(String),
    /// The test of this name.
    Test(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(name) => formatter.write_str(name),
            Self::Test(name) => write!(formatter, "`{name}`"),
        }
    }
}

impl Holder {
    /// As the page says it; `None`: it says nothing.
    fn read(cell: &str) -> Option<Self> {
        let cell = cell.trim();
        let test = cell
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'));
        match test {
            Some(name) => Some(Self::Test(name.to_owned())),
            None => (!cell.is_empty()).then(|| Self::Lab(cell.to_owned())),
        }
    }
}

/// What the page says.
pub(super) fn on_page() -> Holders {
    let text = fs::read_to_string(repository(PAGE)).unwrap_or_default();
    let mut holders = Holders::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').collect();
        let [_, name, _, _, zero, infinite, _] = cells[..] else {
            continue;
        };
        let Some(number) = LISTED
            .iter()
            .find(|number| name.trim() == format!("`{}`", number.name))
        else {
            continue;
        };
        for (side, cell) in Extreme::BOTH.into_iter().zip([zero, infinite]) {
            if let Some(holder) = Holder::read(cell) {
                holders.insert((number.name, side), holder);
            }
        }
    }
    holders
}

#[test]
fn numbers_are_held_by_what_the_page_says() {
    let mut holders = on_page();
    let not = not_held(&holders);
    if env::var_os("WHYWAIT_SWEEP").is_none_or(|value| value != "1") {
        assert!(
            not.is_empty(),
            "nothing breaks of what should hold these; WHYWAIT_SWEEP=1 looks for another: {not:#?}"
        );
        let names = LISTED.iter().map(|number| number.name);
        let open = names.filter(|name| {
            !Extreme::BOTH
                .iter()
                .any(|side| holders.contains_key(&(*name, *side)))
        });
        let open: Vec<&str> = open.collect();
        assert!(
            open.is_empty(),
            "a number that nothing holds is a guess; WHYWAIT_SWEEP=1 looks for what holds it: \
             {open:?}"
        );
        return;
    }
    holders.retain(|variation, _| !not.contains_key(variation));
    let found = Found {
        holders: Mutex::new(holders),
    };
    look_in_recordings(&found);
    look_in_tests(&found);
}

/// What is found. Each is on the page at once.
struct Found {
    holders: Mutex<Holders>,
}

impl Found {
    /// Those of which nothing is found yet.
    fn open(&self) -> Vec<Variation> {
        let holders = self.holders.lock().expect("no panic");
        let names = LISTED.iter().map(|number| number.name);
        names
            .flat_map(|name| Extreme::BOTH.map(|side| (name, side)))
            .filter(|variation| !holders.contains_key(variation))
            .collect()
    }

    fn add(&self, variation: Variation, holder: Holder) {
        let mut holders = self.holders.lock().expect("no panic");
        holders.entry(variation).or_insert(holder);
        fs::write(repository(PAGE), page(&holders)).expect("the page can be written");
    }
}

/// Those that do not break.
fn not_held(holders: &Holders) -> Holders {
    let mut by_lab: BTreeMap<&str, Vec<Variation>> = BTreeMap::new();
    let mut tests = Vec::new();
    for (variation, holder) in holders {
        match holder {
            Holder::Lab(name) => by_lab.entry(name).or_default().push(*variation),
            Holder::Test(name) => tests.push((*variation, name.as_str())),
        }
    }
    let kept = kept_recordings();
    let by_lab: Vec<_> = by_lab.into_iter().collect();
    let not_by_labs = in_parallel(&by_lab, |(name, variations)| {
        let Some(kept) = kept.iter().find(|kept| kept.name() == *name) else {
            return variations.clone();
        };
        let judged = Judged::of(kept);
        let not = variations
            .iter()
            .filter(|variation| !judged.holds(&[**variation]));
        not.copied().collect()
    });
    let not_by_tests = in_parallel(&tests, |(variation, name)| {
        let fails = failing(*variation, &["--exact", name]).contains(*name);
        (!fails).then_some(*variation)
    });
    let not = not_by_labs
        .into_iter()
        .flatten()
        .chain(not_by_tests.into_iter().flatten());
    not.map(|variation| (variation, holders[&variation].clone()))
        .collect()
}

/// A recording, and the labels that hold of it.
struct Judged<'k> {
    kept: &'k Kept,
    model: Model,
}

impl<'k> Judged<'k> {
    fn of(kept: &'k Kept) -> Self {
        let scratch = kept.unpack();
        let recording = Recording::open(&scratch.path().join("recording"));
        let input = recording.and_then(|recording| Input::read(&recording));
        let input = input.unwrap_or_else(|error| panic!("{}: {error}", kept.name()));
        Self {
            kept,
            model: Model::new(input),
        }
    }

    /// Which labels do not hold.
    fn violations(&self) -> Vec<String> {
        let facts = Facts::of(&self.model);
        let findings = find(&facts);
        let late = verdict(&facts, &findings) == Verdict::Open;
        let found: Vec<_> = findings
            .iter()
            .flat_map(|finding| {
                finding.codes().map(|code| whywait_testkit::Found {
                    code: code.name(),
                    severity: (code == finding.code).then(|| finding.severity.name()),
                    at_most_ns: finding.saving.at_most_ns,
                })
            })
            .collect();
        self.kept.labels.violations(&found, late)
    }

    /// Whether a label breaks when these numbers are others. All hold as they are.
    fn holds(&self, variations: &[Variation]) -> bool {
        let judge = || with(variations, || self.violations());
        match panic::catch_unwind(AssertUnwindSafe(judge)) {
            Ok(violations) => !violations.is_empty(),
            Err(_) => {
                println!("{variations:?}: a panic of {}", self.kept.name());
                variations.len() > 1
            }
        }
    }
}

/// So many numbers are others at a time, at first: few recordings hold any of them.
const AT_A_TIME: usize = 8;

/// Finds recordings that hold what nothing holds yet.
fn look_in_recordings(found: &Found) {
    in_parallel(&kept_recordings(), |kept| {
        let judged = Judged::of(kept);
        let (_, read) = reading(|| judged.violations());
        let mut open = found.open();
        open.retain(|(number, _)| read.contains(number));
        // One may hide what another does: those that are together differ by recording.
        open.sort_by_cached_key(|(number, side)| {
            let mut hasher = DefaultHasher::new();
            (number, kept.name()).hash(&mut hasher);
            (*side, hasher.finish())
        });
        for together in open
            .chunks(AT_A_TIME)
            .filter(|together| judged.holds(together))
        {
            let holds = together
                .iter()
                .filter(|variation| judged.holds(&[**variation]));
            holds.for_each(|variation| found.add(*variation, Holder::Lab(kept.name())));
        }
    });
}

/// Finds tests that hold what no recording does.
fn look_in_tests(found: &Found) {
    in_parallel(&found.open(), |variation| {
        let failing = failing(*variation, &["--skip", "numbers::"]);
        if let Some(first) = failing.into_iter().next() {
            found.add(*variation, Holder::Test(first));
        }
    });
}

/// The tests of this program that fail when a number is another.
fn failing((number, side): Variation, which: &[&str]) -> BTreeSet<String> {
    let mut said = String::new();
    write!(said, "{number} {}", side.name()).expect("text grows");
    let program = env::current_exe().expect("this program has a file");
    let done = Command::new(program)
        .args(which)
        .env(VARIABLE, said)
        .env_remove("WHYWAIT_SWEEP")
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("test "));
    lines
        .filter_map(|line| line.strip_suffix(" ... FAILED"))
        .map(|name| name.trim_end_matches(" - should panic").to_owned())
        .collect()
}
