use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

/// So many responses of 100 ms, of which the send buffer and the peer's window had so much.
fn server(responses: u64, buffer_ms: u64, window_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..responses {
        let at = 10 + n * 300;
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 100, 1);
        script.tail(&Tail {
            socket: n + 1,
            seq: 1,
            tgid: 1,
            tid: 1,
            local_port: 80,
            written_ns: (at + 100) * MS,
            sent_ns: (at + 100) * MS,
            latency_ns: 100 * MS,
            bytes_out: 100_000,
            reason: whywait_events::TailReason::None,
            buffer_ns: buffer_ms * MS,
            buffer_bytes: 4608,
            window_ns: window_ms * MS,
            ..Tail::default()
        });
    }
    script.ends(3_000);
    script
}

#[test]
fn who_waits_for_its_own_buffer_is_reported() {
    let findings = detect(&Facts::of(&server(5, 84, 0).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        findings[0].title,
        "5 responses of 5 waited for room in the send buffer, for 84 ms (median): it takes 4,608 \
         bytes, and the clients had room for more"
    );
    assert_eq!(findings[0].severity, Severity::Error);
    assert_eq!(findings[0].saving.each_at_most_ns, [84 * MS; 5]);
    assert_eq!(
        findings[0].evidence[0].text,
        "the longest, 84 ms of 100 ms: worker (1) wrote 100,000 bytes, and waited for what was on \
         its way to be acknowledged"
    );
}

#[test]
fn a_client_without_room_is_none() {
    assert_eq!(detect(&Facts::of(&server(5, 20, 80).model())), []);
}

#[test]
fn moments_and_a_few_are_none() {
    assert_eq!(detect(&Facts::of(&server(5, 4, 0).model())), []);
    assert_eq!(detect(&Facts::of(&server(2, 84, 0).model())), []);
}

#[test]
fn less_than_half_of_the_time_is_a_warning() {
    let findings = detect(&Facts::of(&server(5, 40, 0).model()));
    assert_eq!(findings[0].severity, Severity::Warning);
}
