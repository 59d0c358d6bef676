//! Streams of HTTP/2 on a connection that the target made are exchanges, each with its own times.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;

use whywait_events::{Exchange, PeerSums, WorkKind};

use crate::common;
use crate::multiplexed::{SETTINGS, hex, recorded_as};
use crate::streams::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PAUSE_NS, RST_STREAM, answers, asks, begins, frame,
};

struct Recorded {
    /// By when they began.
    calls: Vec<Exchange>,
    peer: PeerSums,
    counters: BTreeMap<String, u64>,
}

/// What is recorded of the target's calls in a conversation.
fn recorded(conversation: &str, age: &str) -> Recorded {
    let (_folder, recording) = recorded_as(&[conversation, age, "calls"]);
    let mut last = BTreeMap::new();
    let mut keep = |row: &Exchange| {
        last.insert((row.first_send_ns, row.socket, row.seq), row.clone());
    };
    recording
        .read::<Exchange>(None, &mut keep)
        .expect("exchanges");
    let mut peer = PeerSums::default();
    let mut keep = |row: &PeerSums| peer = row.clone();
    recording.read::<PeerSums>(None, &mut keep).expect("peers");
    let counters = recording.counters().expect("counters").into_iter();
    let counters = counters.filter_map(|(name, value)| {
        let name = name.strip_prefix("call-streams.")?;
        (value > 0).then(|| (name.to_owned(), value))
    });
    Recorded {
        counters: counters.collect(),
        calls: last.into_values().collect(),
        peer,
    }
}

fn counted(recorded: &Recorded) -> Vec<(&str, u64)> {
    let counters = recorded.counters.iter();
    counters.map(|(name, value)| (&**name, *value)).collect()
}

fn took_ns(call: &Exchange) -> u64 {
    call.last_read_ns.expect("it was replied to") - call.first_send_ns
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

#[test]
fn calls_at_the_same_time_have_times_of_their_own() {
    let Some(_turn) = common::together() else {
        return;
    };
    // The second one is sent later, and is replied to first. Both replies are read late.
    let conversation = format!(
        "w {}\np\nw {}\nC {}\np\nC {}\np\nr",
        hex(&[begins(), asks(1)].concat()),
        hex(&asks(3)),
        hex(&[SETTINGS, &answers(3)].concat()),
        hex(&answers(1)),
    );
    let recorded = recorded(&conversation, "new");
    assert_eq!(counted(&recorded), [("begun", 2), ("connections", 1)]);
    let [first, second] = &recorded.calls[..] else {
        panic!("expected two rows, got {:?}", recorded.calls);
    };
    assert!(took_ns(first) >= 3 * PAUSE_NS, "{first:?}");
    let apart_ns = second.first_send_ns - first.first_send_ns;
    assert!(apart_ns >= PAUSE_NS, "{apart_ns} ns between both");
    let came_ns = |call: &Exchange| call.arrived_ns.expect("it is known when its reply came");
    assert!(
        came_ns(first) >= came_ns(second) + PAUSE_NS,
        "the reply to the second one came first: {:?}",
        recorded.calls
    );
    assert_eq!(first.last_read_ns, second.last_read_ns);
    assert_ne!(first.socket, second.socket);
    for call in [first, second] {
        assert_eq!(call.kind, WorkKind::Http2);
        assert_eq!(
            (call.bytes_out, call.bytes_in),
            (len(&asks(1)), len(&answers(1)))
        );
    }
    let peer = &recorded.peer;
    assert_eq!((peer.count, peer.unanswered, peer.connections), (2, 0, 1));
    assert_eq!(
        (peer.most_in_flight, peer.most_open),
        (Some(2), Some(1)),
        "two calls at a time on one connection"
    );
    assert_eq!(peer.total_ns, took_ns(first) + took_ns(second));
}

#[test]
fn frames_of_replies_may_lie_in_pieces() {
    let Some(_turn) = common::together() else {
        return;
    };
    let replies = [SETTINGS, &answers(3), &answers(1)].concat();
    for piece in [1, 5, 8, 10, 21] {
        let reads = replies.len().div_ceil(piece);
        let conversation = format!(
            "w {}\nC {}\n{}p",
            hex(&[begins(), asks(1), asks(3)].concat()),
            hex(&replies),
            format!("r {piece}\n").repeat(reads),
        );
        let recorded = recorded(&conversation, "new");
        assert_eq!(
            counted(&recorded),
            [("begun", 2), ("connections", 1)],
            "in pieces of {piece} bytes"
        );
        let peer = &recorded.peer;
        assert_eq!((peer.count, peer.unanswered), (2, 0), "{piece} bytes each");
        assert_eq!(peer.bytes_in, 2 * len(&answers(1)), "{piece} bytes each");
    }
}

#[test]
fn a_connection_that_was_there_is_known_by_what_is_sent() {
    let Some(_turn) = common::together() else {
        return;
    };
    // Of stream 5 it is read how it ends, and was not seen how it began.
    let conversation = format!(
        "C {}\nr\nw {}\np\nC {}\nr",
        hex(&answers(5)),
        hex(&asks(7)),
        hex(&[answers(3), answers(7)].concat()),
    );
    let recorded = recorded(&conversation, "old");
    assert_eq!(counted(&recorded), [("begun", 1), ("connections", 1)]);
    let [call] = &recorded.calls[..] else {
        panic!("expected one row, got {:?}", recorded.calls);
    };
    assert!(took_ns(call) >= PAUSE_NS, "{call:?}");
    assert_eq!(call.bytes_in, len(&answers(7)));
}

/// As gRPC's C core does, which has each head and what it is the head of apart.
#[test]
fn a_connection_that_was_there_may_be_written_to_in_pieces() {
    let Some(_turn) = common::together() else {
        return;
    };
    let question = frame(DATA, END_STREAM, 1, b"question");
    let headers = frame(HEADERS, END_HEADERS, 1, b"\x82\x86\x84");
    let pieces = [&headers[..9], &headers[9..], &question[..9], &question[9..]];
    let conversation = format!(
        "v {}\np\nC {}\nr",
        pieces.map(hex).join(","),
        hex(&answers(1)),
    );
    let recorded = recorded(&conversation, "old");
    assert_eq!(counted(&recorded), [("begun", 1), ("connections", 1)]);
    let asked = len(&headers) + len(&question);
    assert_eq!((recorded.peer.count, recorded.peer.bytes_out), (1, asked));
}

#[test]
fn what_only_begins_as_a_frame_is_a_call_like_others() {
    let Some(_turn) = common::together() else {
        return;
    };
    let other = [&asks(1)[..], b"and more"].concat();
    let conversation = format!(
        "w {}\np\nC {}\nr\nw {}\np\nC 31\nr",
        hex(&other),
        hex(b"reply"),
        hex(b"question")
    );
    let recorded = recorded(&conversation, "old");
    assert_eq!(counted(&recorded), []);
    let last = recorded.calls.last().expect("a call");
    assert_eq!(last.kind, WorkKind::Stream);
    assert_eq!((last.bytes_out, last.bytes_in), (8, 1), "{last:?}");
}

#[test]
fn what_is_given_up_has_no_reply() {
    let Some(_turn) = common::together() else {
        return;
    };
    let conversation = format!(
        "w {}\np\nw {}\np",
        hex(&[begins(), asks(1)].concat()),
        hex(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
    );
    let recorded = recorded(&conversation, "new");
    let [call] = &recorded.calls[..] else {
        panic!("expected one row, got {:?}", recorded.calls);
    };
    assert_eq!(call.first_read_ns, None);
    let waited_ns = call.gone_ns.expect("it was given up") - call.first_send_ns;
    assert!(waited_ns >= PAUSE_NS, "{call:?}");
    assert_eq!((recorded.peer.count, recorded.peer.unanswered), (0, 1));
}

#[test]
fn a_stream_of_messages_is_a_call_until_the_first() {
    let Some(_turn) = common::together() else {
        return;
    };
    let first = [
        frame(HEADERS, END_HEADERS, 1, b"\x88"),
        frame(DATA, 0, 1, b"one"),
    ]
    .concat();
    let conversation = format!(
        "w {}\nC {}\nr\np\nC {}\nr\np\nC {}\nr",
        hex(&[begins(), asks(1)].concat()),
        hex(&first),
        hex(&frame(DATA, 0, 1, b"two")),
        hex(&frame(DATA, END_STREAM, 1, b"three")),
    );
    let recorded = recorded(&conversation, "new");
    assert_eq!(recorded.peer.count, 1);
    assert_eq!(
        recorded.peer.total_ns, recorded.peer.first_ns,
        "its reply is the first message: {:?}",
        recorded.peer
    );
    assert_eq!(recorded.peer.bytes_in, len(&first));
}

#[test]
fn what_is_no_frame_is_counted() {
    let Some(_turn) = common::together() else {
        return;
    };
    let conversation = format!(
        "w {}\nC {}\nr\nC {}\nr\np",
        hex(&[begins(), asks(1), asks(3)].concat()),
        hex(&answers(1)),
        hex(b"what comes now is no frame of any kind"),
    );
    let recorded = recorded(&conversation, "new");
    assert_eq!(
        counted(&recorded),
        [
            ("begun", 2),
            ("connections", 1),
            ("connections-lost", 1),
            ("unfollowed", 1)
        ]
    );
    assert_eq!(recorded.peer.count, 1);
}
