use whywait_events::AcceptQueue as Look;
use whywait_model::script::{Script, ms};

use super::*;

const MS: u64 = 1_000_000;

/// A listener with a limit of 1, looked at in the beginning and in the end, and so many requests.
fn server(requests: u64, dropped: u32, overflows: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..requests {
        script
            .request(n + 1)
            .ready(n + 1)
            .read(n + 1, 1)
            .answered(n + 3, 1);
    }
    for (at_ms, dropped, overflows) in [(0, 0, 0), (1000, dropped, overflows)] {
        script.accept_queue(Look {
            at_ns: ms(at_ms),
            tgid: 1,
            fd: 3,
            listener: 7,
            local_port: 80,
            limit: 1,
            dropped,
            overflows,
            ..Look::default()
        });
    }
    script.ends(1000);
    script
}

#[test]
fn a_full_queue_is_reported() {
    let findings = detect(&Facts::of(&server(20, 12, 12).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        findings[0].title,
        "the accept queue of port 80 was full: 12 packets of clients dropped, which try again \
         after 1 s or later; its limit is 1"
    );
    assert_eq!(findings[0].severity, Severity::Error);
    // Twelve clients that wait for one second. Six that try twice wait for no longer, by its end.
    assert_eq!(findings[0].saving.at_most_ns, 12_000 * MS);
    assert_eq!(findings[0].subject["at_least_ns"], json!(1_200 * MS));
}

#[test]
fn who_accepts_and_what_it_did_instead_is_said() {
    let mut script = server(20, 12, 12);
    script.thread(2, "acceptor");
    for n in 0..4 {
        script
            .request(100 + n)
            .port(80)
            .ready(10 + n * 200)
            .before_accept()
            .read(100 + n * 200, 2)
            .answered(101 + n * 200, 2);
        script.sleeps(2, 0, 20 + n * 200, 90 + n * 200);
    }
    let findings = detect(&Facts::of(&script.model()));
    let evidence: Vec<&str> = findings[0]
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert!(
        evidence[1].contains("thread acceptor (2), which accepts")
            && evidence[1].contains("asleep in clock_nanosleep"),
        "{evidence:#?}"
    );
}

#[test]
fn one_in_many_is_a_warning() {
    let findings = detect(&Facts::of(&server(500, 4, 4).model()));
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn drops_while_no_queue_was_full_are_another_matter() {
    assert_eq!(detect(&Facts::of(&server(20, 12, 0).model())), []);
}

#[test]
fn overflows_of_another_listener_are_not_this_ones() {
    assert_eq!(detect(&Facts::of(&server(20, 0, 12).model())), []);
}
