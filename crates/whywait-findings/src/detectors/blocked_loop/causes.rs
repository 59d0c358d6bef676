//! Why a loop was away: absences by the function of the application that a person can change.
//!
//! What a sampling clock finds innermost differs from tick to tick, and from one absence to the
//! next: `dictNext` and `stringmatchlen` of one `keysCommand`. So an absence is in the innermost
//! function in which nearly all of its samples are, and absences whose functions call each other
//! are for the same reason. A stack of an interpreter that ends before the program's functions says
//! only that the program was in such a call: it counts to the function that is known to make it.
//! So do sleeps without a user stack. So does a little time of compiled code that nothing names,
//! where a function with a name is called by such code as well.

use whywait_events::{Sample, StackId};
use whywait_model::{Model, Thread, app_frames};

use super::Away;
use crate::numbers::{AWAY_IN_SAMPLES, AWAY_OF_ITS_OWN, Share};
use crate::shared::intervals::sum;
use crate::shared::runtime;
use crate::shared::slow_paths;

/// Absences for one reason.
#[derive(Debug)]
pub(super) struct AwayReason {
    /// The function that the loop was in, or what it did.
    pub(super) function: String,
    /// In order.
    pub(super) aways: Vec<Away>,
}

impl AwayReason {
    /// How long it was away so.
    pub(super) fn ns(&self) -> u64 {
        sum(self.aways.iter().map(|away| away.away_ns))
    }

    pub(super) fn longest(&self) -> Option<&Away> {
        self.aways.iter().max_by_key(|away| away.away_ns)
    }

    /// The longest of those whose stack has the function, where there is one: of some sleeps no
    /// function could be read.
    pub(super) fn telling(&self, model: &Model) -> Option<&Away> {
        let has = |away: &&Away| {
            let stack = model.stacks.get(away.stack);
            stack.is_some_and(|stack| app_frames(stack).any(|its| *its.name == *self.function))
        };
        let telling = self.aways.iter().filter(has);
        telling
            .max_by_key(|away| away.away_ns)
            .or_else(|| self.longest())
    }

    fn take(&mut self, mut other: AwayReason) {
        self.aways.append(&mut other.aways);
        self.aways.sort_by_key(|away| away.from_ns);
    }
}

/// The reasons for these absences of a loop.
pub(super) fn of(model: &Model, thread: &Thread, aways: Vec<Away>) -> Vec<AwayReason> {
    let mut causes: Vec<AwayReason> = Vec::new();
    for mut away in aways {
        let function = function(model, thread, &mut away);
        match causes.iter_mut().find(|cause| cause.function == function) {
            Some(cause) => cause.aways.push(away),
            None => causes.push(AwayReason {
                function,
                aways: vec![away],
            }),
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns()));
    let causes = callers_with_callees(model, causes);
    named_with_unnamed(model, causes)
}

/// What kept the loop, and the stack that shows it best.
fn function(model: &Model, thread: &Thread, away: &mut Away) -> String {
    let samples = if away.on_cpu() {
        thread.samples_within(away.from_ns, away.to_ns)
    } else {
        &[]
    };
    if let Some((stack, function)) = most_sampled(model, samples) {
        away.stack = stack;
        return lasting(model, samples, &function).unwrap_or(function);
    }
    slow_paths::function(model, away.stack).unwrap_or_else(|| away.doing.clone())
}

/// What most of the samples are in, with the first stack of them.
fn most_sampled(model: &Model, samples: &[Sample]) -> Option<(StackId, String)> {
    let mut functions: Vec<(String, u64, StackId)> = Vec::new();
    for sample in samples {
        let Some(function) = slow_paths::function(model, sample.user_stack) else {
            continue;
        };
        match functions.iter_mut().find(|(known, ..)| *known == function) {
            Some((_, weight, _)) => *weight += sample.weight(),
            None => functions.push((function, sample.weight(), sample.user_stack)),
        }
    }
    // The first of equals, to be the same from run to run.
    let most = functions.iter().map(|(_, weight, _)| *weight).max()?;
    functions
        .into_iter()
        .find(|(_, weight, _)| *weight == most)
        .map(|(function, _, stack)| (stack, function))
}

/// The innermost function of the application from `innermost` outwards that nearly all samples are
/// in; `None`: there is none.
fn lasting(model: &Model, samples: &[Sample], innermost: &str) -> Option<String> {
    let stacks = || {
        samples
            .iter()
            .filter_map(|sample| Some((model.stacks.get(sample.user_stack)?, sample.weight())))
    };
    let all = sum(stacks().map(|(_, weight)| weight));
    let telling = stacks().find_map(|(stack, _)| {
        let innermost = app_frames(stack).next()?.name.as_ref() == innermost;
        innermost.then_some(stack)
    })?;
    app_frames(telling)
        .find(|frame| {
            let has =
                stacks().filter(|(stack, _)| app_frames(stack).any(|its| its.name == frame.name));
            Share::new(sum(has.map(|(_, weight)| weight)), all).is_at_least(*AWAY_IN_SAMPLES)
        })
        .map(|frame| frame.name.to_string())
}

/// Takes causes together of which one's function calls the other's.
fn callers_with_callees(model: &Model, causes: Vec<AwayReason>) -> Vec<AwayReason> {
    let mut together: Vec<AwayReason> = Vec::new();
    for cause in causes {
        // The expensive ones come first.
        let related = together.iter().position(|known| {
            calls(model, &known.function, &cause) || calls(model, &cause.function, known)
        });
        let Some(known) = related.map(|at| &mut together[at]) else {
            together.push(cause);
            continue;
        };
        let outer = calls(model, &cause.function, known);
        if outer && Share::new(cause.ns(), known.ns()).is_at_least(*AWAY_OF_ITS_OWN) {
            known.function.clone_from(&cause.function);
        }
        known.take(cause);
    }
    together
}

/// Whether a function of the application called what another cause is.
fn calls(model: &Model, function: &str, other: &AwayReason) -> bool {
    let stack = other
        .longest()
        .and_then(|away| model.stacks.get(away.stack))
        .filter(|stack| runtime::own_account(stack).is_none());
    stack.is_some_and(|stack| {
        let callers = app_frames(stack).skip_while(|frame| *frame.name != *other.function);
        callers.skip(1).any(|frame| *frame.name == *function)
    })
}

/// Adds absences of which only the kernel's functions are known, or the interpreter's, to the most
/// expensive cause that did the same and has a name.
fn named_with_unnamed(model: &Model, causes: Vec<AwayReason>) -> Vec<AwayReason> {
    let stack_of = |cause: &AwayReason| {
        let longest = cause.longest()?;
        model.stacks.get(longest.stack)
    };
    let is_unnamed = |cause: &AwayReason| {
        let of_python = stack_of(cause).is_some_and(|stack| {
            runtime::own_account(stack).is_none() && runtime::in_python_somewhere(stack)
        });
        let of_kernel = cause.aways.iter().all(|away| away.in_kernel_only);
        of_python || of_kernel || cause.function == slow_paths::COMPILED
    };
    let little_of = |cause: &AwayReason, known: &AwayReason| {
        cause.function != slow_paths::COMPILED
            || (Share::new(cause.ns(), known.ns()).is_below(*AWAY_OF_ITS_OWN)
                && stack_of(known).is_some_and(slow_paths::in_compiled_code))
    };
    let (unnamed, mut named): (Vec<AwayReason>, Vec<AwayReason>) =
        causes.into_iter().partition(is_unnamed);
    let mut alone = Vec::new();
    for cause in unnamed {
        let doing = cause.longest().map(|away| away.doing.clone());
        let same = named
            .iter_mut()
            .filter(|known| little_of(&cause, known))
            .find(|known| known.longest().map(|away| &away.doing) == doing.as_ref());
        match same {
            Some(known) => known.take(cause),
            None => alone.push(cause),
        }
    }
    named.append(&mut alone);
    named
}
