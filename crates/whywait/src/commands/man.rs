//! `whywait man`: the manual pages, made from the same declarations as the help texts.

use std::fs;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::output;

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<u8> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page)?;
        output::write_bytes(&page, None)?;
        return Ok(0);
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(0)
}
