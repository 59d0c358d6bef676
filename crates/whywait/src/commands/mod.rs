//! One file for each verb. Each gives the exit code, or the error to report.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod gate;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod pack;
pub(crate) mod publish;
pub(crate) mod record;
pub(crate) mod repeat;
pub(crate) mod report;
pub(crate) mod rotate;
pub(crate) mod watch;
