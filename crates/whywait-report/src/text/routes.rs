//! The requests by what they are called, and the calls by what they ask for.

use whywait_model::calls::StatementRow;
use whywait_model::requests::{RouteRow, Routes};
use whywait_words::{count, counted, counted_as, duration, figure, percent};

use super::page::{Page, Style};
use super::requests;

/// So many are shown in a report, and if all is to be shown.
const MAX_SHORT: usize = 5;
const MAX_ROWS: usize = 20;
/// More of a name is not shown.
const MAX_NAME: usize = 70;
/// More of a peer's name is not shown.
const MAX_PEER: usize = 40;

fn most(page: &Page) -> usize {
    if page.verbose() { MAX_ROWS } else { MAX_SHORT }
}

/// Why so many of HTTP/2's streams have none.
fn said_before(before: u64) -> String {
    format!(
        "HTTP/2 has sent only a number for the path of {}, as the connection's table has had it \
         since before the recording: begin that before clients connect",
        counted_as(before, "request or call", "requests and calls")
    )
}

/// The requests by what they are called.
pub(super) fn short(page: &mut Page, routes: Option<&Routes>) {
    let Some(routes) = routes else {
        return;
    };
    page.gap();
    let strong = (Style::Strong, "where the time went, by route");
    if routes.rows.is_empty() {
        let why = match routes.said_before {
            0 => "None is in TLS, through io_uring, or of a protocol that was not asked for".into(),
            before => said_before(before),
        };
        let text = format!(": of no request a name is known. {why}");
        page.paragraph("", "  ", &[strong, (Style::Plain, &text)]);
        return;
    }
    let mut of = format!(
        " ({} with a row, {} in all",
        counted(routes.requests, "request"),
        duration(routes.total_ns)
    );
    if routes.unnamed > 0 {
        of.push_str(&format!("; {} without a name", count(routes.unnamed)));
    }
    of.push(')');
    page.paragraph("", "  ", &[strong, (Style::Plain, &of)]);
    let most = most(page);
    for row in routes.rows.iter().take(most) {
        let mut text = format!(
            "  {} of it; {}; {}",
            percent(row.total_ns, routes.total_ns),
            counted(row.requests, "request"),
            latency(row),
        );
        if let Some(part) = largest(row) {
            text.push_str(&format!("; {part}"));
        }
        let name = page.cut(&row.name, MAX_NAME);
        page.paragraph(
            "  ",
            "      ",
            &[(Style::Plain, &name), (Style::Dim, &text)],
        );
    }
    if routes.said_before > 0 {
        let text = said_before(routes.said_before);
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
    if let Some(more @ 1..) = routes.rows.len().checked_sub(most) {
        let text = format!(
            "… and {}: all are in --format json",
            counted(more, "more route")
        );
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

/// `p50 12 ms; p99 80 ms; max 81 ms`.
fn latency(row: &RouteRow) -> String {
    format!(
        "p50 {}; p99 {}; max {}",
        duration(row.p50_ns),
        duration(row.p99_ns),
        duration(row.max_ns)
    )
}

/// `most of it: network 70 %`.
fn largest(row: &RouteRow) -> Option<String> {
    let parts = requests::parts(&row.time);
    let known = parts.into_iter().filter_map(|(name, ns)| Some((name, ns?)));
    let (name, ns) = known.max_by_key(|(_, ns)| *ns)?;
    (ns > 0).then(|| format!("mostly {name} ({})", percent(ns, row.total_ns)))
}

/// The requests of one name.
pub(super) fn render(page: &mut Page, row: &RouteRow) {
    let name = page.cut(&row.name, MAX_NAME);
    let of = format!(
        " ({} with a row; {})",
        counted(row.requests, "request"),
        latency(row)
    );
    page.paragraph("", "  ", &[(Style::Strong, &name), (Style::Plain, &of)]);
    requests::time(page, &row.time, "where the time went", None);
    let ids: Vec<String> = row
        .slowest
        .iter()
        .map(|id| format!("[{}]", page.cut(id, 40)))
        .collect();
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "slowest: "), (Style::Plain, &ids.join(" "))],
    );
}

/// The calls by what they ask for.
pub(super) fn statements(page: &mut Page, rows: &[StatementRow]) {
    if rows.is_empty() {
        return;
    }
    page.gap();
    let of = format!(
        " ({}, by the time of those that have a name)",
        counted(rows.len(), "different one")
    );
    let strong = (Style::Strong, "what was asked of others");
    page.paragraph("", "  ", &[strong, (Style::Plain, &of)]);
    let most = most(page);
    for row in rows.iter().take(most) {
        let calls = match row.per_request {
            Some(calls) if calls >= 1.0 => format!("about {} calls a request", figure(calls)),
            _ => format!("about {}", counted(row.calls, "call")),
        };
        let peer = page.cut(&row.peer, MAX_PEER);
        let text = format!(
            "  {calls} of {peer}; p50 {}; max {}",
            duration(row.p50_ns),
            duration(row.max_ns),
        );
        let name = page.cut(&row.name, MAX_NAME);
        page.paragraph(
            "  ",
            "      ",
            &[(Style::Plain, &name), (Style::Dim, &text)],
        );
    }
    if let Some(more @ 1..) = rows.len().checked_sub(most) {
        let text = format!(
            "… and {}: all are in --format json",
            counted(more, "more statement")
        );
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

#[cfg(test)]
mod tests {
    use whywait_model::requests::Time;

    use super::*;
    use crate::text::{TextOptions, page};

    /// What no name is made of, and a recording from a stranger may have.
    const HOSTILE: &str = "GET /\x1b[2J\u{202e}\n";

    fn routes() -> Routes {
        let row = |name: &str, total_ns| RouteRow {
            name: name.to_owned(),
            requests: 4,
            p50_ns: 10_000_000,
            p99_ns: 20_000_000,
            p99_at_least_ns: 20_000_000,
            max_ns: 20_000_000,
            total_ns,
            time: Time {
                disk: Some(total_ns),
                ..Time::default()
            },
            slowest: vec!["3:1".to_owned()],
        };
        Routes {
            requests: 9,
            total_ns: 100_000_000,
            unnamed: 1,
            said_before: 0,
            rows: vec![row("GET /a/{id}", 60_000_000), row(HOSTILE, 30_000_000)],
        }
    }

    fn shown(render: impl FnOnce(&mut Page)) -> String {
        let mut page = page(TextOptions::default());
        render(&mut page);
        page.into_text()
    }

    #[test]
    fn each_route_has_its_share() {
        let text = shown(|page| short(page, Some(&routes())));
        assert!(text.contains("by route (9 requests with a row, 100 ms in all; 1 without a name)"));
        assert!(text.contains("GET /a/{id}  60 % of it; 4 requests; p50 10 ms; p99 20 ms"));
        assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
        assert_eq!(shown(|page| short(page, None)), "");
        let none = Routes {
            rows: Vec::new(),
            ..routes()
        };
        assert!(shown(|page| short(page, Some(&none))).contains("of no request a name is known"));
    }

    #[test]
    fn it_is_said_why_streams_have_no_name() {
        let some = Routes {
            said_before: 3,
            ..routes()
        };
        let said = "HTTP/2 has sent only a number for the path of 3 requests and calls, as the \
                    connection's table";
        let text = shown(|page| short(page, Some(&some)));
        assert!(text.replace("\n    ", " ").contains(said), "{text}");
        let none = Routes {
            rows: Vec::new(),
            ..some
        };
        let text = shown(|page| short(page, Some(&none)));
        assert!(text.replace("\n  ", " ").contains(said), "{text}");
    }

    #[test]
    fn one_route_has_the_ids_of_its_slowest() {
        let text = shown(|page| render(page, &routes().rows[0]));
        assert!(text.starts_with("GET /a/{id} (4 requests with a row; p50 10 ms;"));
        assert!(text.contains("slowest: [3:1]"), "{text}");
    }

    #[test]
    fn statements_say_how_often_a_request_asks() {
        let row = StatementRow {
            name: format!("SELECT {HOSTILE}"),
            peer: "127.0.0.1:5432 (postgres)".to_owned(),
            calls: 5_900,
            per_request: Some(59.0),
            named: 100,
            p50_ns: 200_000,
            max_ns: 900_000,
            ..StatementRow::default()
        };
        let text = shown(|page| statements(page, &[row]));
        let said = "about 59 calls a request of 127.0.0.1:5432 (postgres)";
        assert!(text.replace("\n      ", " ").contains(said), "{text}");
        assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
    }
}
