//! What the requests came to so far, for those who watch it.

use whywait_events::Part;

use super::programs::Programs;
use super::skel::types::{request_record, request_totals, whose, work_kind};
use crate::collectors::sockets::totals;

/// What the requests came to so far.
#[derive(Debug, Clone, PartialEq)]
pub struct SoFar {
    /// Those that were answered, of others than the target itself.
    pub requests: u64,
    /// Of a hundred requests one took longer.
    pub p99_ns: u64,
    /// Most of their time was this, `None`: waiting to be read; and its share.
    pub most: Option<(Option<Part>, f64)>,
}

impl SoFar {
    pub(crate) fn of(programs: &Programs, rows: &Rows) -> Self {
        let of_server = |server| totals(programs, server, whose::WHOSE_OTHERS);
        let mut sums: Vec<request_totals> = (0..=programs.servers).flat_map(of_server).collect();
        sums.push(rows.0);
        Self::of_sums(&sums)
    }

    fn of_sums(cpus: &[request_totals]) -> Self {
        let sum = |field: &dyn Fn(&request_totals) -> u64| {
            cpus.iter().map(field).fold(0, u64::saturating_add)
        };
        let total_ns = sum(&|totals| totals.total_ns);
        let unread = (None, sum(&|totals| totals.unserved_ns));
        let parts = Part::ALL
            .into_iter()
            .map(|part| (Some(part), sum(&|totals| totals.service[part as usize])));
        let most = parts
            .chain([unread])
            .max_by_key(|(_, ns)| *ns)
            .filter(|(_, ns)| *ns > 0 && total_ns > 0)
            .map(|(part, ns)| (part, (ns as f64 / total_ns as f64).min(1.0)));
        let buckets = cpus.first().map_or(0, |totals| totals.latency.len());
        let counts: Vec<u64> = (0..buckets)
            .map(|bucket| sum(&|totals| totals.latency[bucket]))
            .collect();
        Self {
            requests: sum(&|totals| totals.count),
            p99_ns: p99(&counts),
            most,
        }
    }
}

/// The requests that have rows: those are not in the kernel's sums.
#[derive(Default)]
pub(crate) struct Rows(request_totals);

impl Rows {
    pub(crate) fn add(&mut self, record: &request_record) {
        // A response that goes on has another record at its end.
        let answered = record.last_send_ns != 0 && record.last_send_ns == record.first_send_ns;
        let is_job = record.kind >= work_kind::WORK_JOB.0;
        if !answered || record.own != 0 || is_job {
            return;
        }
        let sums = &mut self.0;
        let latency_ns = record.last_send_ns.saturating_sub(record.ready_ns);
        sums.count += 1;
        sums.total_ns += latency_ns;
        sums.unserved_ns += record.recv_ns.saturating_sub(record.ready_ns);
        for (sum, ns) in sums.service.iter_mut().zip(record.service) {
            *sum += ns;
        }
        if let Some(count) = sums.latency.get_mut(bucket_of(latency_ns)) {
            *count += 1;
        }
    }
}

/// The end of the bucket in which one request of a hundred is left.
fn p99(counts: &[u64]) -> u64 {
    let all: u64 = counts.iter().sum();
    let mut left = all / 100;
    for (bucket, count) in counts.iter().enumerate().rev() {
        if *count > left {
            return end_of(bucket);
        }
        left -= count;
    }
    0
}

/// Eight buckets to the power of two, as `latency_bucket` of requests.bpf.h.
fn bucket_of(ns: u64) -> usize {
    match ns.checked_ilog2() {
        Some(power @ 3..) => ((power - 2) << 3) as usize + (ns >> (power - 3) & 7) as usize,
        _ => ns as usize,
    }
}

/// The last time that belongs to a bucket.
fn end_of(bucket: usize) -> u64 {
    let (power, eighth) = (bucket as u32 >> 3, bucket as u64 & 7);
    match power {
        0 => eighth,
        power => ((9 + eighth) << (power - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_where_the_next_begins() {
        assert_eq!([end_of(0), end_of(7), end_of(8)], [0, 7, 8]);
        assert_eq!([end_of(15), end_of(16), end_of(17)], [15, 17, 19]);
        // 1 ms lies in the bucket 8 * (19 - 2) + 7: from 983,040 on.
        assert_eq!(end_of(143), (1 << 20) - 1);
        for bucket in 0..400 {
            assert_eq!(bucket_of(end_of(bucket)), bucket);
            assert_eq!(bucket_of(end_of(bucket) + 1), bucket + 1);
        }
    }

    #[test]
    fn a_slow_request_counts_once() {
        let mut rows = Rows::default();
        let mut record = request_record {
            ready_ns: 10,
            recv_ns: 30,
            first_send_ns: 110,
            last_send_ns: 110,
            ..request_record::default()
        };
        rows.add(&record);
        record.last_send_ns = 120;
        rows.add(&record);
        let so_far = SoFar::of_sums(&[rows.0]);
        assert_eq!(
            (so_far.requests, so_far.p99_ns),
            (1, end_of(bucket_of(100)))
        );
        assert_eq!(so_far.most, Some((None, 0.2)));
    }

    #[test]
    fn most_of_the_time_is_said_with_its_share() {
        let mut cpu = request_totals {
            count: 200,
            total_ns: 1000,
            unserved_ns: 300,
            ..request_totals::default()
        };
        cpu.service[Part::Lock as usize] = 600;
        cpu.latency[5] = 198;
        cpu.latency[40] = 2;
        let so_far = SoFar::of_sums(&[cpu]);
        assert_eq!(so_far.requests, 200);
        assert_eq!(so_far.most, Some((Some(Part::Lock), 0.6)));
        assert_eq!(so_far.p99_ns, 5);
        assert_eq!(SoFar::of_sums(&[request_totals::default()]).most, None);
    }
}
