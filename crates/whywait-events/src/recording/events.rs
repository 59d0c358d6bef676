//! What follows from the list of tables: the events, and where their rows go.

/// Declares the tables of a recording. A line is the table's name, the type of its rows and, where
/// one row is one event, the name of that event.
macro_rules! tables {
    (
        tables { $($table:ident: $row:ty $(as $event:ident)?,)+ }
        events of several rows { $($(#[doc = $doc:literal])+ $record:ident($content:ty),)* }
    ) => {
        /// One thing that the capture records.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $($(
                #[doc = concat!("A row of the table `", stringify!($table), "`.")]
                $event($row),
            )?)+
            $($(#[doc = $doc])+ $record($content),)*
        }

        const _: () = {
            use $crate::recording::declaration::*;

            impl Record for Event {
                fn rows<S: Sink>(&self, sink: &mut S) -> std::result::Result<(), S::Error> {
                    match self {
                        $($(Event::$event(record) => record.rows(sink),)?)+
                        $(Event::$record(record) => record.rows(sink),)*
                    }
                }

                fn span(&self) -> Option<(Ns, Option<Ns>)> {
                    match self {
                        $($(Event::$event(record) => Record::span(record),)?)+
                        $(Event::$record(record) => Record::span(record),)*
                    }
                }

                fn stacks(&self) -> Vec<StackId> {
                    match self {
                        $($(Event::$event(record) => Record::stacks(record),)?)+
                        $(Event::$record(record) => Record::stacks(record),)*
                    }
                }
            }

            $(impl Table for $row {
                const NAME: &'static str = stringify!($table);

                fn writer(writers: &mut Writers) -> &mut TableWriter<Self> {
                    &mut writers.$table
                }

                fn rows(
                    file: &TableReader,
                    range: Option<&Range<Ns>>,
                    visit: &mut dyn FnMut(&Self),
                ) -> std::result::Result<u64, Reason> {
                    file.rows(range, visit)
                }
            })+

            #[cfg(test)]
            impl MadeUp for Event {
                fn made_up(layout: Layout) -> BoxedStrategy<Self> {
                    let events = vec![
                        $($(<$row>::made_up(layout).prop_map(Event::$event).boxed(),)?)+
                        $(<$content>::made_up(layout).prop_map(Event::$record).boxed(),)*
                    ];
                    Union::new(events).boxed()
                }
            }
        };

        /// A writer for each table.
        #[derive(Default)]
        pub struct Writers {
            $($table: $crate::recording::TableWriter<$row>,)+
        }

        impl Writers {
            /// Completes the files of the open segment.
            pub(crate) fn close(
                &mut self,
                place: &$crate::recording::SegmentPlace<'_>,
            ) -> Result<(), $crate::recording::WriteError> {
                $(self.$table.close(place)?;)+
                Ok(())
            }

            /// Drops what is buffered and what is open.
            pub(crate) fn abandon(&mut self) {
                $(self.$table.abandon();)+
            }
        }

        /// Visits each table, in order.
        pub(crate) fn each_table(visit: &mut impl $crate::recording::Tables) {
            $(visit.table::<$row>();)+
        }
    };
}
pub(crate) use tables;
