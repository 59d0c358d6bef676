//! Pictures of a finished analysis, and formats that other tools read.
//!
//! [`html`] is one file that joins the verdict, pictures and tables, to be attached to a ticket.
//!
//! As in `whywait-report`, nothing here measures or judges, and nothing prints: a view is a
//! function of the model and its report. Each picture is laid out as plain data first, and then
//! drawn.

mod clock;
mod folded;
mod html;
mod markdown;
mod otlp;
mod palette;
mod perfetto;
mod pprof;
mod protobuf;
pub mod stacks;

pub use folded::folded;
pub use html::{diff, html};
pub use markdown::{MAX_CHARACTERS, markdown};
pub use otlp::otlp;
pub use perfetto::perfetto;
pub use pprof::pprof;
