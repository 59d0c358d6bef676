//! Streams of HTTP/2 (gRPC): how many of the requests are some, and what became of the others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;

/// Streams of HTTP/2 in clear text, on connections that the target accepted. They are among the
/// requests as far as they were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Http2Streams {
    /// On how many connections.
    pub connections: u64,
    /// How many clients began.
    pub begun: u64,
    /// How many were answered: to their end, or with a first message.
    pub answered: u64,
    /// How many of these went on after their first message, as a server's stream of messages does.
    /// Their latency is that of the first one.
    pub went_on: u64,
    /// How long those lasted on average, nanoseconds; up to the recording's end where they go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasted_ns: Option<u64>,
    /// How many were given up by their client, or with its connection, before they were answered.
    pub reset: u64,
    /// How many are open when the recording ends.
    pub open: u64,
    /// Of how many it is not known when they came: they may have come later than it seems.
    pub untimed: u64,
    /// Of how many the end is not known, as frames of their connection could not be read.
    pub unfollowed: u64,
    /// How many connections were given up for that.
    pub connections_lost: u64,
    /// How many connections were not followed as there were too many.
    pub connections_not_followed: u64,
}

impl Http2Streams {
    fn of(counters: &BTreeMap<String, u64>) -> Option<Self> {
        let of = |name: &str| {
            let counter = counters.get(&format!("streams.{name}"));
            counter.copied().unwrap_or(0)
        };
        let went_on = of("went-on");
        let streams = Self {
            connections: of("connections"),
            begun: of("begun"),
            answered: of("answered"),
            went_on,
            lasted_ns: of("went-on-ns").checked_div(went_on),
            reset: of("reset"),
            open: of("open"),
            untimed: of("untimed"),
            unfollowed: of("unfollowed"),
            connections_lost: of("connections-lost"),
            connections_not_followed: of("connections-not-followed"),
        };
        (streams != Self::default()).then_some(streams)
    }
}

impl Model {
    /// The streams of HTTP/2; `None`: there were none.
    pub(crate) fn streams(&self) -> Option<Http2Streams> {
        Http2Streams::of(&self.counters)
    }
}

#[cfg(test)]
mod tests {
    use crate::script::Script;

    #[test]
    fn those_that_go_on_last_for_their_mean() {
        assert_eq!(Script::new().model().requests_summary().streams, None);
        let mut script = Script::new();
        for (name, value) in [("answered", 5), ("went-on", 2), ("went-on-ns", 3_000)] {
            script.counter(&format!("streams.{name}"), value);
        }
        let streams = script.model().requests_summary().streams.expect("some");
        assert_eq!((streams.answered, streams.went_on), (5, 2));
        assert_eq!(streams.lasted_ns, Some(1_500));
    }
}
