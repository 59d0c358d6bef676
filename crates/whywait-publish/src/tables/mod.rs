//! The published tables: each is declared once, in a file of this folder, and listed here.

mod findings;
mod recordings;
mod request_parts;
mod requests;
mod samples;
mod upstreams;
mod waits;

use whywait_events::recording::ReadError;

use crate::Source;
#[cfg(test)]
use crate::table::PublishedColumn;
use crate::table::{AnyTable, PublishedRow};

/// A table, and how its rows are made.
pub struct PublishedTable {
    /// Its name.
    pub name: &'static str,
    pub(crate) make: fn(&Source<'_>) -> Result<AnyTable, ReadError>,
    #[cfg(test)]
    pub(crate) about: &'static [&'static str],
    #[cfg(test)]
    pub(crate) columns: &'static [PublishedColumn],
}

/// The table whose file comes last: who sees its row sees all the others.
pub(crate) const LAST: &str = recordings::RecordingRow::NAME;

macro_rules! tables {
    ($($module:ident: $row:ident),+ $(,)?) => {
        /// The tables, in the order in which they are published.
        pub const TABLES: &[PublishedTable] = &[$(PublishedTable {
            name: $module::$row::NAME,
            make: |source| $module::rows(source).map(crate::any),
            #[cfg(test)]
            about: $module::$row::ABOUT,
            #[cfg(test)]
            columns: $module::$row::COLUMNS,
        }),+];
    };
}

tables! {
    samples: SampleRow,
    request_parts: PartRow,
    requests: RequestRow,
    waits: WaitedRow,
    upstreams: UpstreamRow,
    findings: FindingRow,
    recordings: RecordingRow,
}

/// Which tables to publish. `recordings` always is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<&'static str>);

impl Default for Selection {
    fn default() -> Self {
        Self(TABLES.iter().map(|table| table.name).collect())
    }
}

impl Selection {
    /// These tables; `None` when there is no table of such a name.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let named = |name: &str| TABLES.iter().find(|table| table.name == name);
        let mut all = vec![LAST];
        for name in names {
            all.push(named(name)?.name);
        }
        Some(Self(all))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}
