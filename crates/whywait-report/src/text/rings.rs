//! The table of io_uring rings.

use whywait_model::rings::{OpcodeRow, RingRow, Stage};
use whywait_words::{count, counted, duration, duration_range, figure, rate, ratio_percent};

use super::page::{Page, Style};

/// So many rings are shown, and so many opcodes of each.
const MAX_RINGS: usize = 12;
const MAX_OPCODES: usize = 8;
/// So many of both where they are in short.
const MAX_SHORT: usize = 3;
const NOT_SEEN: &str = "queued: not seen";

pub(super) fn render(page: &mut Page, rows: &[RingRow]) {
    if rows.is_empty() {
        let text = "no io_uring to show: the recording has no io_uring ring of the target";
        page.paragraph("", "  ", &[(Style::Strong, text)]);
        return;
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "where io_uring operations spent their time"),
            (
                Style::Plain,
                &format!(" ({}, busiest first)", counted(rows.len() as u64, "ring")),
            ),
        ],
    );
    let text = "An operation is queued (published by the program but not submitted); then kernel \
                (submitted but not completed); then unreaped (completed but not taken by the \
                program). whywait samples the ring, so queued and unreaped times are bounds: at \
                least, and at most.";
    page.paragraph("  ", "  ", &[(Style::Plain, text)]);
    for row in rows.iter().take(MAX_RINGS) {
        page.gap();
        ring(page, row);
    }
    if rows.len() > MAX_RINGS {
        let more = counted(rows.len() - MAX_RINGS, "more ring");
        let text = format!("… and {more}: all are in --format json");
        page.paragraph("", "  ", &[(Style::Dim, &text)]);
    }
}

/// Where a program has no requests: what its rings did, a paragraph for each of the busiest. False:
/// they did nothing.
pub(super) fn short(page: &mut Page, rows: &[RingRow]) -> bool {
    let used: Vec<&RingRow> = rows.iter().filter(|row| row.submitted > 0).collect();
    for row in used.iter().take(MAX_SHORT) {
        let mut of = format!("io_uring ring {}", row.ring);
        if let Some(user) = row.user.or(row.creator) {
            of.push_str(&format!(" of {} ({user})", page.cut(&row.user_name, 40)));
        }
        let opcodes = row.opcodes.iter().filter(|opcode| opcode.completed > 0);
        let mut kinds: Vec<String> = opcodes
            .clone()
            .take(MAX_SHORT)
            .map(|opcode| format!("{} {}", opcode.opcode, count(opcode.completed)))
            .collect();
        if let Some(more @ 1..) = opcodes.count().checked_sub(MAX_SHORT) {
            kinds.push(format!("{more} more"));
        }
        let mut parts = work(row);
        if !kinds.is_empty() {
            parts.push(kinds.join(", "));
        }
        let seen = |part: &String| !part.starts_with(NOT_SEEN);
        parts.extend(times(row).into_iter().filter(seen));
        parts.extend(still_pending(row));
        let text = format!(": {}", parts.join("; "));
        page.paragraph("", "  ", &[(Style::Strong, &of), (Style::Plain, &text)]);
    }
    if let Some(more @ 1..) = used.len().checked_sub(MAX_SHORT) {
        let more = counted(more, "more ring");
        page.paragraph("", "  ", &[(Style::Dim, &format!("… and {more}"))]);
    }
    if !used.is_empty() {
        let all = "all of it: whywait report --uring";
        page.paragraph("", "  ", &[(Style::Dim, all)]);
    }
    !used.is_empty()
}

fn ring(page: &mut Page, row: &RingRow) {
    let mut of = vec![format!("process {}", row.pid)];
    if let Some(user) = row.user.or(row.creator) {
        of.push(format!("thread {} ({user})", row.user_name));
    }
    if row.users_changed > 0 {
        of.push(format!(
            "used by several threads ({} changes)",
            count(row.users_changed)
        ));
    }
    if let Some(fd) = row.fd {
        of.push(format!("fd {fd}"));
    }
    page.paragraph(
        "",
        "    ",
        &[
            (Style::Strong, &format!("ring {}", row.ring)),
            (Style::Plain, &format!("  {}", of.join(", "))),
        ],
    );
    let mut made = vec![format!(
        "{} submission entries, {} completion entries",
        count(row.sq_entries),
        count(row.cq_entries)
    )];
    if !row.flags.is_empty() {
        made.push(row.flags.join(" "));
    }
    if row.registered_files > 0 {
        made.push(counted(row.registered_files, "registered file"));
    }
    if row.registered_buffers > 0 {
        made.push(counted(row.registered_buffers, "registered buffer"));
    }
    made.push(match row.origin.as_str() {
        "created" => "created during the recording".to_owned(),
        _ => "existed before the recording".to_owned(),
    });
    line(page, "setup", &made.join("; "));
    line(page, "work", &work(row).join("; "));
    line(page, "time", &times(row).join("; "));
    let mut slots = format!(
        "{} in use on average, {} at most; {} of the time near that maximum; {} of the time {} \
         or more",
        figure(row.slots),
        row.max_slots,
        ratio_percent(row.at_max.min(1.0)),
        ratio_percent(row.at_depth.min(1.0)),
        row.sq_entries,
    );
    if let Some([low, high]) = row.allowed_rate {
        slots.push_str(&format!(
            "; with operations of this duration {} slots allow {} to {} operations/s",
            row.sq_entries,
            rate(low),
            rate(high)
        ));
    }
    line(page, "slots", &slots);
    sockets(page, row);
    if let Some(pending) = still_pending(row) {
        line(page, "pending", &pending);
    }
    for opcode in row.opcodes.iter().take(MAX_OPCODES) {
        opcode_line(page, opcode);
    }
}

/// What the ring did.
fn work(row: &RingRow) -> Vec<String> {
    let mut work = vec![format!(
        "{}, {}/s",
        counted(row.submitted, "operation"),
        rate(row.rate)
    )];
    if row.batches > 0 {
        let batch = row.submitted as f64 / row.batches as f64;
        work.push(format!("{} a batch", figure(batch)));
    }
    for (n, what) in [(row.failed, "failed"), (row.overflows, "overflowed")] {
        if n > 0 {
            work.push(format!("{} {what}", count(n)));
        }
    }
    work
}

/// Operations that had not ended.
fn still_pending(row: &RingRow) -> Option<String> {
    let pending = row.pending.as_ref()?;
    let kinds = pending.opcodes.iter();
    let kinds: Vec<String> = kinds
        .map(|(name, n)| format!("{name} {}", count(*n)))
        .collect();
    Some(format!(
        "{} had not ended, the oldest after {} ({})",
        counted(pending.operations, "operation"),
        duration(pending.oldest_ns),
        kinds.join(", ")
    ))
}

/// The parts of its operations' life.
fn times(row: &RingRow) -> Vec<String> {
    let mut parts = Vec::new();
    match row.queued_ns {
        Some(bounds) => parts.push(format!(
            "queued {}",
            duration_range(bounds.at_least, bounds.at_most)
        )),
        None => parts.push(format!(
            "{NOT_SEEN} (entries are published as they are submitted)"
        )),
    }
    if let Some(ns) = row.kernel_ns {
        parts.push(format!("kernel {}", duration(ns)));
    }
    if let Some(bounds) = row.unreaped_ns {
        parts.push(format!(
            "unreaped {}",
            duration_range(bounds.at_least, bounds.at_most)
        ));
    }
    let dominant = match row.dominant {
        Some(Stage::Queued) => "mostly queued",
        Some(Stage::Kernel) => "mostly in the kernel",
        Some(Stage::Socket) => "mostly waiting for room in sockets' send buffers",
        Some(Stage::Unreaped) => "mostly unreaped",
        None if row.submitted > 0 => "the longest part is not certain",
        None => "",
    };
    if !dominant.is_empty() {
        parts.push(dominant.to_owned());
    }
    parts
}

/// Sends that wait for the socket, and keep their slots meanwhile.
fn sockets(page: &mut Page, row: &RingRow) {
    let mut parts = Vec::new();
    if let Some(ns) = row.blocked_send_ns {
        parts.push(format!(
            "{} waited for room in the socket's buffer, {} on average",
            counted(row.blocked_sends, "send"),
            duration(ns)
        ));
    }
    if row.memory_limits > 0 {
        parts.push(format!(
            "{} hit the limit on socket memory",
            counted(row.memory_limits, "send")
        ));
    }
    if !parts.is_empty() {
        line(page, "sockets", &parts.join("; "));
    }
}

fn opcode_line(page: &mut Page, row: &OpcodeRow) {
    let mut parts = vec![format!("{} completed", count(row.completed))];
    if !row.files.is_empty() {
        parts.push(format!("on {}", row.files.join(", ")));
    }
    if let (Some(mean), Some(p50), Some(p99)) =
        (row.kernel_mean_ns, row.kernel_p50_ns, row.kernel_p99_ns)
    {
        parts.push(format!(
            "kernel {} on average, p50 below {}, p99 below {}, max {}",
            duration(mean),
            duration(p50),
            duration(p99),
            duration(row.kernel_max_ns)
        ));
    }
    if let Some(bounds) = row.unreaped_mean_ns {
        parts.push(format!(
            "unreaped (first of a batch) {}",
            duration_range(bounds.at_least, bounds.at_most)
        ));
    }
    if row.failed > 0 {
        let errors = row.errors.keys().cloned().collect::<Vec<_>>().join(", ");
        let with = if errors.is_empty() { "" } else { " with " };
        parts.push(format!("{} failed{with}{errors}", count(row.failed)));
    }
    for (n, what) in [
        (row.punted, "punted to workers"),
        (row.polled, "waited for readiness"),
    ] {
        if n > 0 {
            parts.push(format!("{} {what}", count(n)));
        }
    }
    line(page, row.opcode, &parts.join("; "));
}

fn line(page: &mut Page, what: &str, text: &str) {
    page.paragraph(
        "  ",
        "            ",
        &[(Style::Dim, &format!("{what:<10}")), (Style::Plain, text)],
    );
}
