//! By a port.

use std::net::TcpListener;
use std::process::Command;

use whywait_target::{Named, resolve};

use crate::common::{fails, found, prefork, python, run};

#[test]
fn a_server_that_forks_is_found_by_its_port() {
    for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
        let server = prefork(address);
        let port = server.said[0] as u16;
        let found = found(Named::Port(port));
        assert_eq!(found.pids(), [server.pid()], "{address}");
        let said = found.said.concat();
        assert!(said.starts_with(&format!("port {port} is ")), "{said}");
    }
}

#[test]
fn all_that_share_a_port_are_found() {
    let program = |port: u32| {
        format!(
            "
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(('127.0.0.1', {port}))
server.listen()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"
        )
    };
    let one = python(&program(0));
    let other = python(&program(one.said[0]));
    let mut pids = found(Named::Port(one.said[0] as u16)).pids();
    pids.sort_unstable();
    let mut expected = [one.pid(), other.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
}

#[test]
fn one_that_only_inherited_the_socket_is_below_the_server() {
    let server = python(
        "
import socket, subprocess, sys
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen()
server.set_inheritable(True)
child = subprocess.Popen(['cat'], stdin=subprocess.PIPE, close_fds=False)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
child.stdin.close()
child.wait()
",
    );
    assert_eq!(
        found(Named::Port(server.said[0] as u16)).pids(),
        [server.pid()]
    );
}

#[test]
fn a_port_without_a_listener_gets_those_that_have_one() {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let free = socket.local_addr().expect("an address").port();
    drop(socket);
    let other = prefork("127.0.0.1");
    let error = fails(Named::Port(free));
    assert!(error.message.contains("nobody listens"), "{error:?}");
    // Eight are shown.
    assert!(error.hint.contains("have a listener: :"), "{error:?}");
    drop(other);
}

#[test]
fn a_listener_in_one_other_network_is_meant() {
    let program = "
import socket, sys
server = socket.socket()
server.bind(('0.0.0.0', 47291))
server.listen()
print(1, flush=True)
sys.stdin.read()
";
    let inside = || run(Command::new("unshare").args(["--net", "/usr/bin/python3", "-c", program]));
    let one = inside();
    let of_one = found(Named::Port(47291));
    assert_eq!(of_one.pids(), [one.pid()]);
    assert!(
        of_one
            .said
            .concat()
            .contains("network namespace of its own")
    );
    let other = inside();
    let error = fails(Named::Port(47291));
    for pid in [one.pid(), other.pid()] {
        assert!(error.hint.contains(&format!("-p {pid}")), "{error:?}");
    }
}

#[test]
fn a_socket_of_another_user_needs_privileges() {
    let server = prefork("127.0.0.1");
    let port = server.said[0].to_string();
    // Whoever may not look at the files of others: this test, as nobody.
    if std::env::var_os("WHYWAIT_TEST_PORT").is_none() {
        let own = std::env::current_exe().expect("a path");
        let output = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
            ])
            .arg(own)
            .args([
                "--exact",
                "ports::as_nobody",
                "--nocapture",
                "--include-ignored",
            ])
            .env("WHYWAIT_TEST_PORT", &port)
            .output()
            .expect("setpriv is there");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("run whywait with sudo"), "{output:?}");
    }
}

/// Says what there is to say of a port; of use in another process only.
#[test]
fn as_nobody() {
    let port = std::env::var("WHYWAIT_TEST_PORT").ok();
    if let Some(port) = port.and_then(|port| port.parse().ok()) {
        let error = resolve(&[Named::Port(port)]).expect_err("it cannot be seen");
        println!("{}; {}", error.message, error.hint);
    }
}
