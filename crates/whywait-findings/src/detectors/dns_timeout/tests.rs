use whywait_model::script::{Script, ms};

use super::*;

const MS: u64 = 1_000_000;

/// So many requests that look up a name and are answered after 1.01 s.
fn server(queries: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..queries {
        let at = 10 + n * 2_000;
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 1_010, 1);
        script.dns(&DnsQuery {
            tgid: 1,
            tid: 1,
            sent_ns: ms(at + 5),
            again_ns: Some(ms(at + 1_005)),
            asked: 1,
            server: "10.0.0.53".to_owned(),
            server_port: 53,
            name_length: 11,
            question: 1 + 27 * (n as u16 % 2),
            ..DnsQuery::default()
        });
    }
    script.ends(10 + queries * 2_000);
    script
}

#[test]
fn a_server_that_does_not_answer_is_reported() {
    let findings = detect(&Facts::of(&server(4).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "4 DNS queries to 10.0.0.53:53 had no answer in time: each was waited for 1 s (median)"
    );
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(
        finding.saving.each_at_most_ns,
        [1_000 * MS; 4],
        "{finding:#?}"
    );
    let evidence: Vec<&str> = finding
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert_eq!(
        evidence,
        [
            "4 requests waited for that, 4 s together",
            "4 asked again, 0 answered late, 0 neither until the recording ended",
            "asked for: A of a name of 11 characters (2); AAAA of a name of 11 characters (2)",
            "who asked: worker (1)",
        ]
    );
}

#[test]
fn a_few_are_a_note() {
    assert_eq!(
        detect(&Facts::of(&server(2).model()))[0].severity,
        Severity::Note
    );
}

#[test]
fn who_asks_outside_of_requests_is_a_warning() {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..4 {
        script.dns(&DnsQuery {
            tgid: 1,
            tid: 1,
            sent_ns: n * 2_000 * MS,
            answered_ns: Some((n * 2_000 + 1_500) * MS),
            server: "2001:db8::53".to_owned(),
            server_port: 53,
            ..DnsQuery::default()
        });
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings[0].severity, Severity::Warning);
    assert!(findings[0].title.contains("[2001:db8::53]:53"));
    assert_eq!(findings[0].saving.at_most_ns, 0);
}

/// The recording ends before the answer comes, and before it asks again: it sleeps until then.
#[test]
fn who_sleeps_on_after_it_asked_waits_for_the_answer() {
    let sleeping = |from_ms: u64, to_ms: u64| {
        let mut script = Script::new();
        script.thread(1, "worker");
        for n in 0..4 {
            let at = 10 + n * 2_000;
            script.dns(&DnsQuery {
                tgid: 1,
                tid: 1,
                sent_ns: ms(at),
                asked: 1,
                server: "10.0.0.53".to_owned(),
                server_port: 53,
                ..DnsQuery::default()
            });
            script.sleeps(1, 0, at + from_ms, at + to_ms);
        }
        script.ends(8_000);
        let findings = detect(&Facts::of(&script.model()));
        findings[0].title.split(": ").last().map(str::to_owned)
    };
    let unknown = || Some("how long it was waited for is not known".to_owned());
    let known = Some("each was waited for 1 s (median)".to_owned());
    assert_eq!(sleeping(1, 1_000), known);
    assert_eq!(sleeping(1, 800), unknown(), "an answer may have come");
    assert_eq!(sleeping(20, 1_020), unknown(), "for something else");
}

#[test]
fn of_many_names_some_are_described() {
    let mut script = Script::new();
    for n in 0..6 {
        script.dns(&DnsQuery {
            sent_ns: ms(n),
            answered_ns: Some(ms(n + 1_500)),
            name_length: 10 + n as u16,
            question: 1,
            ..DnsQuery::default()
        });
    }
    let findings = detect(&Facts::of(&script.model()));
    let asked = findings[0]
        .evidence
        .iter()
        .find(|one| one.text.starts_with("asked for"));
    let text = &asked.expect("it is said").text;
    assert!(text.ends_with("; 2 more"), "{text}");
}
