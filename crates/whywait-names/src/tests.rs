use super::*;

fn named(bytes: &[u8]) -> Option<String> {
    match said(bytes, bytes.len() as u64)? {
        Said::Route(name) | Said::Statement(name) | Said::Prepares(_, name) => Some(name),
        Said::Runs(_) => None,
    }
}

fn http(line: &str) -> Option<String> {
    named(format!("{line}\r\nHost: a\r\n\r\n").as_bytes())
}

/// A message of PostgreSQL's.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], content].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// A packet of MySQL's.
fn packet(command: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32 + 1).to_le_bytes();
    [&length[..3], &[0, command], content].concat()
}

fn postgres(text: &str) -> Option<String> {
    named(&query(text))
}

fn mysql(text: &str) -> Option<String> {
    named(&packet(3, text.as_bytes()))
}

#[test]
fn routes_are_method_and_path() {
    for (line, route) in [
        ("GET / HTTP/1.1", "GET /"),
        ("GET /orders/17 HTTP/1.1", "GET /orders/{id}"),
        (
            "POST /v1.2/oauth2/token HTTP/1.0",
            "POST /v1.2/oauth2/token",
        ),
        ("GET /apis/v2beta1/pods HTTP/1.1", "GET /apis/v2beta1/pods"),
        (
            "DELETE /u/3f1e7a52-9c1b-4a3e-8d7a-0b1c2d3e4f50/x HTTP/1.1",
            "DELETE /u/{id}/x",
        ),
        ("GET /blob/deadbeef HTTP/1.1", "GET /blob/{id}"),
        ("GET /a.b/robots.txt HTTP/1.1", "GET /a.b/robots.txt"),
        ("GET /search?q=secret HTTP/1.1", "GET /search"),
        ("GET /a;jsessionid=secret HTTP/1.1", "GET /a"),
        ("GET /mail/me@example.org HTTP/1.1", "GET /mail/{id}"),
        ("GET /%2e%2e/x HTTP/1.1", "GET /{id}/x"),
        ("GET http://example.org/a/1 HTTP/1.1", "GET /a/{id}"),
        ("GET http://example.org HTTP/1.1", "GET /"),
        ("CONNECT secret.example.org:443 HTTP/1.1", "CONNECT"),
        ("OPTIONS * HTTP/1.1", "OPTIONS"),
    ] {
        assert_eq!(http(line).as_deref(), Some(route), "{line}");
    }
    for line in [
        "GET secret",
        "SECRET / HTTP/1.1",
        "GET / HTTP/2",
        "PRI * HTTP/2.0",
    ] {
        assert_eq!(http(line), None, "{line}");
    }
}

#[test]
fn a_route_may_be_cut_anywhere() {
    let line = b"GET /orders/17/items?token=secret HTTP/1.1";
    for end in 0..line.len() {
        let route = named(&line[..end]);
        let known = [
            "GET /",
            "GET /...",
            "GET /orders/...",
            "GET /orders/{id}/...",
        ];
        let whole = ["GET /orders/{id}/items"];
        let fits = route
            .as_deref()
            .is_none_or(|route| known.contains(&route) || whole.contains(&route));
        assert!(fits, "{end}: {route:?}");
    }
}

#[test]
fn a_route_behind_a_proxys_header_is_found() {
    let plain = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\nGET /a/1 HTTP/1.1\r\n\r\n";
    assert_eq!(named(plain).as_deref(), Some("GET /a/{id}"));
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0cABCDEFGHIJKLGET /b HTTP/1.1\r\n";
    assert_eq!(named(binary).as_deref(), Some("GET /b"));
    assert_eq!(named(&binary[..20]), None);
}

#[test]
fn statements_have_no_values() {
    for (text, name) in [
        ("SELECT 1", "SELECT ?"),
        (
            "SELECT  name\n FROM items WHERE order_id = 17;",
            "SELECT name FROM items WHERE order_id = ?",
        ),
        (
            "SELECT * FROM t WHERE a IN (1, 2,3) AND b = -5",
            "SELECT * FROM t WHERE a IN (?) AND b = ?",
        ),
        (
            "INSERT INTO t (a, b) VALUES ('x', 'it''s'), ('y', NULL), ('z', NULL)",
            "INSERT INTO t (a, b) VALUES (?), (?, NULL)",
        ),
        ("/* secret */ SELECT a -- secret\nFROM b", "SELECT a FROM b"),
        ("SELECT a FROM events_2026_11", "SELECT a FROM events_N_N"),
        ("SAVEPOINT s140_x1", "SAVEPOINT sN_x1"),
        ("SELECT \"a\".\"b\" FROM \"c\"", "SELECT a.b FROM c"),
        ("SELECT \"a secret\" FROM c", "SELECT ? FROM c"),
        ("SELECT E'a\\'secret' FROM c", "SELECT ? FROM c"),
        (
            "SELECT $1, $2::int, $x$ it's secret $x$",
            "SELECT ?::int, ?",
        ),
        ("SELECT 'a\\' FROM secret", "SELECT ?..."),
        ("SELECT 1.5e-3 + .5 FROM t", "SELECT ? + ? FROM t"),
        ("SELECT caf\u{e9} FROM t", "SELECT ? FROM t"),
        ("BEGIN", "BEGIN"),
    ] {
        assert_eq!(postgres(text).as_deref(), Some(name), "{text}");
    }
    for (text, name) in [
        (
            "SELECT `a` FROM `b` WHERE c = \"secret\"",
            "SELECT a FROM b WHERE c = ?",
        ),
        ("SELECT a # secret\n FROM b", "SELECT a FROM b"),
        ("SELECT _utf8mb4'secret', x'AB', 0xAB", "SELECT ?"),
        ("SELECT 'a\\'secret' FROM b", "SELECT ?..."),
        ("SELECT 5--'a\n secret'", "SELECT ?..."),
    ] {
        assert_eq!(mysql(text).as_deref(), Some(name), "{text}");
    }
    assert_eq!(postgres("'secret'"), None);
    assert_eq!(postgres(""), None);
}

#[test]
fn a_statement_may_be_cut_anywhere() {
    let text = "SELECT e'SECRET', $a$SECRET$a$ \"a\" /*SECRET*/ FROM t WHERE b='SECRET''SECRET' \
                AND c = \"d\" -- SECRET";
    let whole = query(text);
    for end in 0..whole.len() {
        let said = said(&whole[..end], whole.len() as u64);
        assert!(!format!("{said:?}").contains("SEC"), "{end}: {said:?}");
    }
    let text = "INSERT INTO t VALUES ('SECRET', \"SECRET\"), (x'AA', _utf8'SECRET') # SECRET";
    let whole = packet(3, text.as_bytes());
    for end in 0..whole.len() {
        let said = said(&whole[..end], whole.len() as u64);
        assert!(!format!("{said:?}").contains("SEC"), "{end}: {said:?}");
    }
}

#[test]
fn rows_of_many_are_one_wherever_they_are_cut() {
    let text = format!("INSERT INTO t VALUES (1, 'a'){}", ", (2, 'bcd')".repeat(30));
    let whole = query(&text);
    let at = |end| match said(&whole[..end], whole.len() as u64) {
        Some(Said::Statement(name)) => name,
        other => panic!("{end}: {other:?}"),
    };
    for end in 60..256 {
        assert_eq!(at(end), "INSERT INTO t VALUES (?)...", "{end}");
    }
}

#[test]
fn prepared_statements_are_run_by_their_key() {
    let parse = |name: &str| message(b'P', format!("{name}\0SELECT $1\0\0\0").as_bytes());
    let bind = |name: &str| message(b'B', format!("\0{name}\0\0\0\0\0").as_bytes());
    let of = |bytes: &[u8]| said(bytes, bytes.len() as u64);
    let Some(Said::Prepares(Some(key), name)) = of(&[parse("s1"), message(b'S', b"")].concat())
    else {
        panic!("it prepares one");
    };
    assert_eq!(name, "SELECT ?");
    let close = message(b'C', b"Ss0\0");
    assert_eq!(of(&[close, bind("s1")].concat()), Some(Said::Runs(key)));
    assert_ne!(of(&bind("s2")), Some(Said::Runs(key)));
    assert_eq!(
        of(&packet(0x16, b"SELECT ?")),
        Some(Said::Prepares(None, "SELECT ?".to_owned()))
    );
    let execute = packet(0x17, &[7, 0, 0, 0, 0, 1, 0, 0, 0]);
    let close = packet(0x19, &[6, 0, 0, 0]);
    assert_eq!(of(&[close, execute].concat()), Some(Said::Runs(7)));
}

#[test]
fn commands_of_redis_have_no_arguments() {
    let command = |word: &str| {
        let length = word.len();
        named(format!("*2\r\n${length}\r\n{word}\r\n$6\r\nsecret\r\n").as_bytes())
    };
    assert_eq!(command("get").as_deref(), Some("GET"));
    assert_eq!(command("XREADGROUP").as_deref(), Some("XREADGROUP"));
    assert_eq!(command("SECRET").as_deref(), Some("unknown command"));
    assert_eq!(named(b"*2\r\n$600\r\nGET"), None);
}

#[test]
fn other_protocols_have_no_names() {
    for bytes in [
        &b""[..],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"EHLO secret\r\n",
        b"AMQP\0\0\x09\x01",
        b"\0\0\0\x20\0\x03\0\x09\0\0\0\x01\0\x06secret",
    ] {
        assert_eq!(said(bytes, bytes.len() as u64), None, "{bytes:?}");
    }
}

/// What strangers send: any bytes, of any length.
#[test]
fn names_of_anything_are_short_and_can_be_seen() {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    let heads: [&[u8]; 5] = [
        b"GET /",
        b"*1\r\n$3\r\n",
        b"Q\0\0\0\xff",
        b"\xff\0\0\0\x03S",
        b"",
    ];
    for round in 0..20_000 {
        let mut bytes = heads[round % heads.len()].to_vec();
        bytes.extend((0..usize::from(next())).map(|_| next()));
        if let Some(Said::Route(name) | Said::Statement(name) | Said::Prepares(_, name)) =
            said(&bytes, 300)
        {
            assert!(name.len() <= LONGEST, "{name}");
            let seen = |c: char| c.is_ascii_graphic() || c == ' ';
            assert!(name.chars().all(seen), "{name:?}");
        }
    }
}

#[test]
fn two_hundred_are_kept_apart() {
    let mut kept = KeptNames::default();
    for number in 0..10_000u32 {
        let letters: String = number
            .to_string()
            .bytes()
            .map(|b| char::from(b + 49))
            .collect();
        let route = http(&format!("GET /{letters}<script>/{letters} HTTP/1.1")).expect("a route");
        assert_eq!(route, format!("GET /{{id}}/{letters}"));
        kept.keep(route);
    }
    let name = |name: &str| kept.clone().keep(name.to_owned());
    assert_eq!(name("GET /{id}/b"), "GET /{id}/b");
    assert_eq!(name("GET /{id}/jjjj"), OTHERS);
}
