//! Where the requests' time went, by their calls: the table of a report where threads do not show
//! it, because each works for many requests.

use whywait_model::calls::links::{Range, TaskTime, TaskTotals};
use whywait_model::requests::Requests;
use whywait_words::{columns, count, counted, duration, duration_range, percent_range};

use super::page::{Page, Style};
use super::requests::bar;
use super::tasks::{MAX_NAME, MAX_PEERS, is_worth};
use super::words;

/// The requests whose calls are known must be so many percent of all requests' time: else the table
/// would be of some other requests.
const NEARLY_ALL: u64 = 90;
/// Parts of less than this share are summed up in one line.
const SMALL_PERMILLE: u64 = 5;
/// A part's name is not cut to less.
const LEAST_NAME: usize = 17;

/// The sums, where they are the better table: nearly all requests are in it, no thread slept in
/// their calls, and calls are a part of their time.
pub(super) fn totals(requests: &Requests, all_ns: u64) -> Option<&TaskTotals> {
    let nearly_all = |totals: &&TaskTotals| {
        u128::from(totals.total_ns) * 100 >= u128::from(all_ns) * u128::from(NEARLY_ALL)
    };
    let totals = requests
        .tasks
        .as_ref()
        .filter(|totals| !totals.threads_wait);
    totals
        .filter(|totals| is_worth(totals.time.upstream_ns.at_most, totals.total_ns))
        .filter(nearly_all)
}

/// A part of the time: its name, and how long it was.
pub(super) type NamedTime = (String, Range);

pub(super) fn exactly(ns: u64) -> Range {
    Range {
        at_least: ns,
        at_most: ns,
    }
}

/// Where a time was once the request had been read: with which peers, and where else.
pub(super) fn once_read(page: &Page, time: &TaskTime) -> Vec<NamedTime> {
    let mut rows: Vec<NamedTime> = Vec::new();
    for peer in time.peers.iter().take(MAX_PEERS) {
        let name = page.cut(&peer.peer, MAX_NAME);
        rows.push((format!("with {name}"), peer.ns));
    }
    if time.peers.len() > MAX_PEERS {
        // A request can have calls to several at a time: so these do not simply add up.
        let shown = time.peers.iter().take(MAX_PEERS).map(|peer| peer.ns);
        let sum = |of: fn(Range) -> u64| shown.clone().map(of).fold(0, u64::saturating_add);
        let at_most = time.upstream_ns.at_most;
        let more = Range {
            at_least: time
                .upstream_ns
                .at_least
                .saturating_sub(sum(|ns| ns.at_most)),
            at_most: at_most.saturating_sub(sum(|ns| ns.at_least)),
        };
        let peers = counted(time.peers.len() - MAX_PEERS, "more peer");
        rows.push((format!("with {peers}"), more));
    }
    rows.push((words::REPLY_UNREAD.to_owned(), time.reply_unserved_ns));
    rows.push((words::QUEUED.to_owned(), time.queued_ns));
    rows.push((words::AT_WORK.to_owned(), time.own_ns));
    rows
}

/// The parts, the longest first. They are all of the time.
pub(super) fn rows(page: &Page, requests: &Requests, totals: &TaskTotals) -> Vec<NamedTime> {
    let time = &totals.time;
    let mut rows = once_read(page, time);
    let ready = requests.time.ready_unserved;
    let ready = [
        (words::STRANDED, ready.stranded),
        (words::POOL_BUSY, ready.pool_busy),
        (words::WAKING_UP, ready.wakeup),
    ];
    let known = ready.iter().filter_map(|(_, ns)| *ns);
    if known.fold(0, u64::saturating_add) == time.unserved_ns {
        let ready = ready.map(|(name, ns)| (name.to_owned(), exactly(ns.unwrap_or(0))));
        rows.extend(ready);
    } else {
        rows.push((words::UNREAD.to_owned(), exactly(time.unserved_ns)));
    }
    rows.retain(|(_, ns)| ns.at_most > 0);
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse((ns.at_least.midpoint(ns.at_most), ns.at_most)));
    rows
}

/// The table. `of`: of which requests, if not of as many as it has.
pub(super) fn table(page: &mut Page, requests: &Requests, totals: &TaskTotals, of: &str) {
    let total_ns = totals.total_ns;
    let all = requests
        .count
        .saturating_add(requests.open.as_ref().map_or(0, |open| open.late));
    let some = match totals.requests {
        some if some < all => format!("{} of ", count(some)),
        _ => String::new(),
    };
    let title = format!(" ({some}{of}, {} in all)", duration(total_ns));
    let strong = (Style::Strong, "where the time went, by calls");
    page.paragraph("", "  ", &[strong, (Style::Plain, &title)]);
    let worth =
        |ns: u64| u128::from(ns) * 1000 >= u128::from(total_ns) * u128::from(SMALL_PERMILLE);
    let rows = rows(page, requests, totals);
    let (unknown, rows): (Vec<NamedTime>, Vec<NamedTime>) = rows
        .into_iter()
        .partition(|(_, ns)| says_nothing(*ns, total_ns));
    let (large, small): (Vec<NamedTime>, Vec<NamedTime>) =
        rows.into_iter().partition(|(_, ns)| worth(ns.at_most));
    let figures = large.iter().map(|(_, ns)| {
        let share = percent_range(ns.at_least, ns.at_most, total_ns);
        (share, duration_range(ns.at_least, ns.at_most))
    });
    let (shares, lengths): (Vec<String>, Vec<String>) = figures.unzip();
    let widest = |texts: &[String]| texts.iter().map(|text| columns(text)).max().unwrap_or(0);
    let shares_width = widest(&shares);
    // On a narrow page the shares have to do.
    let fit = page.width() >= LEAST_NAME + shares_width + widest(&lengths) + 10;
    let lengths = match fit {
        true => lengths,
        false => vec![String::new(); lengths.len()],
    };
    let lengths_width = widest(&lengths);
    let names: Vec<String> = large.iter().map(|(name, _)| name.clone()).collect();
    // "  ", a blank, at least a column of the bar, two blanks, two more.
    let room = page
        .width()
        .saturating_sub(shares_width + lengths_width + 8);
    let name_width = widest(&names).max(LEAST_NAME).min(room.max(LEAST_NAME));
    let bar_width = room.saturating_sub(name_width).clamp(1, 40);
    let largest = large.iter().map(|(_, ns)| ns.at_most).max().unwrap_or(1);
    for (((name, ns), share), length) in large.iter().zip(shares).zip(lengths) {
        let name = page.cut(name, name_width);
        let filler = " ".repeat(name_width.saturating_sub(columns(&name)));
        let (solid, faint) = bars(*ns, largest, bar_width, page.unicode());
        let rest = bar_width.saturating_sub(columns(&solid) + columns(&faint));
        let style = match name.as_str() {
            words::STRANDED => Style::Bad,
            _ => Style::Bar,
        };
        let figures = format!(
            "{} {share:>shares_width$}  {length:>lengths_width$}",
            " ".repeat(rest)
        );
        page.row(&[
            (Style::Plain, &format!("  {name}{filler} ")),
            (style, &solid),
            (Style::Dim, &faint),
            (Style::Plain, figures.trim_end()),
        ]);
    }
    if let Some(text) = not_known(&unknown) {
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
    if !small.is_empty() && page.verbose() {
        let names: Vec<&str> = small.iter().map(|(name, _)| name.as_str()).collect();
        let ns = small.iter().map(|(_, ns)| ns.at_most);
        let text = format!(
            "{} together: {}",
            duration(ns.fold(0, u64::saturating_add)),
            names.join("; ")
        );
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

/// Those of which nothing is known, in words.
pub(super) fn not_known(rows: &[NamedTime]) -> Option<String> {
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "not known: how much of it was {}",
            names.join(", how much ")
        )
    })
}

/// Whether it may be nothing or most of the time.
pub(super) fn says_nothing(ns: Range, total_ns: u64) -> bool {
    ns.at_least == 0 && ns.at_most.saturating_mul(2) >= total_ns && ns.at_most > 0
}

/// A bar of what it is at least, and one of what it is at most besides.
fn bars(ns: Range, largest: u64, width: usize, unicode: bool) -> (String, String) {
    let whole = bar(ns.at_most, largest, width, unicode);
    if ns.at_least == ns.at_most {
        return (whole, String::new());
    }
    let wide = columns(&whole);
    let certain = (u128::from(ns.at_least) * width as u128 / u128::from(largest.max(1))) as usize;
    let certain = certain.min(wide);
    let (solid, faint) = if unicode { ("█", "░") } else { ("#", ".") };
    (solid.repeat(certain), faint.repeat(wide - certain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(at_least: u64, at_most: u64) -> Range {
        Range { at_least, at_most }
    }

    #[test]
    fn what_is_not_known_is_drawn_fainter() {
        let of = |at_least, at_most| bars(range(at_least, at_most), 100, 10, true);
        assert_eq!(of(100, 100), ("█".repeat(10), String::new()));
        assert_eq!(of(50, 100), ("█".repeat(5), "░".repeat(5)));
        assert_eq!(of(0, 30), (String::new(), "░".repeat(3)));
        assert_eq!(bars(range(0, 30), 100, 10, false).1, "...");
    }
}
