//! Bytes that are read from the front, and may end anywhere.

/// What is left of some bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front<'a>(pub(crate) &'a [u8]);

impl<'a> Front<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// What comes before a zero, which is taken, too; or all that is there, and `false`.
    pub(crate) fn text(&mut self) -> (&'a [u8], bool) {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = &self.0[end.map_or(self.0.len(), |end| end + 1)..];
        (text, end.is_some())
    }
}
