//! How requests come to wait: who waits, for what, who has it, and what that one does meanwhile.
//! One shape for all kinds of findings, from their declarations, subjects and causes.

use serde_json::{Map, Value};
use whywait_words::counted;

use crate::declaration::Has;
use crate::finding::{Cause, Finding};

/// The links, in words. May contain hostile names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Who waits: `requests on port 8080`.
    pub who: String,
    /// For what: `for one mutex`.
    pub what: String,
    /// Who has it: `saver (1240)`.
    pub has: String,
    /// What that one does: `asleep in fsync`; empty: not known. In which function its stack says.
    pub does: String,
}

impl Chain {
    /// Those that are known, in this order.
    pub fn links(self) -> impl Iterator<Item = String> {
        [self.who, self.what, self.has, self.does]
            .into_iter()
            .filter(|link| !link.is_empty())
    }
}

impl Finding {
    /// How its requests come to wait; `None` if nobody waits in it, and where neither who has what
    /// they wait for nor what that one does is known.
    pub fn chain(&self) -> Option<Chain> {
        let waits = self.code.waits()?;
        let (has, does) = match (&waits.has, &self.cause) {
            (Has::Cause | Has::CauseOr(_), Some(cause)) => {
                (who(cause, &self.subject), cause.doing.clone())
            }
            (Has::Said(has) | Has::CauseOr(has), _) => (filled(has, &self.subject)?, String::new()),
            (Has::Cause, None) => return None,
        };
        let port = self.subject.get("port").and_then(Value::as_u64);
        let on = port.map_or_else(String::new, |port| format!(" on port {port}"));
        Some(Chain {
            who: format!("{}{on}", waits.who),
            what: filled(waits.what, &self.subject)?,
            has,
            does,
        })
    }
}

/// A text with what the subject has under the names in braces; `None` if it lacks one. The last
/// word may be lacking: who a peer is, besides its address.
fn filled(text: &str, subject: &Map<String, Value>) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let Some((before, rest)) = word.split_once('{') else {
            words.push(word.to_owned());
            continue;
        };
        let (key, after) = rest.split_once('}')?;
        let value = match subject.get(key) {
            Some(Value::String(value)) if key == "peer_process" => format!("({value})"),
            Some(Value::String(value)) if key == "holder" => holder(value).to_owned(),
            Some(Value::String(value)) => value.clone(),
            Some(value @ Value::Number(_)) => value.to_string(),
            _ if key == "peer_process" => continue,
            _ => return None,
        };
        words.push(format!("{before}{value}{after}"));
    }
    Some(words.join(" "))
}

/// Who had the CPUs.
fn holder(kind: &str) -> &str {
    match kind {
        "own-threads" => "other threads of the program",
        "processes" => "other processes",
        "kernel-threads" => "threads of the kernel",
        "quota" => "the limit of their cgroup",
        "host" => "the virtual machine's host",
        other => other,
    }
}

/// The thread that is the cause, and how many others the subject has besides.
fn who(cause: &Cause, subject: &Map<String, Value>) -> String {
    let who = format!("{} ({})", cause.thread, cause.tid);
    let alike = ["workers", "threads"].into_iter().find_map(|key| {
        let tids = subject.get(key)?.as_array()?;
        tids.contains(&Value::from(cause.tid)).then_some(tids.len())
    });
    match alike {
        Some(all @ 2..) => format!("{who} and {}", counted(all - 1, "other")),
        _ => who,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::declaration::Code;
    use crate::finding::{Confidence, Saving, Severity};

    fn finding(code: &str, subject: Value, cause: Option<Cause>) -> Finding {
        Finding {
            code: Code::from_name(code).expect("there is such a code"),
            severity: Severity::Error,
            confidence: Confidence::High,
            title: String::new(),
            subject: subject.as_object().cloned().unwrap_or_default(),
            saving: Saving::none(),
            evidence: Vec::new(),
            cause,
            fix: String::new(),
            same_waits: Vec::new(),
            explains: Vec::new(),
            not_by_all_fixes_ns: 0,
            as_ever: None,
            requests: BTreeMap::new(),
        }
    }

    fn links(finding: &Finding) -> Vec<String> {
        let chain = finding.chain();
        chain.map_or_else(Vec::new, |chain| chain.links().collect())
    }

    #[test]
    fn a_lock_leads_to_its_holder_and_what_that_does() {
        let cause = Cause {
            tid: 7,
            thread: "saver".to_owned(),
            doing: "asleep in fsync".to_owned(),
            stack: vec!["fsync".to_owned(), "app::flush".to_owned()],
            own: vec![false, true],
            spells: None,
            naming: None,
        };
        let subject = json!({ "lock": "mutex", "port": 8080 });
        assert_eq!(
            links(&finding("lock-contention", subject, Some(cause))),
            [
                "requests on port 8080",
                "for one mutex",
                "saver (7)",
                "asleep in fsync"
            ]
        );
    }

    #[test]
    fn workers_that_are_in_the_same_are_counted() {
        let cause = Cause {
            tid: 7,
            thread: "worker".to_owned(),
            doing: "asleep in poll".to_owned(),
            stack: Vec::new(),
            own: Vec::new(),
            spells: None,
            naming: None,
        };
        let has = |workers: Value| {
            let subject = json!({ "workers": workers });
            links(&finding("workers-exhausted", subject, Some(cause.clone())))[2].clone()
        };
        assert_eq!(has(json!([6, 7, 8])), "worker (7) and 2 others");
        assert_eq!(has(json!([7])), "worker (7)");
        assert_eq!(has(json!([6, 8])), "worker (7)");
    }

    #[test]
    fn a_peer_has_the_reply() {
        let subject = json!({ "peer": "10.0.0.7:5432" });
        let chain = links(&finding("slow-upstream", subject, None));
        assert_eq!(chain, ["requests", "for replies", "10.0.0.7:5432"]);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert!(links(&finding("slow-upstream", json!({}), None)).is_empty());
        assert!(links(&finding("lock-contention", json!({}), None)).is_empty());
        assert!(links(&finding("futile-wakeups", json!({}), None)).is_empty());
    }
}
