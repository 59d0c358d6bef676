//! The seam to the analysis.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use whywait_report::Report;

/// Analyses a recording.
///
/// # Errors
/// Fails when there is no recording at `dir`, or it cannot be read.
pub(crate) fn analyse(dir: &Path) -> anyhow::Result<Report> {
    is_recording(dir)?;
    bail!("{}: the analysis is not built yet", dir.display())
}

/// Says plainly what is wrong with a folder that is no recording, before anything tries to read it.
fn is_recording(dir: &Path) -> anyhow::Result<()> {
    let shown = dir.display();
    match dir.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no {shown}: name the folder that `whywait record` wrote")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {shown}")),
        Ok(metadata) if !metadata.is_dir() => {
            bail!("{shown} is not a folder: name the folder that `whywait record` wrote")
        }
        Ok(_) => {}
    }
    match dir.join("meta.json").metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{shown} is not a recording (it has no meta.json): name the folder that `whywait record` wrote")
        }
        Err(error) => Err(error).with_context(|| {
            format!("cannot read the recording {shown} (it belongs to the user who made it; try as that user)")
        }),
    }
}
