//! MySQL's and MariaDB's protocol: queries as text, and prepared ones.

use crate::Said;
use crate::front::Front;
use crate::sql::{self, Dialect};

const COM_INIT_DB: u8 = 0x02;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// What the packets that a client sends say. Those that close a statement want no answer: the one
/// behind them counts.
pub(crate) fn said(bytes: &[u8], total: u64) -> Option<Said> {
    let mut front = Front(bytes);
    loop {
        let head = front.take(4)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let done = (bytes.len() - front.0.len()) as u64;
        // Each command begins with packet 0.
        if head[3] != 0 || length == 0 || done + u64::from(length) > total {
            return None;
        }
        let there = usize::try_from(length).ok()?.min(front.0.len());
        let whole = there as u64 == u64::from(length);
        let mut packet = Front(front.take(there)?);
        let command = packet.byte()?;
        let name = |text: &str| Some(Said::Statement(text.to_owned()));
        match (command, length) {
            (COM_STMT_CLOSE, 5) => {}
            (COM_QUERY, _) => {
                // Newer clients say first how many attributes the query has.
                if let [0, 1, rest @ ..] = packet.0 {
                    packet.0 = rest;
                }
                let text = sql::template(packet.0, whole, Dialect::MySql)?;
                return Some(Said::Statement(text));
            }
            (COM_STMT_PREPARE, _) => {
                let text = sql::template(packet.0, whole, Dialect::MySql)?;
                return Some(Said::Prepares(None, text));
            }
            (COM_STMT_EXECUTE, 10..) => {
                let id = packet.take(4)?;
                let id = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
                return Some(Said::Runs(id.into()));
            }
            (COM_PING, 1) => return name("ping"),
            (COM_RESET_CONNECTION, 1) => return name("reset of the connection"),
            (COM_INIT_DB, 2..) if packet.0.iter().all(u8::is_ascii_graphic) => {
                return name("USE ?");
            }
            _ => return None,
        }
    }
}
