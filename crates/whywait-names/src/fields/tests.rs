use super::*;

/// What blocks of one connection say, one after another. Text is as it is in hexadecimal digits.
fn names(blocks: &[&str]) -> Vec<Result<Option<String>, NoFields>> {
    let mut table = FieldTable::default();
    blocks
        .iter()
        .map(|block| table.name(&bytes(block)))
        .collect()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: String = hexadecimal.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"))
        .collect()
}

fn route(name: &str) -> Result<Option<String>, NoFields> {
    Ok(Some(name.to_owned()))
}

/// A literal: how it begins (with the number of its name), and its value.
fn literal(begin: &[u8], value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("it is short");
    [begin, &[length], value.as_bytes()].concat()
}

/// RFC 7541, C.3 and C.4: the same three requests, without Huffman's code and with it.
#[test]
fn the_standards_examples_have_their_routes() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let all = [route("GET /"), route("GET /"), route("GET /index.html")];
    assert_eq!(names(&plain), all);
    assert_eq!(names(&coded), all);
}

#[test]
fn a_path_that_is_coded_is_read() {
    // RFC 7541, C.2.2: a path that is not added. The method is GET.
    assert_eq!(
        names(&["82 04 0c 2f73 616d 706c 652f 7061 7468"]),
        [route("GET /sample/path")]
    );
    // As Go's client sends it: /lab/quick of gRPC, and then all by number.
    let first = [
        bytes("83 86"),
        literal(&[0x44], "/lab/quick"),
        literal(&[0x41], "127.0.0.1:1234"),
        literal(&[0x5f], "application/grpc"),
        literal(&[0x7a], "grpc-go/1.85.0"),
        literal(&[0x40, 2, b't', b'e'], "trailers"),
    ]
    .concat();
    let mut table = FieldTable::default();
    assert_eq!(table.name(&first), route("gRPC lab/quick"));
    assert_eq!(
        table.name(&bytes("83 86 c2 c1 c0 bf be")),
        route("gRPC lab/quick")
    );
}

#[test]
fn of_other_fields_nothing_is_kept() {
    let secret = [
        bytes("82 86"),
        literal(&[0x40 | 23], "Bearer SECRET"),
        literal(
            &[0x40, 7, b'x', b'-', b't', b'o', b'k', b'e', b'n'],
            "SECRET",
        ),
        literal(&[0x44], "/users/7f3a9c2e11/cart?token=SECRET"),
    ]
    .concat();
    let mut table = FieldTable::default();
    assert_eq!(table.name(&secret), route("GET /users/{id}/cart"));
    assert!(!format!("{table:?}").contains("SECRET"), "{table:?}");
}

#[test]
fn a_table_that_begins_late_knows_what_is_said_since() {
    let mut table = FieldTable::default();
    // A number of before, then a path that is added, and a field that moves it by one.
    assert_eq!(table.name(&bytes("82 86 c5")), Ok(None));
    let said = [bytes("82"), literal(&[0x44], "/a")].concat();
    assert_eq!(table.name(&said), route("GET /a"));
    let timeout = [bytes("82 be"), literal(&[0x40, 1, b't'], "1S")].concat();
    assert_eq!(table.name(&timeout), route("GET /a"));
    assert_eq!(table.name(&bytes("82 bf")), route("GET /a"));
    assert_eq!(
        table.name(&bytes("82 be")),
        Ok(None),
        "that is the other one"
    );
}

#[test]
fn a_path_may_have_the_name_of_one_that_was_added() {
    let said = [bytes("82"), literal(&[0x44], "/a")].concat();
    let again = [bytes("82"), literal(&[0x0f, 62 - 15], "/b")].concat();
    let mut table = FieldTable::default();
    assert_eq!(table.name(&said), route("GET /a"));
    assert_eq!(table.name(&again), route("GET /b"));
}

#[test]
fn methods_without_a_path_have_a_name() {
    let connect = literal(&[0x42], "CONNECT");
    let options = [literal(&[0x42], "OPTIONS"), literal(&[0x44], "*")].concat();
    let mut table = FieldTable::default();
    assert_eq!(table.name(&connect), route("CONNECT"));
    assert_eq!(table.name(&options), route("OPTIONS"));
    let websocket = [connect, literal(&[0x44], "/chat")].concat();
    assert_eq!(table.name(&websocket), route("CONNECT /chat"));
}

#[test]
fn only_identifiers_are_methods_of_grpc() {
    let is = |path: &str| grpc_method(path.as_bytes()).is_some();
    assert!(is("/grpc.health.v1.Health/Check"));
    assert!(is("/a_b.C2/list_all"));
    for path in [
        "/a.B",
        "a.B/C",
        "/a.B/C/d",
        "/a.B/",
        "/.B/C",
        "/a.B/7",
        "/a.B/C?d",
        "/a-b/C",
        "/a.B/C D",
        "/a.B/deadbeef01",
        "/a.1/C",
    ] {
        assert!(!is(path), "{path}");
    }
    assert!(!is(&format!("/{}/C", "a".repeat(200))));
}

#[test]
fn what_are_no_fields_is_refused() {
    for block in [
        "80",                // there is no field 0
        "44",                // it ends before the value
        "44 05 61",          // … within it
        "ff ff ff ff ff ff", // a number without an end
        "44 84 ff ff ff ff", // no text has the code's end in it
    ] {
        assert_eq!(names(&[block]), [Err(NoFields)], "{block}");
    }
}

#[test]
fn a_table_does_not_grow_without_end() {
    let mut table = FieldTable::default();
    for _ in 0..MOST_ADDED {
        assert_eq!(table.name(&bytes("40 01 61 01 62")), Ok(None));
    }
    assert_eq!(table.added.len(), MOST_ADDED / (ADDED_AT_LEAST + 5));
    // A path that is longer than all of it is named, and not kept.
    let long = [&bytes("82 44 7f 81 fe 01")[..], b"/", &[b'a'; 32639]].concat();
    let named = table
        .name(&long)
        .expect("it is a block")
        .expect("it has a path");
    assert!(
        named.starts_with("GET /") && named.len() <= crate::LONGEST,
        "{named}"
    );
    assert_eq!((table.added.len(), table.size), (0, 0));
}
