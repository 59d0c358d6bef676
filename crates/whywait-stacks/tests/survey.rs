//! How complete the stacks of a running process are. Run on purpose, as root:
//! `SURVEY_PID=1234 cargo test -p whywait-stacks --test survey -- --ignored --nocapture`.
//! Interrupts each thread for a moment, to read its frame pointer.

mod common;

use common::*;
use whywait_stacks::{Registers, Unwinder};

#[test]
#[ignore = "looks at a running process"]
fn survey() {
    let pid: u32 = std::env::var("SURVEY_PID")
        .expect("SURVEY_PID")
        .parse()
        .unwrap();
    let mut unwinder = Unwinder::new();
    let (mut complete, mut all) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
    {
        let tid: u32 = task.file_name().to_str().unwrap().parse().unwrap();
        let Some((_, sp, ip)) = blocked(pid, tid) else {
            continue;
        };
        let Some(bp) = frame_pointer(tid, sp) else {
            continue;
        };
        let stack = copy(pid, sp, 8 << 10);
        let unwound = unwinder.unwind_sleeping(pid, tid, Registers { ip, sp, bp }, &stack);
        let names = Names::of(&mut unwinder, &unwound);
        println!(
            "{tid}: {:#?} truncated {}",
            names.list(&unwound.frames),
            unwound.truncated
        );
        all += 1;
        complete += u32::from(!unwound.truncated);
    }
    println!("complete: {complete} of {all}; {:?}", losses(&unwinder));
}
