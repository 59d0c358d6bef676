//! The process without privileges that reads names from the target's files: `whywait __names`, see
//! `commands/names.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use whywait_stacks::Symboliser;

/// The process. It ends when dropped.
pub(crate) struct Naming {
    helper: Option<Child>,
    jobs: Option<UnixStream>,
}

impl Naming {
    /// Starts it. To be called while whywait may still change users. Where it cannot be started,
    /// frames of files get no names.
    pub(crate) fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // What nobody reads. Not /dev/null, which not every root has.
        let (_, nobody) = io::pipe()?;
        // Not the path of whywait's file: it may have been replaced, or be out of reach by now.
        let helper = Command::new("/proc/self/exe")
            .arg0("whywait")
            .arg("__names")
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(nobody.try_clone()?)
            .stderr(nobody)
            // What a terminal sends to whywait is not meant for it.
            .process_group(0)
            .spawn()
            .ok();
        Ok(Self {
            helper,
            jobs: Some(ours),
        })
    }

    /// Names by this process.
    pub(crate) fn symboliser(&mut self) -> Symboliser {
        self.jobs
            .take()
            .map_or_else(Symboliser::new, Symboliser::with_helper)
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        // It has no more to do, and may be busy with what nobody waits for.
        if let Some(helper) = &mut self.helper {
            let _ = helper.kill();
            let _ = helper.wait();
        }
    }
}
