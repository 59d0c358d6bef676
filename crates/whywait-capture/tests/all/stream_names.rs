//! Streams of HTTP/2 are called by their fields, in whatever pieces these come, and nothing of
//! their values is in the recording.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;

use whywait_capture::{NamesWanted, Options};
use whywait_events::{Exchange, NameKind, NameRow, Request};

use crate::common;
use crate::multiplexed::{SETTINGS, hex, recorded_with};
use crate::names::{MARKER, contains};
use crate::streams::{END_HEADERS, END_STREAM, HEADERS, answers, begins, frame};

const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// A field as a literal that is added to the table: by the number of its name (RFC 7541, 6.2.1).
fn field(name: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("it is short");
    assert!(length < 127, "one byte says how long it is");
    [&[0x40 | name, length], value.as_bytes()].concat()
}

/// The fields of a request: its path, and what nobody is to see.
fn get(path: &str) -> Vec<u8> {
    let authorization = field(23, &format!("Bearer {MARKER}"));
    [b"\x82\x86", &field(4, path)[..], &authorization].concat()
}

fn asks(stream: u32, fields: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, fields)
}

/// The name of each request that has a row, in the order in which they began; of each call instead,
/// if these are recorded. The peer is a child of the target, and has the others.
fn names(arguments: &[&str]) -> Vec<Option<String>> {
    let options = Options {
        names: NamesWanted {
            routes: true,
            statements: false,
        },
        ..Options::default()
    };
    let (folder, recording) = recorded_with(arguments, &options);
    let mut rows = BTreeMap::new();
    if arguments.contains(&"calls") {
        recording.read::<Exchange>(None, &mut |row| {
            rows.insert((row.first_send_ns, row.socket), None);
        })
    } else {
        recording.read::<Request>(None, &mut |row| {
            rows.insert((row.ready_ns, row.socket), None);
        })
    }
    .expect("its rows can be read");
    recording
        .read::<NameRow>(None, &mut |name| {
            assert_eq!(name.kind, NameKind::Route);
            for ((_, socket), given) in &mut rows {
                if *socket == name.socket {
                    *given = Some(name.name.clone());
                }
            }
        })
        .expect("names");
    assert!(!contains(folder.path(), MARKER), "a file has a value");
    rows.into_values().collect()
}

fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// Each is asked and answered on its own. The first says all; later ones refer to it.
fn conversation(asked: &[Vec<u8>], pieces: usize) -> String {
    let mut conversation = String::new();
    for (stream, asked) in (1_u32..).step_by(2).zip(asked) {
        let asked = if stream == 1 {
            [begins(), asked.clone()].concat()
        } else {
            asked.clone()
        };
        // Of less than 14 bytes nobody can tell that they are a preface.
        let first = if stream == 1 { "r 14\n" } else { "" };
        let left = asked.len() - if stream == 1 { 14 } else { 0 };
        let reads = format!("r {pieces}\n").repeat(left.div_ceil(pieces));
        conversation += &format!(
            "C {}\n{first}{reads}p\nw {}\n",
            hex(&asked),
            hex(&answers(stream))
        );
    }
    conversation
}

#[test]
fn streams_are_called_by_their_fields() {
    let Some(_turn) = common::together() else {
        return;
    };
    // What has a priority and padding, and goes on in a frame of its own; then by number; and one
    // with a path of its own that is not added, behind which the numbers are the same.
    let fields = get(&format!("/orders/{MARKER}/items?token={MARKER}"));
    let (head, rest) = fields.split_at(40);
    let padded = [&[3][..], &[0, 0, 0, 0, 16], head, &[0; 3]].concat();
    let asked = [
        [
            frame(HEADERS, END_STREAM | PADDED | PRIORITY, 1, &padded),
            frame(CONTINUATION, END_HEADERS, 1, rest),
        ]
        .concat(),
        asks(3, b"\x82\x86\xbf\xbe"),
        asks(5, b"\x83\x86\x04\x04/pay\xbe"),
        asks(7, b"\x82\x86\xbf\xbe"),
    ];
    let expected = [
        some("GET /orders/{id}/items"),
        some("GET /orders/{id}/items"),
        some("POST /pay"),
        some("GET /orders/{id}/items"),
    ];
    for pieces in [1, 7, 1000] {
        let found = names(&[&conversation(&asked, pieces), "new"]);
        assert_eq!(found, expected, "in pieces of {pieces} bytes");
    }
}

#[test]
fn fields_may_be_longer_than_a_piece_of_them() {
    let Some(_turn) = common::together() else {
        return;
    };
    let cookies: Vec<u8> = (0..20)
        .flat_map(|_| field(32, &MARKER.repeat(12)))
        .collect();
    let asked = [
        asks(1, &[b"\x82\x86", &cookies[..], &field(4, "/long")].concat()),
        asks(3, b"\x82\x86\xbe"),
    ];
    let found = names(&[&conversation(&asked, 1000), "new"]);
    assert_eq!(found, vec![some("GET /long"); 2]);
}

#[test]
fn what_was_added_before_the_recording_is_not_known() {
    let Some(_turn) = common::together() else {
        return;
    };
    // A number of before; then a path that is said, and its number.
    let asked = [
        asks(1, b"\x82\x86\xbf"),
        asks(3, &[b"\x82\x86", &field(4, "/said")[..]].concat()),
        asks(5, b"\x82\x86\xbe"),
    ];
    let found = names(&[&conversation(&asked, 1000), "old"]);
    assert_eq!(found, [None, some("GET /said"), some("GET /said")]);
}

#[test]
fn what_the_target_asks_of_others_is_called_by_its_fields() {
    let Some(_turn) = common::together() else {
        return;
    };
    let grpc = [
        b"\x83\x86",
        &field(4, "/lab.Orders/Get")[..],
        &field(31, "application/grpc"),
        &field(23, MARKER),
    ]
    .concat();
    let first = [begins(), asks(1, &grpc)].concat();
    // By its first piece it is known for HTTP/2.
    let (begin, rest) = first.split_at(30);
    let pieces: Vec<String> = [begin]
        .into_iter()
        .chain(rest.chunks(11))
        .map(hex)
        .collect();
    let conversation = format!(
        "v {}\np\nC {}\nr\nw {}\np\nC {}\nr",
        pieces.join(","),
        hex(&[SETTINGS, &answers(1)].concat()),
        hex(&asks(3, b"\x83\x86\xc0\xbf\xbe")),
        hex(&answers(3)),
    );
    let found = names(&[&conversation, "new", "calls"]);
    assert_eq!(found, vec![some("gRPC lab.Orders/Get"); 2]);
}
