//! A scale of latencies of which the part where there are none is cut short.

use super::svg::Log;

/// From this share of the scale on, and this factor, a part without any is cut short.
const LARGE: f64 = 0.3;
const FACTOR: u64 = 5;
/// So large it is then.
const SHORT: usize = 2;
/// What lies at its ends is not within it: as a factor's logarithm.
const BESIDE: f64 = 0.02;

/// A logarithmic scale in rows, from the bottom, with a part that is cut short, or without one.
pub(crate) struct Scale {
    /// From which row on, how many rows, and what they stand for.
    pieces: Vec<(usize, usize, Log)>,
    rows: usize,
    gap: Option<Gap>,
}

/// A part of the scale in which there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The last latency below it.
    pub(crate) from_ns: u64,
    /// The first one above it.
    pub(crate) to_ns: u64,
    /// Its first row.
    pub(crate) row: usize,
    /// The first row above it.
    pub(crate) end: usize,
}

impl Scale {
    /// Of some latencies, at least one, in so many rows.
    pub(crate) fn new(mut latencies: Vec<u64>, rows: usize) -> Self {
        latencies.sort_unstable();
        let (least, most) = (latencies[0], latencies[latencies.len() - 1]);
        let whole = Log::new(least, most);
        let largest = latencies
            .windows(2)
            .map(|two| (whole.at(two[1]) - whole.at(two[0]), two[0], two[1]))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .filter(|(share, from, to)| *share >= LARGE && to / FACTOR >= *from);
        let Some((share, from_ns, to_ns)) = largest else {
            return Self {
                pieces: vec![(0, rows, whole)],
                rows,
                gap: None,
            };
        };
        let left = rows - SHORT;
        let below = whole.at(from_ns) / (1.0 - share);
        let below = ((below * left as f64).round() as usize).clamp(1, left - 1);
        let gap = Gap {
            from_ns,
            to_ns,
            row: below,
            end: below + SHORT,
        };
        let pieces = vec![
            (0, below, Log::between(least, from_ns).wider(0.0, BESIDE)),
            (
                below,
                SHORT,
                Log::between(from_ns, to_ns).wider(-BESIDE, -BESIDE),
            ),
            (
                gap.end,
                left - below,
                Log::between(to_ns, most).wider(BESIDE, 0.0),
            ),
        ];
        Self {
            pieces,
            rows,
            gap: Some(gap),
        }
    }

    pub(crate) fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// Where a latency lies, from 0 to 1.
    pub(crate) fn at(&self, ns: u64) -> f64 {
        let within = self.pieces.iter().find(|(.., log)| log.ends(ns));
        let (from, rows, log) = within.unwrap_or(&self.pieces[self.pieces.len() - 1]);
        (*from as f64 + log.at(ns) * *rows as f64) / self.rows as f64
    }

    /// In which row a latency is.
    pub(crate) fn row(&self, ns: u64) -> usize {
        ((self.at(ns) * self.rows as f64) as usize).min(self.rows - 1)
    }

    /// The latency where a row begins.
    pub(crate) fn begins(&self, row: usize) -> u64 {
        let within = self.pieces.iter().find(|(at, rows, _)| row <= at + rows);
        let (from, rows, log) = within.unwrap_or(&self.pieces[self.pieces.len() - 1]);
        log.value((row - from) as f64 / *rows as f64)
    }

    /// What its labels say: none of what is cut short.
    pub(crate) fn ticks(&self) -> Vec<u64> {
        let gap = self.gap.map(|gap| gap.row);
        let shown = self.pieces.iter().filter(|(from, ..)| Some(*from) != gap);
        shown.flat_map(|(.., log)| log.ticks()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn where_there_are_some_everywhere_nothing_is_cut_short() {
        let scale = Scale::new((1..=14).map(|n| MS << n).collect(), 14);
        assert_eq!(scale.gap(), None);
        // Nor where it is all of a narrow scale, but nobody would miss a decade.
        assert_eq!(Scale::new(vec![166 * MS, 244 * MS], 14).gap(), None);
        assert_eq!((scale.row(2 * MS), scale.row(MS << 14)), (0, 13));
    }

    #[test]
    fn what_lies_between_the_quick_and_the_slow_is_cut_short() {
        let latencies = vec![2 * MS, 3 * MS, 5 * MS, 180 * MS, 200 * MS, 800 * MS];
        let scale = Scale::new(latencies.clone(), 14);
        let gap = scale.gap().expect("it is large");
        assert_eq!((gap.from_ns, gap.to_ns), (5 * MS, 180 * MS));
        assert_eq!(gap.end - gap.row, SHORT);
        // Each is in its row, and none in those of the gap.
        let rows: Vec<usize> = latencies.iter().map(|ns| scale.row(*ns)).collect();
        assert!(
            rows.is_sorted() && rows[0] == 0 && rows[5] == 13,
            "{rows:?}"
        );
        assert!(rows[2] < gap.row && rows[3] >= gap.end, "{rows:?}");
        for (ns, row) in latencies.iter().zip(rows) {
            // A nanosecond is rounding.
            let (from, to) = (scale.begins(row), scale.begins(row + 1));
            assert!((from..=to + 1).contains(ns), "{ns}: {from} to {to}");
        }
        for tick in scale.ticks() {
            assert!(!(6 * MS..=170 * MS).contains(&tick), "{tick}");
        }
    }

    #[test]
    fn one_at_each_end_has_a_row() {
        let scale = Scale::new(vec![MS, 1_000 * MS], 14);
        let gap = scale.gap().expect("it is large");
        assert_eq!(scale.row(MS), 0);
        assert!((gap.end..14).contains(&scale.row(1_000 * MS)));
    }
}
