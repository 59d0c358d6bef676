//! Which functions threads were in, by the stacks in recordings of the lab `names`, against what
//! its servers say themselves.
//!
//! Of the kept recordings, or with `NAMES_IN=DIR` in the environment of those that
//! `LABS_RECORDINGS=DIR tests/labs names` left in that folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::path::Path;

use serde::Deserialize;
use whywait_events::recording::Recording;
use whywait_events::{Ns, Sample, StackId, Wait};
use whywait_model::{StackNames, app_frames};
use whywait_testkit::kept_recordings;

/// Of the stacks in a function, so many must say so.
const LEAST_NAMED: f64 = 0.95;
/// So many stacks in a function must have been seen, or there was nothing to be right about.
const LEAST_SEEN: usize = 15;

#[derive(Deserialize)]
struct Truth {
    /// A thread, a function, and from when until when the thread was in it.
    ran: Vec<(u32, String, Ns, Ns)>,
}

/// What the stacks within a function said.
#[derive(Debug, Default)]
struct NamedStacks {
    right: usize,
    nothing: usize,
    /// Not the function, but one that called it: a compiler has inlined it there.
    callers: usize,
    wrong: BTreeMap<String, usize>,
}

impl NamedStacks {
    fn seen(&self) -> usize {
        self.right + self.nothing + self.callers + self.wrong()
    }

    fn wrong(&self) -> usize {
        self.wrong.values().sum()
    }
}

/// What the stacks of a recording said, by the function in which they were.
struct NamedFunctions(BTreeMap<String, NamedStacks>);

impl NamedFunctions {
    fn sum(&self, count: fn(&NamedStacks) -> usize) -> usize {
        self.0.values().map(count).sum()
    }

    fn named(&self) -> f64 {
        self.sum(|said| said.right) as f64 / self.sum(NamedStacks::seen) as f64
    }

    fn holds(&self) -> bool {
        let enough = self.0.values().all(|said| said.seen() >= LEAST_SEEN);
        !self.0.is_empty()
            && enough
            && self.sum(NamedStacks::wrong) == 0
            && self.named() >= LEAST_NAMED
    }
}

impl Display for NamedFunctions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (all, wrong) = (self.sum(NamedStacks::seen), self.sum(NamedStacks::wrong));
        write!(f, "{:.1} % of {all}, {wrong} wrong", 100.0 * self.named())?;
        for (function, said) in &self.0 {
            write!(f, "; {function} {} of {}", said.right, said.seen())?;
            if said.callers > 0 {
                write!(f, " ({} its callers)", said.callers)?;
            }
            if said.wrong() > 0 {
                write!(f, " (wrong: {:?})", said.wrong)?;
            }
        }
        Ok(())
    }
}

#[test]
fn stacks_name_the_functions_that_the_servers_were_in() {
    let mut all = Vec::new();
    if let Some(folder) = std::env::var_os("NAMES_IN") {
        for one in fs::read_dir(folder).expect("NAMES_IN is a folder") {
            let one = one.expect("it can be read").path();
            all.push((one.display().to_string(), said_in(&one)));
        }
    } else {
        let kept = kept_recordings();
        for one in kept.iter().filter(|one| one.lab == "names") {
            all.push((one.name(), said_in(one.unpack().path())));
        }
    }
    for (name, said) in &all {
        println!("{name}: {said}");
    }
    let wrong = all.iter().filter(|(_, said)| !said.holds());
    let wrong: Vec<&str> = wrong.map(|(name, _)| &**name).collect();
    assert!(!all.is_empty() && wrong.is_empty(), "{wrong:?}");
}

/// What the stacks of a recording said.
fn said_in(folder: &Path) -> NamedFunctions {
    let truth = File::open(folder.join("truth.json")).expect("there is a ground truth");
    let truth: Truth = serde_json::from_reader(truth).expect("the server said where it was");
    let recording = Recording::open(&folder.join("recording")).expect("there is a recording");
    let stacks = StackNames::read(&recording.stacks().expect("it has stacks"));
    let mut within = Vec::new();
    let mut hear = |tid: u32, from: Ns, until: Ns, stack: StackId| {
        let inside = |ran: &&(u32, String, Ns, Ns)| ran.0 == tid && ran.2 <= from && until <= ran.3;
        let ran = truth.ran.iter().find(inside);
        within.extend(ran.map(|(_, function, ..)| (function, stack)));
    };
    let mut on_cpu = |sample: &Sample| {
        if sample.user_stack != 0 {
            hear(sample.tid, sample.at_ns, sample.at_ns, sample.user_stack);
        }
    };
    recording.read(None, &mut on_cpu).expect("it has samples");
    let mut asleep = |wait: &Wait| {
        if wait.user_stack != 0 {
            hear(wait.tid, wait.out_ns, wait.woken_ns(), wait.user_stack);
        }
    };
    recording.read(None, &mut asleep).expect("it has waits");
    let own = |stack| stacks.get(stack).into_iter().flat_map(app_frames);
    let mut callers = BTreeSet::new();
    for (function, stack) in &within {
        let outward = own(*stack).skip_while(|label| *label.name != ***function);
        callers.extend(outward.skip(1).map(|label| label.name.clone()));
    }
    let mut functions = BTreeMap::<String, NamedStacks>::new();
    for (function, stack) in within {
        let said = functions.entry(function.clone()).or_default();
        match stacks.app_frame(stack) {
            Some(label) if *label.name == **function => said.right += 1,
            Some(label) if callers.contains(&label.name) => said.callers += 1,
            Some(label) => *said.wrong.entry(label.name.to_string()).or_default() += 1,
            None => said.nothing += 1,
        }
    }
    NamedFunctions(functions)
}
