//! By the number of a process.

use whywait_target::Named;

use crate::common::{fails, found, prefork, python};

#[test]
fn a_worker_stands_for_its_server() {
    let server = prefork("127.0.0.1");
    let worker = server.said[1];
    let of_worker = found(Named::Pid(worker));
    assert_eq!(of_worker.pids(), [server.pid()]);
    let said = of_worker.said.concat();
    assert!(
        said.contains(&format!("(pid {worker}) is a worker")),
        "{said}"
    );
    assert!(said.contains("with its child process"), "{said}");
    let of_master = found(Named::Pid(server.pid()));
    assert_eq!(of_master.pids(), [server.pid()]);
    assert!(of_master.said.concat().contains("whole server"));
}

#[test]
fn a_child_without_the_socket_stands_for_itself() {
    let parent = python(
        "
import os, sys
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
os.waitpid(child, 0)
",
    );
    let child = parent.said[0];
    let found = found(Named::Pid(child));
    assert_eq!(found.pids(), [child]);
    assert_eq!(found.said, [""; 0]);
}

#[test]
fn what_is_no_process_is_said() {
    assert!(
        fails(Named::Pid(std::process::id()))
            .message
            .contains("itself")
    );
    assert!(fails(Named::Pid(4_194_304)).hint.contains("pidof"));
    assert!(
        fails(Named::Pid(2))
            .message
            .contains("thread of the kernel")
    );
}

#[test]
fn a_thread_is_named_with_its_process() {
    let threads = python(
        "
import sys, threading
def run():
    print(threading.get_native_id(), flush=True)
    sys.stdin.read()
threading.Thread(target=run).start()
",
    );
    let error = fails(Named::Pid(threads.said[0]));
    assert!(
        error.hint.contains(&format!("-p {}", threads.pid())),
        "{error:?}"
    );
}

#[test]
fn a_number_of_another_pid_namespace_gets_the_one_here() {
    let inside = crate::common::run(std::process::Command::new("unshare").args([
        "--pid",
        "--fork",
        "/usr/bin/python3",
        "-c",
        "
import os, sys
# A number that no process has outside: the kernel gives the next one after this.
open('/proc/sys/kernel/ns_last_pid', 'w').write('4000000')
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
os.waitpid(child, 0)
",
    ]));
    let inner = inside.said[0];
    let error = fails(Named::Pid(inner));
    assert!(error.hint.contains("PID namespace"), "{error:?}");
    assert!(error.hint.contains("-p "), "{error:?}");
}
