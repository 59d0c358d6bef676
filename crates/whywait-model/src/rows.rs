//! Rows that are kept as they were read, up to so many.

use std::ops::{Deref, DerefMut};

/// Rows of one kind, `MAX` at most. Those beyond are counted, and reports say how many they were.
#[derive(Debug, Clone)]
pub struct Rows<T, const MAX: usize> {
    kept: Vec<T>,
    left_out: u64,
}

impl<T, const MAX: usize> Rows<T, MAX> {
    /// Adds a row; `false`: there was no room.
    pub fn push(&mut self, row: T) -> bool {
        let has_room = self.kept.len() < MAX;
        if has_room {
            self.kept.push(row);
        } else {
            self.leave_out();
        }
        has_room
    }

    /// Keeps only those of which this holds; the others are not wanted, and not left out.
    pub(crate) fn retain(&mut self, is_wanted: impl FnMut(&T) -> bool) {
        self.kept.retain(is_wanted);
    }

    /// Counts a row that is not kept.
    pub(crate) fn leave_out(&mut self) {
        self.left_out = self.left_out.saturating_add(1);
    }

    /// How many were not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Those that were.
    pub(crate) fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

impl<T, const MAX: usize> Default for Rows<T, MAX> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            left_out: 0,
        }
    }
}

impl<T, const MAX: usize> Deref for Rows<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.kept
    }
}

impl<T, const MAX: usize> DerefMut for Rows<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let mut rows: Rows<u32, 2> = Rows::default();
        assert_eq!([1, 2, 3].map(|row| rows.push(row)), [true, true, false]);
        assert_eq!((&rows[..], rows.left_out()), (&[1, 2][..], 1));
        assert_eq!(rows.into_kept(), [1, 2]);
    }
}
