//! Whether this machine takes the BPF programs: part of `whywait check`.

use super::error::CaptureError;
use super::options::Options;
use super::perf;
use super::programs::Programs;
use super::tier::Tier;

/// What this machine takes of whywait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsal {
    /// The kernel's functions that the programs call.
    pub functions: String,
    /// By which means a recording is made here.
    pub tier: Tier,
    /// What a recording lacks here.
    pub missing: Vec<String>,
}

/// Loads the BPF programs without attaching them, and tries the sampling clock.
///
/// # Errors
/// When whywait could not record at all.
pub fn rehearse(options: &Options) -> Result<Rehearsal, CaptureError> {
    let programs = Programs::load(options, 0)?;
    let tier = programs.tier();
    let mut missing = programs.notes;
    if let Err(error) = perf::cpu_clock(perf::online_cpus()[0], 5_000_000) {
        missing.push(format!(
            "no cpu-clock perf events ({error}): no stacks of threads that run"
        ));
    }
    Ok(Rehearsal {
        functions: programs.functions.said(),
        tier,
        missing,
    })
}
