//! The table `dns`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A DNS query over UDP that was not answered within 0.9 s: it was asked again, answered late,
    /// or neither until the recording ended.
    #[table(later)]
    #[span(sent_ns)]
    #[process(tgid)]
    pub struct DnsQuery {
        /// The process that asked.
        tgid: u32 = Dictionary,
        /// The thread that asked.
        tid: u32 = Dictionary,
        /// When it was sent.
        sent_ns: Ns = DeltaBounds,
        /// When it was asked again; `None`: it was not.
        again_ns: Option<Ns> = Delta {
            /// From `sent_ns` until it was asked again; NULL: it was not.
            again_after_ns since |row| row.sent_ns
        },
        /// When an answer was read; `None`: none was.
        answered_ns: Option<Ns> = Delta {
            /// From `sent_ns` until an answer was read; NULL: none was.
            answered_after_ns since |row| row.sent_ns
        },
        /// How many queries were on their way through that socket (of A and AAAA one may be lost).
        asked: u32 = Dictionary,
        /// The DNS server's address as text.
        server: String = Dictionary,
        /// Its port.
        server_port: u16 = Dictionary,
        /// How long the name is that was asked for, as text: bytes; 0: not known.
        name_length: u16 = Dictionary or 0,
        /// Which kind of record was asked for (RFC 1035: 1 is A, 28 is AAAA); 0: not known.
        question: u16 = Dictionary or 0,
    }
}
