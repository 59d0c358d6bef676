//! Processes to be found.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use whywait_target::{FoundServers, Named, Unresolved, resolve};

/// A Python program that runs until this is dropped, with the children that it makes.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    /// The words of its first line.
    pub(crate) said: Vec<u32>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Programs end when their input does.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Runs a Python program, until it has written numbers in a line.
pub(crate) fn python(program: &str) -> Running {
    run(Command::new("/usr/bin/python3").args(["-c", program]))
}

pub(crate) fn run(command: &mut Command) -> Running {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is there");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it says something");
    Running {
        input: child.stdin.take(),
        said: line
            .split_whitespace()
            .map(|word| word.parse().expect("a number"))
            .collect(),
        child,
    }
}

#[track_caller]
pub(crate) fn found(named: Named) -> FoundServers {
    resolve(std::slice::from_ref(&named)).unwrap_or_else(|error| panic!("{named:?}: {error:?}"))
}

#[track_caller]
pub(crate) fn fails(named: Named) -> Unresolved {
    resolve(&[named]).expect_err("nothing, or not one thing, is meant")
}

/// Listens on a free port of this address with two processes, and says the port and the worker.
pub(crate) fn prefork(address: &str) -> Running {
    python(&format!(
        "
import os, socket, sys
family = socket.AF_INET6 if ':' in '{address}' else socket.AF_INET
server = socket.socket(family)
server.bind(('{address}', 0))
server.listen()
worker = os.fork()
if worker == 0:
    sys.stdin.read()
    os._exit(0)
print(server.getsockname()[1], worker, flush=True)
sys.stdin.read()
os.waitpid(worker, 0)
"
    ))
}
