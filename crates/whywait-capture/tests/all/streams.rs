//! Streams of HTTP/2 are requests: each begins and ends where its frames say, however these lie in
//! what is read and written, and what cannot be followed is counted.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;

use whywait_capture::Options;
use whywait_events::{Request, Tail, WorkKind};

use crate::common;
use crate::multiplexed::{PREFACE, SETTINGS, hex, recorded, recorded_with};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// That of `p` in a conversation.
pub(crate) const PAUSE_NS: u64 = 3_000_000;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The client asks for something, and has said all.
pub(crate) fn asks(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x82\x86\x84")
}

/// The whole answer.
pub(crate) fn answers(stream: u32) -> Vec<u8> {
    [
        frame(HEADERS, END_HEADERS, stream, b"\x88"),
        frame(DATA, END_STREAM, stream, b"answer"),
    ]
    .concat()
}

pub(crate) fn begins() -> Vec<u8> {
    [PREFACE, SETTINGS].concat()
}

/// The streams' rows, and their counters.
fn streams(conversation: &str, age: &str) -> (Vec<Request>, BTreeMap<String, u64>) {
    let (_folder, recording) = recorded(conversation, age);
    let mut last: BTreeMap<u64, Request> = BTreeMap::new();
    recording
        .read::<Request>(None, &mut |row| {
            if row.kind == WorkKind::Http2 {
                last.insert(row.socket, row.clone());
            }
        })
        .expect("requests");
    let counters = recording.counters().expect("counters");
    let streams = counters.into_iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("streams.")?;
        (value > 0).then(|| (name.to_owned(), value))
    });
    (last.into_values().collect(), streams.collect())
}

/// Counters other than times.
fn counted(counters: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let counters = counters.iter().map(|(name, value)| (&**name, *value));
    counters.filter(|(name, _)| *name != "went-on-ns").collect()
}

fn took_ns(row: &Request) -> u64 {
    row.last_send_ns.expect("it was answered") - row.ready_ns
}

#[test]
fn streams_begin_and_end_with_their_frames() {
    let Some(_turn) = common::together() else {
        return;
    };
    // The second one comes later, and both are read at once. The first is answered first.
    let conversation = format!(
        "C {}\nr\nw {}\nC {}\np\nC {}\nr\np\nw {}\np\nw {}",
        hex(&begins()),
        hex(SETTINGS),
        hex(&asks(1)),
        hex(&asks(3)),
        hex(&answers(1)),
        hex(&answers(3)),
    );
    let (rows, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [("answered", 2), ("begun", 2), ("connections", 1)]
    );
    let [first, second] = &rows[..] else {
        panic!("expected two rows, got {rows:?}");
    };
    assert!(took_ns(first) >= 2 * PAUSE_NS, "{first:?}");
    assert!(took_ns(second) >= 2 * PAUSE_NS, "{second:?}");
    let apart_ns = second.ready_ns - first.ready_ns;
    assert!(apart_ns >= PAUSE_NS, "{apart_ns} ns between {rows:?}");
    assert_eq!(first.recv_ns, second.recv_ns);
    let len = |bytes: Vec<u8>| bytes.len() as u64;
    for row in [first, second] {
        assert_eq!(
            (row.bytes_in, row.bytes_out),
            (len(asks(1)), len(answers(1)))
        );
        assert!(!row.multiplexed);
    }
}

#[test]
fn frames_may_lie_in_pieces() {
    let Some(_turn) = common::together() else {
        return;
    };
    let asked = [begins(), asks(1), asks(3)].concat();
    let answered = [SETTINGS, &answers(3), &answers(1)].concat();
    for piece in [1, 5, 8, 10, 21] {
        // Of less than 14 bytes nobody can tell that they are a preface.
        let reads = (asked.len() - 14).div_ceil(piece);
        let pieces: Vec<String> = answered.chunks(piece).map(hex).collect();
        let conversation = format!(
            "C {}\nr 14\n{}v {}",
            hex(&asked),
            format!("r {piece}\n").repeat(reads),
            pieces.join(","),
        );
        let (_, counters) = streams(&conversation, "new");
        assert_eq!(
            counted(&counters),
            [("answered", 2), ("begun", 2), ("connections", 1)],
            "in pieces of {piece} bytes"
        );
    }
}

/// `WINDOW_UPDATE`: the client has room for more, of this stream.
const WINDOW_UPDATE: u8 = 8;
/// As much as fits in a frame, unless more is allowed.
const FULL: usize = 16384;

/// For how long the answer in this conversation waited for its client; 0: no word of that.
fn waited_for_room(conversation: &str) -> u64 {
    let options = Options {
        // The server goes on at once within this, however crowded the machine is.
        threshold_ns: 20_000_000,
        ..Options::default()
    };
    let (_folder, recording) = recorded_with(&[conversation, "new"], &options);
    let mut waited_ns = 0;
    recording
        .read::<Tail>(None, &mut |row| waited_ns = row.window_ns)
        .expect("its rows can be read");
    waited_ns
}

/// A stream whose server writes 64 KiB in frames of this size, and one of each of these sizes.
/// Before each of those this is done.
fn written_in_frames(size: usize, then: [usize; 2], before: &str) -> String {
    let data = |size: usize, flags: u8| {
        let head = frame(DATA, flags, 1, &vec![0; size]);
        format!("{}~{size} ", hex(&head[..9]))
    };
    let head = hex(&frame(HEADERS, END_HEADERS, 1, b"\x88"));
    let [second, third] = then;
    format!(
        "C {}\nr\nw {}\nw {head} {}\n{before}\nw {}\n{before}\nw {}",
        hex(&[begins(), asks(1)].concat()),
        hex(SETTINGS),
        data(size, 0).repeat((64 << 10) / size),
        data(second, 0),
        data(third, END_STREAM),
    )
}

#[test]
fn an_answer_that_fills_its_clients_room_waits_for_that() {
    let Some(_turn) = common::together() else {
        return;
    };
    let pauses = "p\n".repeat(10);
    let room = hex(&frame(WINDOW_UPDATE, 0, 1, &(FULL as u32).to_be_bytes()));
    let waits = format!("{pauses}C {room}\nr");
    let waited_ns = waited_for_room(&written_in_frames(FULL, [FULL; 2], &waits));
    assert!(waited_ns >= 20 * PAUSE_NS, "{waited_ns}");
    // The head of the frame is read by itself, as Go's net/http does.
    let in_pieces = format!("{pauses}C {room}\nr 9\nr 4");
    let waited_ns = waited_for_room(&written_in_frames(FULL, [FULL; 2], &in_pieces));
    assert!(waited_ns >= 20 * PAUSE_NS, "{waited_ns}");
    // It had nothing to say when there was room.
    let late = format!("C {room}\nr\n{pauses}{pauses}");
    assert_eq!(
        waited_for_room(&written_in_frames(FULL, [FULL; 2], &late)),
        0
    );
    // It never came to the same level: it was not what the client allows that it waited for.
    let uneven = written_in_frames(FULL, [FULL - 1, FULL], &waits);
    assert_eq!(waited_for_room(&uneven), 0);
    // In smaller frames, as nginx writes.
    let smaller = written_in_frames(FULL / 2, [FULL; 2], &waits);
    assert!(waited_for_room(&smaller) >= 20 * PAUSE_NS);
}

#[test]
fn a_stream_that_goes_on_ends_with_its_first_message() {
    let Some(_turn) = common::together() else {
        return;
    };
    let begun = [
        frame(HEADERS, END_HEADERS, 1, b"\x88"),
        frame(DATA, 0, 1, b"one"),
    ];
    let conversation = format!(
        "C {}\nr\np\nw {}\np\nw {}\np\nw {}",
        hex(&[begins(), asks(1)].concat()),
        hex(&begun.concat()),
        hex(&frame(DATA, 0, 1, b"two")),
        hex(&frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88")),
    );
    let (rows, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [
            ("answered", 1),
            ("begun", 1),
            ("connections", 1),
            ("went-on", 1)
        ]
    );
    let [row] = &rows[..] else {
        panic!("expected one row, got {rows:?}");
    };
    assert_eq!(row.last_send_ns, row.first_send_ns);
    let lasted_ns = row.ended_ns.expect("it is over") - row.ready_ns;
    assert!(lasted_ns >= took_ns(row) + 2 * PAUSE_NS, "{row:?}");
    assert_eq!(counters["went-on-ns"], lasted_ns);
}

#[test]
fn a_stream_that_is_reset_has_no_answer() {
    let Some(_turn) = common::together() else {
        return;
    };
    let conversation = format!(
        "C {}\nr\np\nC {}\nr\nw {}",
        hex(&[begins(), asks(1)].concat()),
        hex(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
        hex(SETTINGS),
    );
    let (rows, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [("begun", 1), ("connections", 1), ("reset", 1)]
    );
    assert!(rows[0].last_send_ns.is_none() && rows[0].gone_ns.is_some());
    // The server's own reset is its answer.
    let conversation = format!(
        "C {}\nr\nw {}",
        hex(&[begins(), asks(1)].concat()),
        hex(&[SETTINGS, &frame(RST_STREAM, 0, 1, &[0, 0, 0, 7])].concat()),
    );
    let (_, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [("answered", 1), ("begun", 1), ("connections", 1)]
    );
}

#[test]
fn a_connection_that_was_there_is_followed_from_a_request_on() {
    let Some(_turn) = common::together() else {
        return;
    };
    // The server's first write is the rest of a frame that began before.
    let conversation = format!(
        "C {}\nr\nw {}\nw {}\nC {}\nr\nw {}",
        hex(&asks(7)),
        hex(&[0xff; 30]),
        hex(&answers(7)),
        hex(&asks(9)),
        hex(&answers(9)),
    );
    let (_, counters) = streams(&conversation, "old");
    assert_eq!(
        counted(&counters),
        [("answered", 2), ("begun", 2), ("connections", 1)]
    );
}

#[test]
fn whoever_loses_the_place_says_so() {
    let Some(_turn) = common::together() else {
        return;
    };
    // A PING is 8 bytes long.
    let no_frame = frame(6, 0, 0, b"1234567");
    let conversation = format!(
        "C {}\nr\nw {}\nC {}\nr\nw {}",
        hex(&[begins(), asks(1), asks(3)].concat()),
        hex(&[SETTINGS, &answers(1)].concat()),
        hex(&no_frame),
        hex(&answers(3)),
    );
    let (_, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [
            ("answered", 1),
            ("begun", 2),
            ("connections", 1),
            ("connections-lost", 1),
            ("unfollowed", 1)
        ]
    );
}

#[test]
fn a_frame_that_lies_about_its_length_hides_what_follows() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut lies = frame(DATA, 0, 1, &asks(3));
    lies[..3].fill(0xff);
    let conversation = format!(
        "C {}\nr\nw {}\nC {}\nr\nw {}",
        hex(&[begins(), asks(1), lies].concat()),
        hex(SETTINGS),
        hex(&asks(5)),
        hex(&answers(1)),
    );
    let (_, counters) = streams(&conversation, "new");
    assert_eq!(
        counted(&counters),
        [("answered", 1), ("begun", 1), ("connections", 1)]
    );
}
