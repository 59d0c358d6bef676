//! How complete the stacks of a running process are, wherever its threads happen to be. Run on
//! purpose, as root: `SURVEY_PID=1234 SURVEY_ROUNDS=100 cargo test -p whywait-stacks survey
//! -- --ignored --nocapture`. Stops each thread for a moment. Prints the stacks of the last round,
//! and those that are not complete.

use crate::common::*;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use whywait_stacks::{Registers, Unwinder};

#[test]
#[ignore = "looks at a running process"]
fn survey() {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u32>().ok())
    };
    let pid = variable("SURVEY_PID").expect("SURVEY_PID");
    let rounds = variable("SURVEY_ROUNDS").unwrap_or(1);
    let bytes = variable("SURVEY_BYTES").unwrap_or(64 << 10);
    let mut unwinder = Unwinder::new();
    let (mut complete, mut all) = (0, 0);
    for round in 1..=rounds {
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .flatten()
        {
            let tid: i32 = task.file_name().to_str().unwrap().parse().unwrap();
            let thread = nix::unistd::Pid::from_raw(tid);
            if ptrace::seize(thread, ptrace::Options::empty()).is_err() {
                continue;
            }
            ptrace::interrupt(thread).unwrap();
            waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
            let registers = ptrace::getregs(thread).unwrap();
            let stack = copy(pid, registers.rsp, bytes as usize);
            ptrace::detach(thread, None).unwrap();
            let registers = Registers {
                ip: registers.rip,
                sp: registers.rsp,
                bp: registers.rbp,
                lr: 0,
            };
            let unwound = unwinder.unwind(pid, registers, &stack);
            let names = Names::of(&mut unwinder, &unwound);
            if round == rounds || unwound.truncated {
                let list = names.list(&unwound.frames);
                println!("{tid}: {list:#?} truncated {}", unwound.truncated);
            }
            all += 1;
            complete += u32::from(!unwound.truncated);
        }
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    println!("complete: {complete} of {all}; {:?}", losses(&unwinder));
}
