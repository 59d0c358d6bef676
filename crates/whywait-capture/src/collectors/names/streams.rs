//! The names of HTTP/2's streams. Their fields come in pieces, as they lie in the program's memory.

use std::collections::HashMap;

use whywait_names::FieldTable;

use crate::core::skel::types;

/// So many connections have a table at a time, which is more than are followed at a time: beyond
/// them, all are learnt anew.
const MAX_CONNECTIONS: usize = 1 << 12;
/// A block of fields is no longer, nor is what most servers take of a request.
const MAX_BLOCK: usize = 64 << 10;

/// RFC 9113, 6.2.
mod frame {
    pub(super) const HEADERS: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
    pub(super) const PADDED: u8 = 8;
    pub(super) const PRIORITY: u8 = 32;
}

#[derive(Default)]
pub(super) struct NamedStreams {
    /// By the number of the connection.
    connections: HashMap<u32, Fields>,
    /// What open streams are called, by their number; `None`: their fields do not say it …
    names: HashMap<u64, Option<String>>,
    /// … which they have by place: what was there before is over.
    places: HashMap<u32, u64>,
}

/// What a client sends of fields on a connection.
#[derive(Default)]
struct Fields {
    table: FieldTable,
    /// The last piece that was seen.
    piece: u32,
    /// What there is of the block that is being put together; `None`: its beginning is missing.
    block: Option<Vec<u8>>,
    /// … and of its last frame, with all that a frame has.
    frame: Vec<u8>,
    /// The stream that the block begins: its place, and its number.
    stream: (u32, u64),
}

impl NamedStreams {
    /// What the stream of that number is called. `None`: its fields were not seen; and within: they
    /// do not say it, as they refer to what was said before the recording.
    #[expect(clippy::option_option, reason = "both are ways to have no name")]
    pub(super) fn name_of(&self, socket: u64) -> Option<Option<String>> {
        self.names.get(&socket).cloned()
    }

    pub(super) fn take(&mut self, record: &types::fields_record) {
        if self.connections.len() >= MAX_CONNECTIONS
            && !self.connections.contains_key(&record.connection)
        {
            self.connections.clear();
        }
        let fields = self.connections.entry(record.connection).or_default();
        let Some((name, (place, socket))) = fields.take(record) else {
            return;
        };
        if place == 0 {
            return;
        }
        if let Some(before) = self.places.insert(place, socket) {
            self.names.remove(&before);
        }
        self.names.insert(socket, name);
    }
}

impl Fields {
    /// One more piece. With the last one of a block: what it calls which stream.
    fn take(&mut self, record: &types::fields_record) -> Option<(Option<String>, (u32, u64))> {
        let bytes = record.bytes.get(..usize::from(record.length))?;
        if record.piece != self.piece.wrapping_add(1) {
            self.forget();
        }
        self.piece = record.piece;
        if record.begins != 0 {
            self.frame.clear();
            if record.frame == frame::HEADERS {
                self.block = Some(Vec::new());
                self.stream = (record.stream, record.socket);
            }
        }
        if self.frame.len() > MAX_BLOCK {
            self.forget();
            return None;
        }
        self.frame.extend_from_slice(bytes);
        if usize::try_from(record.left).ok()? > bytes.len() {
            return None;
        }
        let block = self.block.as_mut()?;
        let frame = std::mem::take(&mut self.frame);
        let fields = match record.frame {
            frame::HEADERS => fields_of(&frame, record.flags),
            _ => Some(&frame[..]),
        };
        match fields {
            Some(fields) if block.len() + fields.len() <= MAX_BLOCK => {
                block.extend_from_slice(fields);
            }
            _ => {
                self.forget();
                return None;
            }
        }
        if record.flags & frame::END_HEADERS == 0 {
            return None;
        }
        let block = self.block.take()?;
        match self.table.name(&block) {
            Ok(name) => Some((name, self.stream)),
            Err(_) => {
                self.forget();
                None
            }
        }
    }

    /// Something is missing: what the table has is at other places than the client thinks.
    fn forget(&mut self) {
        self.table = FieldTable::default();
        self.block = None;
        self.frame.clear();
    }
}

/// What the payload of HEADERS has of fields: not the padding and the priority.
fn fields_of(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (padding, rest) = match flags & frame::PADDED {
        0 => (0, payload),
        _ => {
            let (padding, rest) = payload.split_first()?;
            (usize::from(*padding), rest)
        }
    };
    let rest = rest.get(..rest.len().checked_sub(padding)?)?;
    match flags & frame::PRIORITY {
        0 => Some(rest),
        _ => rest.get(5..),
    }
}
