use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

/// A hundred requests of 1 ms, of which so many lost a packet and were so late.
fn server(lossy: u64, late_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..100 {
        let at = 10 + n * 300;
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 1, 1);
        if n >= lossy {
            continue;
        }
        script.tail(&Tail {
            socket: n + 1,
            seq: 1,
            tgid: 1,
            tid: 1,
            local_port: 80,
            written_ns: (at + 1) * MS,
            sent_ns: (at + 1 + late_ms) * MS,
            latency_ns: MS,
            bytes_out: 130,
            reason: TailReason::Lost,
            retransmits: 1,
            timeouts: u32::from(late_ms >= 200),
            peer: "10.0.0.3".to_owned(),
            ..Tail::default()
        });
    }
    script.ends(40_000);
    script
}

#[test]
fn what_was_lost_is_reported() {
    let findings = detect(&Facts::of(&server(5, 205).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "packets of 5 responses of 100 were lost and sent again: 5 of their ends were late, by \
         205 ms (median)"
    );
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.saving.each_at_most_ns, [205 * MS; 5]);
    let evidence: Vec<&str> = finding
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert_eq!(
        evidence,
        [
            "the server took 1 ms for such a request (median); its client waited 206 ms: 99.5 % \
             of that for what was lost",
            "5 packets were sent again: 5 because nothing came back for long (a timeout, or a \
             tail loss probe); 0 sooner, because what came back showed the loss",
            "the client: 10.0.0.3 (5 responses)",
        ]
    );
}

#[test]
fn a_few_may_be_chance() {
    assert_eq!(detect(&Facts::of(&server(2, 205).model())), []);
}

#[test]
fn what_nobody_waited_for_is_a_note() {
    let findings = detect(&Facts::of(&server(5, 0).model()));
    assert_eq!(findings[0].severity, Severity::Note);
    assert_eq!(findings[0].saving.at_most_ns, 0);
}

/// A thousand more had no loss.
#[test]
fn a_few_of_many_are_a_warning() {
    let mut script = server(5, 20_500);
    for n in 100..1_100 {
        let at = 10 + n * 30;
        let request = script.request(n + 1).ready(at).read(at, 1);
        request.answered(at + 1, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn of_very_many_clients_some_are_named() {
    let mut script = server(0, 0);
    for n in 0..20 {
        script.tail(&Tail {
            socket: n + 1,
            local_port: 80,
            reason: TailReason::Lost,
            retransmits: 1,
            peer: format!("10.0.0.{n}"),
            ..Tail::default()
        });
    }
    let findings = detect(&Facts::of(&script.model()));
    let peers = findings[0].subject["peers"].as_array();
    assert_eq!(peers.map(Vec::len), Some(16));
}

#[test]
fn what_was_late_by_a_moment_is_a_note() {
    let findings = detect(&Facts::of(&server(5, 4).model()));
    assert_eq!(findings[0].severity, Severity::Note);
}
