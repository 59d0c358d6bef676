//! By a name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use whywait_target::Named;

use crate::common::{fails, found, python};

/// A program of that name, with one child of the same.
fn named(name: &str) -> String {
    format!(
        "
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, {name}, 0, 0, 0)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
os.waitpid(child, 0)
"
    )
}

#[test]
fn parents_stand_for_children_of_their_name() {
    let one = python(&named("b'whywait-t-one'"));
    let name = || Named::Name("whywait-t-one".into());
    assert_eq!(found(name()).pids(), [one.pid()]);
    let other = python(&named("b'whywait-t-one'"));
    let error = fails(name());
    for pid in [one.pid(), other.pid()] {
        assert!(error.hint.contains(&format!("-p {pid}")), "{error:?}");
    }
    assert!(error.message.starts_with("2 servers"), "{error:?}");
    let error = fails(Named::Name("whywait-t-on".into()));
    assert!(
        error.hint.contains(&format!("-p {}", one.pid())),
        "{error:?}"
    );
}

#[test]
fn hostile_names_are_compared_as_they_are_and_shown_escaped() {
    let one = python(&named(r"b'\x1b[2J)\n\xff 1 R'"));
    let name = OsString::from_vec(b"\x1b[2J)\n\xff 1 R".to_vec());
    let found = found(Named::Name(name));
    assert_eq!(found.pids(), [one.pid()]);
    let said = found.said.concat();
    assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
    assert!(said.contains(r"\x1b[2J"), "{said:?}");
    // Its parent is found behind such a name.
    let child = one.said[0];
    assert!(whywait_target::with_descendants(&[one.pid()]).contains(&child));
    let error = fails(Named::Name("\x1b[31m".into()));
    assert!(!error.message.contains('\x1b'), "{error:?}");
}

#[test]
fn a_name_that_nobody_has_is_said() {
    let error = fails(Named::Name("no such program".into()));
    assert!(error.message.contains("no process is called"), "{error:?}");
    assert!(
        fails(Named::Name("kthreadd".into()))
            .message
            .contains("no process")
    );
}
