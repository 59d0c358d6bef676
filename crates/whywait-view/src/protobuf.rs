//! Writes protocol buffers: just what profiles and traces need.

/// A message, as far as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    /// A number. A 0 is what a field has that is not there: it is not written.
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        if value != 0 {
            self.key(field, VARINT);
            self.varint(value);
        }
        self
    }

    /// A number that is written when it is 0, too: where a field must be there.
    pub(crate) fn value(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    /// A number of fixed length: 64 bits.
    pub(crate) fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, FIXED);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Numbers, packed.
    pub(crate) fn numbers(&mut self, field: u32, values: &[u64]) -> &mut Self {
        let mut packed = Message::default();
        values.iter().for_each(|value| packed.varint(*value));
        self.bytes(field, &packed.0)
    }

    /// A text. It is written even when it is empty: lists of texts have such.
    pub(crate) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// A message within this one.
    pub(crate) fn message(&mut self, field: u32, inner: &Message) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Reads messages back, for tests: a field's number, and what is in it.
#[cfg(test)]
pub(crate) mod read {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) enum FieldValue {
        Number(u64),
        Bytes(Vec<u8>),
    }

    impl FieldValue {
        pub(crate) fn bytes(&self) -> &[u8] {
            match self {
                FieldValue::Bytes(bytes) => bytes,
                FieldValue::Number(_) => panic!("it is a number"),
            }
        }
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a number ends");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    /// The fields of a message.
    pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u32, FieldValue)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => FieldValue::Number(varint(&mut bytes)),
                1 => {
                    let (value, rest) = bytes.split_at(8);
                    bytes = rest;
                    let value = value.try_into().expect("eight bytes");
                    FieldValue::Number(u64::from_le_bytes(value))
                }
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    FieldValue::Bytes(value.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push(((key >> 3) as u32, value));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::read::{FieldValue, fields};
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut inner = Message::default();
        inner.number(1, 300).number(2, 0).text(3, "");
        let mut message = Message::default();
        message
            .message(16, &inner)
            .number(1, u64::MAX)
            .numbers(2, &[1, 128]);
        let bytes = message.into_bytes();
        let read = fields(&bytes);
        assert_eq!(read[0].0, 16);
        assert_eq!(
            fields(read[0].1.bytes()),
            [
                (1, FieldValue::Number(300)),
                (3, FieldValue::Bytes(Vec::new()))
            ]
        );
        assert_eq!(read[1], (1, FieldValue::Number(u64::MAX)));
        assert_eq!(read[2], (2, FieldValue::Bytes(vec![1, 128, 1])));
    }
}
