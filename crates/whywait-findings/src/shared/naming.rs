//! How a function whose name is hidden would have it.

use whywait_events::StackId;
use whywait_model::{Hidden, Model, hidden};

use super::runtime::{self, Runtime};

/// What to do to see the function in which thread `tid` was; `None`: it shows, or there is no way.
pub(crate) fn of(model: &Model, tid: u32, stack: StackId) -> Option<&'static str> {
    let stack = model.stacks.get(stack)?;
    if runtime::own_account(stack).is_some() {
        return None;
    }
    let of_process = || {
        let thread = model.threads.get(&tid);
        thread.map_or(Runtime::Unknown, |thread| {
            runtime::of_process(model, thread.tgid)
        })
    };
    match hidden(stack)? {
        Hidden::Inlined => Some(
            "the compiler has inlined the function itself: build with line tables to see its name \
             (debug = 1 in Cargo's profile, -g1 for C and C++)",
        ),
        Hidden::Python => Some(
            "the Python function was not read in time: record for longer, or start python3 (3.12 \
             and newer) with -X perf to see its name",
        ),
        Hidden::Compiled => Some(match of_process() {
            Runtime::Node => "start node with --perf-basic-prof to see the function's name",
            Runtime::Java => {
                "start java with -XX:+PreserveFramePointer and, when it has run for a while, have \
                 it write down its functions (jcmd PID Compiler.perfmap) to see the function's name"
            }
            _ => "have its runtime write /tmp/perf-PID.map to see the function's name",
        }),
    }
}
