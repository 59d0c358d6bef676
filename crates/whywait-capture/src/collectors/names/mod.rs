//! What requests and calls are called, where that is wanted. Their first bytes come here, or
//! HTTP/2's fields, a name is made of them, and nothing else of them is kept.

mod streams;

use std::collections::HashMap;

use whywait_events::recording::WriteError;
use whywait_events::{Event, NameKind, NameRow};
use whywait_names::{KeptNames, Said};

use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::options::{NamesWanted, Options};
use crate::core::programs::Programs;
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

use streams::NamedStreams;

/// Its programs are the hooks of sockets.
pub(crate) const COLLECTOR: Collector = Collector {
    configure: |configuration| {
        configuration.variables.names_wanted = configuration.options.names.any();
        configuration.variables.fields_wanted = configuration.options.names.routes;
    },
    takes: &[
        record_type::RECORD_NAME,
        record_type::RECORD_FIELDS,
        record_type::RECORD_STREAM_NAME,
    ],
    keeper: |_| Box::new(Namer::default()),
    ..Collector::NONE
};

/// So many prepared statements are known at a time: beyond them, all are learnt anew.
const MAX_PREPARED: usize = 1 << 14;

#[derive(Default)]
struct Namer {
    wanted: NamesWanted,
    routes: KeptNames,
    statements: KeptNames,
    /// By connection, and by what the statement was prepared under.
    prepared: HashMap<(u64, u64), String>,
    streams: NamedStreams,
    unnamed: u64,
    said_before: u64,
}

impl Keeper for Namer {
    fn start(&mut self, _: &mut Programs, options: &Options) -> Result<(), CaptureError> {
        self.wanted = options.names;
        Ok(())
    }

    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Name(record) => {
                let name = self.name_of(&record);
                if record.has_row == 0 {
                    return Ok(());
                }
                let at = (record.socket, record.seq, record.tgid, record.at_ns);
                self.write(at, name, shared)
            }
            Record::Fields(record) => {
                self.streams.take(&record);
                Ok(())
            }
            Record::StreamName(record) => {
                let name = self.streams.name_of(record.socket);
                self.said_before += u64::from(name == Some(None));
                let name = name.flatten().filter(|_| self.wanted.routes);
                let name = name.map(|name| (NameKind::Route, self.routes.keep(name)));
                let at = (record.socket, record.seq, record.tgid, record.at_ns);
                self.write(at, name, shared)
            }
            _ => Ok(()),
        }
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        match self.wanted.any() {
            true => vec![
                ("names.not-known".to_owned(), self.unnamed),
                ("names.said-before".to_owned(), self.said_before),
            ],
            false => Vec::new(),
        }
    }
}

impl Namer {
    /// Of a request or a call: its socket, its number there, its process and when its row was sent.
    fn write(
        &mut self,
        (socket, seq, tgid, at_ns): (u64, u32, u32, u64),
        name: Option<(NameKind, String)>,
        shared: &mut Shared,
    ) -> Result<(), WriteError> {
        let Some((kind, name)) = name else {
            self.unnamed += 1;
            return Ok(());
        };
        shared.output.write(&Event::Name(NameRow {
            socket,
            seq,
            tgid,
            at_ns,
            kind,
            name,
        }))
    }

    fn name_of(&mut self, record: &types::name_record) -> Option<(NameKind, String)> {
        let (kind, name) = match record.question {
            0 => self.by_bytes(record)?,
            question => (NameKind::Statement, whywait_names::question(question)),
        };
        let (wanted, kept) = match kind {
            NameKind::Route => (self.wanted.routes, &mut self.routes),
            NameKind::Statement => (self.wanted.statements, &mut self.statements),
        };
        (wanted && record.has_row != 0).then(|| (kind, kept.keep(name)))
    }

    fn by_bytes(&mut self, record: &types::name_record) -> Option<(NameKind, String)> {
        let length = usize::try_from(record.length).ok()?;
        let bytes = record.bytes.get(..length)?;
        let name = match whywait_names::said(bytes, record.total.into())? {
            Said::Route(name) => return Some((NameKind::Route, name)),
            Said::Statement(name) => name,
            Said::Prepares(key, name) => {
                let number = (record.prepared != 0).then(|| record.prepared.into());
                if let Some(key) = key.or(number) {
                    if self.prepared.len() >= MAX_PREPARED {
                        self.prepared.clear();
                    }
                    self.prepared.insert((record.socket, key), name.clone());
                }
                name
            }
            Said::Runs(key) => self.prepared.get(&(record.socket, key))?.clone(),
        };
        Some((NameKind::Statement, name))
    }
}
