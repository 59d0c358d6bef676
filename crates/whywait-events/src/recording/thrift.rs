//! Just enough of Thrift's compact protocol to look at a Parquet footer or page header before the
//! decoder does.

/// The bytes are not what they should be; the text says in which way.
pub(crate) type Bad = &'static str;

/// Nesting beyond this is not Parquet.
const MAX_DEPTH: u32 = 16;

pub(crate) const I32: u8 = 5;
pub(crate) const LIST: u8 = 9;
pub(crate) const STRUCT: u8 = 12;

/// Walks over encoded bytes.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were walked over.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        let byte = *self.bytes.get(self.at).ok_or("cut off")?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, count: u64) -> Result<(), Bad> {
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err("cut off");
        }
        self.at += count as usize;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has too many bytes")
    }

    /// A signed number.
    pub(crate) fn integer(&mut self) -> Result<i64, Bad> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Calls `field` with the id and type of each field of a struct. It returns whether it took the
    /// value; what it does not take is skipped.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i64, u8) -> Result<bool, Bad>,
    ) -> Result<(), Bad> {
        self.fields_at(MAX_DEPTH, &mut field)
    }

    fn fields_at(
        &mut self,
        depth: u32,
        field: &mut dyn FnMut(&mut Self, i64, u8) -> Result<bool, Bad>,
    ) -> Result<(), Bad> {
        let mut id = 0i64;
        loop {
            let header = self.byte()?;
            let kind = header & 0x0f;
            if kind == 0 {
                return Ok(());
            }
            id = match header >> 4 {
                0 => self.integer()?,
                step => id.saturating_add(i64::from(step)),
            };
            if !field(self, id, kind)? {
                self.skip(kind, depth)?;
            }
        }
    }

    /// The length and the type of a list's elements.
    pub(crate) fn list(&mut self) -> Result<(u64, u8), Bad> {
        let header = self.byte()?;
        let length = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        // Each element takes a byte or more.
        if length > (self.bytes.len() - self.at) as u64 {
            return Err("a list is longer than the file");
        }
        Ok((length, header & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), Bad> {
        let depth = depth.checked_sub(1).ok_or("nested too deeply")?;
        match kind {
            1 | 2 => Ok(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            8 => {
                let length = self.varint()?;
                self.advance(length)
            }
            9 | 10 => {
                let (length, element) = self.list()?;
                for _ in 0..length {
                    match element {
                        // In a list, unlike in a field, a boolean has a byte of its own.
                        1 | 2 => self.advance(1)?,
                        _ => self.skip(element, depth)?,
                    }
                }
                Ok(())
            }
            STRUCT => self.fields_at(depth, &mut |_, _, _| Ok(false)),
            _ => Err("a field has an unexpected type"),
        }
    }
}
