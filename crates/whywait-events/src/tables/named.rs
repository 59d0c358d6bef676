//! The table `names`.

use crate::Ns;
use crate::names::names;
use crate::recording::table;

names! {
    /// What a name is one of.
    pub enum NameKind, default Statement, unknown names Statement {
        /// The method and the path of HTTP, as a template: `GET /orders/{id}`.
        Route = 0 "route",
        /// What is asked of a database: SQL with its values replaced, a command of Redis, a kind of
        /// record of DNS.
        Statement = 1 "statement",
    }
}

table! {
    /// What a request or a call that has a row is called. Only where names were asked for
    /// (`--names`). At most 200 different routes, and 200 statements: the rest are `all others`.
    ///
    /// A row may come twice for the same (`socket`, `seq`): the later one replaces the earlier one.
    #[table(later)]
    #[span(at_ns)]
    #[process(tgid)]
    pub struct NameRow {
        /// The connection, as in `requests` or in `exchanges`.
        socket: u64 = Dictionary,
        /// The request or the call on it, likewise.
        seq: u32 = Delta,
        /// The process that read it, or sent it.
        tgid: u32 = Dictionary,
        /// When the row was made.
        at_ns: Ns = DeltaBounds,
        /// What the name is one of.
        kind: NameKind = Dictionary,
        /// The name: ASCII, without values.
        name: String = Dictionary,
    }
}
