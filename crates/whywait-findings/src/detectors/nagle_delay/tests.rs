use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

/// So many responses of 1 ms, of which the last bytes were held back for so long.
fn server(responses: u64, held_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..responses {
        let at = 10 + n * 100;
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 1, 1);
        script.tail(&Tail {
            socket: n + 1,
            seq: 1,
            tgid: 1,
            tid: 1,
            local_port: 80,
            written_ns: (at + 1) * MS,
            sent_ns: (at + 1 + held_ms) * MS,
            latency_ns: MS,
            bytes_out: 130,
            bytes: 10,
            ..Tail::default()
        });
    }
    script.ends(10 + responses * 100);
    script
}

#[test]
fn clients_that_wait_for_their_own_acknowledgement_are_reported() {
    let findings = detect(&Facts::of(&server(5, 40).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "the end of 5 responses of 5 was held back for 40 ms (median), for the client's \
         acknowledgement: written in pieces, with Nagle's algorithm on"
    );
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.saving.each_at_most_ns, [40 * MS; 5]);
    assert_eq!(
        finding.evidence[0].text,
        "the server took 1 ms for such a request (median); its client waited 41 ms: 98 % of \
         that for the acknowledgement"
    );
    assert_eq!(
        finding.evidence[1].text,
        "the longest, 40 ms: worker (1) wrote the last 10 bytes of 130 and they were not sent, \
         because the 120 before were not acknowledged"
    );
}

#[test]
fn who_acknowledges_at_once_is_not_waited_for() {
    assert_eq!(detect(&Facts::of(&server(50, 2).model())), []);
}

#[test]
fn a_few_may_be_chance() {
    assert_eq!(detect(&Facts::of(&server(2, 40).model())), []);
}

#[test]
fn a_server_that_takes_longer_itself_gets_a_warning() {
    let findings = detect(&Facts::of(&server(5, 10).model()));
    assert_eq!(findings[0].severity, Severity::Warning);
}
