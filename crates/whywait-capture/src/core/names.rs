//! Names for the frames of ELF files, at the recording's end; and why there are none.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Module, ModuleKind};
use whywait_stacks::{Symboliser, Unnamed, UnreadRuntime, WhyUnnamed};

use super::limits;
use super::output::Output;

/// A module is worth a note if one in so many frames of files is unnamed and of it.
const NOTED_SHARE: usize = 10;
/// Modules that get a note of their own.
const MAX_NOTES: usize = 3;

/// Names the frames that were written. Returns notes on those that got no names: why, and what to
/// do.
pub(crate) fn name_frames(
    output: &mut Output,
    symboliser: &mut Symboliser,
) -> Result<Vec<String>, WriteError> {
    let frames = output.frames();
    let unwinder = &output.unwinder;
    let mapped = |module: u32| unwinder.file(module);
    let symbols = symboliser.symbolise(output.modules(), &frames, Some(&mapped));
    let mut notes: Vec<String> = unwinder
        .unreadable()
        .take(MAX_NOTES)
        .map(|path| unreadable(path, &limits::lacks_to_read()))
        .collect();
    let of_files = |module: u32| {
        let mut modules = output.modules().iter();
        modules.any(|it| it.id == module && it.kind == ModuleKind::Elf)
    };
    let of_files = frames.iter().filter(|frame| of_files(frame.module)).count();
    let lacking = symboliser.unnamed().iter();
    let lacking = lacking.filter(|it| !unwinder.is_runtime(it.module));
    notes.extend(unnamed(output.modules(), lacking, of_files));
    notes.extend(unwinder.unread_runtimes().map(compiled));
    if unwinder.hides_kernel() {
        notes.push(limits::NO_KERNEL_NAMES.to_owned());
    }
    if unwinder.not_kept() > 0 {
        notes.push(NOT_KEPT.to_owned());
    }
    output
        .writer
        .counter("lost.file-names", symboliser.failures());
    for symbol in symbols {
        output.write(&Event::Symbol(symbol))?;
    }
    Ok(notes)
}

fn compiled(runtime: UnreadRuntime) -> String {
    let how = runtime.how();
    format!("functions that were compiled at run time have no names (`[jit]`): {how}")
}

const NOT_KEPT: &str = "unwind tables, mappings and names of the target took more memory than \
                        whywait allows itself: some stacks are cut short or lack names";

/// `lacks`: the capabilities that whywait does not have, though reading the target's files needs
/// them.
fn unreadable(path: &str, lacks: &[&str]) -> String {
    let why = match lacks {
        [] => {
            "the file cannot be read with all privileges either: it has gone, is no regular file, \
               or lies on a file system that only its own user may read"
                .to_owned()
        }
        lacks => format!(
            "whywait may not read this file: it lacks {} here",
            lacks.join(" and ")
        ),
    };
    format!("functions of {path} have no names: {why}")
}

fn unnamed<'a>(
    modules: &[Module],
    unnamed: impl Iterator<Item = &'a Unnamed>,
    frames: usize,
) -> Vec<String> {
    let mut most: Vec<&Unnamed> = unnamed
        .filter(|it| it.frames.saturating_mul(NOTED_SHARE) >= frames)
        .collect();
    most.sort_by_key(|it| std::cmp::Reverse(it.frames));
    let note = |it: &Unnamed| {
        let module = modules.iter().find(|module| module.id == it.module)?;
        // The kernel's own ([vdso]) is no file that somebody could do something about.
        if !module.path.starts_with('/') {
            return None;
        }
        let (path, build_id) = (&module.path, &module.build_id);
        Some(match it.why {
            WhyUnnamed::Gone => format!(
                "functions of {path} have no names: the file was deleted or replaced since it was \
                 started; record again after a restart"
            ),
            WhyUnnamed::Failed => format!(
                "functions of {path} have no names: reading them took too much time or memory, or \
                 the file is damaged"
            ),
            WhyUnnamed::NoFunctions => format!(
                "functions of {path} have no names: what is called there is no function by its \
                 symbols, as GHC makes Haskell's"
            ),
            WhyUnnamed::Stripped if build_id.is_empty() => format!(
                "functions of {path} have no names: it has no symbols (it is stripped); build it \
                 without strip or -s"
            ),
            WhyUnnamed::Stripped => format!(
                "functions of {path} have no names: it has no symbols (it is stripped); build it \
                 without strip or -s, install its debug symbols (build-id {build_id}), or name the \
                 folder that has them: --debug-files"
            ),
        })
    };
    most.into_iter().take(MAX_NOTES).filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(id: u32, build_id: &str) -> Module {
        Module {
            id,
            build_id: build_id.to_owned(),
            path: format!("/bin/{id}"),
            ..Module::default()
        }
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        let lacks = ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"];
        let note = unreadable("/srv/app", &lacks);
        assert!(
            note.ends_with("it lacks CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH here"),
            "{note}"
        );
        let note = unreadable("/srv/app", &[]);
        assert!(
            note.contains("with all privileges") && !note.contains("root"),
            "{note}"
        );
    }

    #[test]
    fn only_what_matters_is_noted_the_most_first() {
        let modules = [module(1, "ab12"), module(2, ""), module(3, "")];
        let lack = |module, frames, why| Unnamed {
            module,
            frames,
            why,
        };
        let all = [
            lack(1, 12, WhyUnnamed::Stripped),
            lack(2, 9, WhyUnnamed::Stripped),
            lack(3, 40, WhyUnnamed::Gone),
        ];
        let notes = unnamed(&modules, all.iter(), 100);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("/bin/3") && notes[0].contains("deleted or replaced"));
        assert!(notes[1].contains("/bin/1") && notes[1].contains("build-id ab12"));
        assert_eq!(unnamed(&modules, [].iter(), 0), [""; 0]);
        let vdso = Module {
            path: "[vdso]".to_owned(),
            ..module(1, "ab12")
        };
        assert_eq!(unnamed(&[vdso], all.iter(), 100), [""; 0], "no file");
    }
}
