use whywait_events::Push;
use whywait_model::script::{Script, ms};

use super::*;

/// So many messages to five connections, of which three wait so long for another one.
fn server(messages: u64, held_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "loop");
    for n in 0..messages {
        let at_ms = 100 + 1_000 * n;
        script.push(&Push {
            tgid: 100,
            tid: 1,
            local_port: 8080,
            first_ns: ms(at_ms),
            last_ns: ms(at_ms + held_ms + n),
            connections: 5,
            held_ns: 1_000_000 * (held_ms + n),
            after: 3,
            holder: 7,
            peer: "192.0.2.7".to_owned(),
            peer_port: 4000,
        });
    }
    script.ends(10_000);
    script
}

#[test]
fn a_client_that_holds_others_up_is_named() {
    let findings = detect(&Facts::of(&server(4, 500).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        findings[0].title,
        "3 connections waited for messages, up to 503 ms at least, until one client that reads \
         slowly had room for its own: 192.0.2.7:4000"
    );
    assert_eq!(findings[0].subject["held_ns"], 2_006_000_000_u64);
}

#[test]
fn a_moment_and_a_few_times_are_none() {
    for (messages, held_ms) in [(2, 300), (4, 20)] {
        let findings = detect(&Facts::of(&server(messages, held_ms).model()));
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

#[test]
fn once_is_enough_where_it_is_much_of_the_time() {
    let findings = detect(&Facts::of(&server(1, 2_000).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
}

#[test]
fn a_round_that_nobody_held_up_is_none() {
    let mut script = server(0, 0);
    for n in 0..5 {
        script.push(&Push {
            first_ns: ms(100 * n),
            last_ns: ms(100 * n + 90),
            connections: 1_000,
            ..Push::default()
        });
    }
    assert!(detect(&Facts::of(&script.model())).is_empty());
}
