//! Whether this machine takes the BPF programs: part of `whywait check`.

use super::error::CaptureError;
use super::options::Options;
use super::programs::Programs;
use crate::collectors::samples::perf;

/// Loads the BPF programs without attaching them, and tries the sampling clock. Says what would be
/// missing.
///
/// # Errors
/// When whywait could not record at all.
pub fn rehearse() -> Result<Vec<String>, CaptureError> {
    let mut missing = Programs::load(&Options::default())?.notes;
    if let Err(error) = perf::cpu_clock(perf::online_cpus()[0], 5_000_000) {
        missing.push(format!(
            "no cpu-clock perf events ({error}): no stacks of threads that run"
        ));
    }
    Ok(missing)
}
