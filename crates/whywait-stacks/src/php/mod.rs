//! PHP's frames, read from outside out of the engine's own structures (8.2 and 8.4, without
//! threads): see [`interpreter`](crate::interpreter).
//!
//! A process runs one script at a time, on its first thread. Frames are chained; a flag says that C
//! has called one: then a call of the engine's loop ends with it, unless its function is in C
//! itself. Code that opcache compiled runs within the loop's own frame, and counts as the loop.
//!
//! The version is that of the interface for modules, which the first module states.

mod declared;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(any(test, fuzzing))]
mod made_up;
mod tables;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use whywait_events::ModuleKind;

use crate::budget::{Budget, Charge};
use crate::elf::{u32_at, u64_at};
use crate::interpreter::{
    CodeNames, CodePlace, CodePlaces, CopiedFrames, CopiedFunction, FoundInterpreter, FramePlaces,
    Interpreter, LastOfCall, LoopCalls, RawFrame, StatePlace, frame_at,
};
use crate::loss::{Language, Unread};
use crate::modules::{Image, Modules};
use crate::perf_map::own_id;
use crate::process::{Process, object, word};
use declared::declared;
use tables::LAYOUTS;

/// Offsets and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhpLayout {
    /// `zend_executor_globals`: the innermost frame, and the tables of functions and classes.
    current: u64,
    functions: u64,
    classes: u64,
    /// `zend_execute_data`: a frame.
    instruction: u64,
    function: u64,
    call_info: u64,
    previous: u64,
    /// `zend_function`, and what one in PHP has besides.
    kind: u64,
    flags: u64,
    name: u64,
    class: u64,
    code: u64,
    code_count: u64,
    file: u64,
    first_line: u64,
    /// `zend_op`.
    instruction_bytes: u64,
    line: u64,
    /// `zend_class_entry`.
    class_name: u64,
    class_flags: u64,
    class_functions: u64,
    /// `zend_string`.
    string_length: u64,
    string_bytes: u64,
    /// `zend_array`, and its entries.
    table_items: u64,
    table_used: u64,
    table_size: u64,
    item_bytes: u64,
    item_value: u64,
    item_type: u64,
    /// `zend_module_entry`.
    module_version: u64,
    module_zts: u64,
    /// Of a frame that C has called: the flag.
    top: u32,
    /// The type of an entry with an address.
    pointer: u8,
    /// Flags of functions and classes: nobody writes to it, a trait's method that a class has, and
    /// a trait.
    immutable: u32,
    of_trait: u32,
    is_trait: u32,
}

/// The engine in a process.
#[derive(Debug)]
pub(crate) struct Php {
    layout: PhpLayout,
    /// Address of `executor_globals`.
    globals: u64,
    /// It runs one script and ends.
    runs_one: bool,
    /// The thread that runs scripts, in the process's own pid namespace.
    thread: u32,
    functions: HashMap<[u64; 4], Arc<CodeNames>>,
    places: CodePlaces,
    /// For places of functions that were not met.
    places_charge: Charge,
    next_look: NextLook,
    budget: Budget,
}

/// When the functions that are declared may be looked through.
#[derive(Debug, Default)]
struct NextLook {
    /// `None`: now.
    at: Option<Instant>,
    /// So many looks in a row found nothing new.
    in_vain: u32,
}

impl NextLook {
    fn is_due(&self) -> bool {
        self.at.is_none_or(|at| Instant::now() >= at)
    }

    fn put_off(&mut self, took: Duration, found: bool) {
        self.in_vain = if found {
            0
        } else {
            (self.in_vain + 1).min(MOST_DOUBLED)
        };
        self.at = Some(Instant::now() + took * LOOKING_SHARE * (1 << self.in_vain));
    }
}

/// All that is declared is looked through in at most one in so many parts of the time…
const LOOKING_SHARE: u32 = 100;
/// … and half as often after each look that found nothing new, down to once in some minutes: code
/// outside of any function is in no table, and a process may wait there again and again.
const MOST_DOUBLED: u32 = 12;
/// What a place takes.
const PLACE: usize = 2 * size_of::<(u64, (u64, u64))>();

/// Beginnings of the names of files that may have the engine.
const FILES: &[&[u8]] = &[b"php", b"libphp"];
/// How much is read of functions in PHP and in C.
const FUNCTION_BYTES: usize = 192;
const C_FUNCTION_BYTES: usize = 32;
const MAX_FUNCTIONS: usize = 1 << 16;
const MAX_STRING: u64 = 4096;
/// Functions of thousands of lines have less.
const MAX_CODE: u64 = 1 << 20;
/// What a function takes beside its strings and lines.
const FUNCTION: usize = 2 * size_of::<([u64; 4], Arc<CodeNames>)>() + size_of::<CodeNames>();

/// Kinds of functions.
const IN_C: u8 = 1;
const IN_PHP: u8 = 2;
const EVALUATED: u8 = 4;
/// The type in a string's header.
const STRING: u32 = 6;
const TYPE: u32 = 0xf;
/// Kinds of classes.
const CLASSES: [u8; 2] = [1, 2];
/// The name of what runs one script (`sapi_module_struct.name`).
const RUNS_ONE: &[u8] = b"cli\0";
/// What runs outside of any function, as PHP's own traces call it.
const MAIN: &str = "{main}";

impl Php {
    fn string(&self, process: &mut Process, at: u64) -> Option<String> {
        let layout = &self.layout;
        let head = object(process, at, 24)?;
        let length = u64_at(&head, layout.string_length as usize)?;
        if u32_at(&head, 4)? & TYPE != STRING {
            return None;
        }
        let mut bytes = vec![0; length.min(MAX_STRING) as usize];
        process
            .read_memory(at.checked_add(layout.string_bytes)?, &mut bytes)
            .then_some(())?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a function is called, with its class.
    fn name(&self, process: &mut Process, name: u64, class: u64) -> Option<String> {
        if name == 0 {
            return Some(MAIN.to_owned());
        }
        let name = self.string(process, name)?;
        if class == 0 {
            return Some(name);
        }
        let head = object(process, class, 16)?;
        CLASSES.contains(&head[0]).then_some(())?;
        let class = u64_at(&head, self.layout.class_name as usize)?;
        Some(format!("{}::{name}", self.string(process, class)?))
    }

    /// The lines of a function's instructions; `Some(None)`: they are too many.
    fn lines(&self, process: &mut Process, code: u64, count: u32) -> Option<Option<Vec<u8>>> {
        let each = self.layout.instruction_bytes;
        let size = u64::from(count) * each;
        if size > MAX_CODE {
            self.budget.refuse();
            return Some(None);
        }
        let mut bytes = vec![0; size as usize];
        process.read_memory(code, &mut bytes).then_some(())?;
        let at = self.layout.line as usize;
        let lines = bytes
            .chunks_exact(each as usize)
            .filter_map(|instruction| instruction.get(at..at + 4));
        Some(Some(lines.flatten().copied().collect()))
    }
}

impl Php {
    /// Learns where the code of all functions is that the process has declared, unless that was
    /// done a moment ago. Whether there was a new one.
    fn know_declared(&mut self, process: &mut Process) -> bool {
        if !self.next_look.is_due() {
            return false;
        }
        let begun = Instant::now();
        let mut found = false;
        for one in declared(&self.layout, process, self.globals, self.runs_one) {
            if self.places.at(one.begin) == Some((one.begin, one.function)) {
                continue;
            }
            if self.places.len() >= MAX_FUNCTIONS || !self.places_charge.grow(PLACE) {
                break;
            }
            self.places.add(one.begin, one.bytes, one.function);
            found = true;
        }
        self.next_look.put_off(begun.elapsed(), found);
        found
    }
}

impl Php {
    /// Where it has what it runs.
    pub(crate) fn places(&self) -> FramePlaces {
        let layout = &self.layout;
        let byte = layout.top.trailing_zeros() / 8;
        FramePlaces {
            state: StatePlace::First(self.globals),
            current: layout.current,
            current_in_cframe: None,
            previous: layout.previous,
            code: layout.function,
            instruction: layout.instruction,
            last_of_call: LastOfCall::Flag {
                at: layout.call_info + u64::from(byte),
                mask: (layout.top >> (8 * byte)) as u8,
            },
            coroutines: None,
        }
    }
}

impl Php {
    /// Whether a function that was copied is in C; `None`: it is not what it was. Without opcache
    /// functions live as long as a request, and the script's own code always: another one may lie
    /// there by now. One that stays, or that has the frame's instruction in its code, is the same.
    fn is_still(&self, process: &mut Process, copied: &CopiedFunction) -> Option<bool> {
        let layout = &self.layout;
        let function = object(process, copied.code, FUNCTION_BYTES)
            .or_else(|| object(process, copied.code, C_FUNCTION_BYTES))?;
        if *function.get(layout.kind as usize)? == IN_C {
            return Some(true);
        }
        let begin = u64_at(&function, layout.code as usize)?;
        let count = u32_at(&function, layout.code_count as usize)?;
        let end = begin.checked_add(u64::from(count) * layout.instruction_bytes)?;
        let stays = u32_at(&function, layout.flags as usize)? & layout.immutable != 0;
        (stays || (begin..end).contains(&copied.instruction)).then_some(false)
    }
}

impl Interpreter for Php {
    const KIND: ModuleKind = ModuleKind::Php;
    const LANGUAGE: Language = Language::Php;

    fn find(process: &mut Process, modules: &mut Modules) -> FoundInterpreter<Self> {
        process.look_for(FILES, modules);
        let Some((image, bias)) = process.holding(Self::is_in) else {
            return FoundInterpreter::No;
        };
        let Some(php) = image.php.clone() else {
            return FoundInterpreter::No;
        };
        let address = |symbol: u64| bias.wrapping_add(symbol);
        // One with threads has its globals elsewhere.
        let Some(globals) = php.globals.map(address) else {
            return FoundInterpreter::Unknown;
        };
        let runs_one = php
            .runs_as
            .and_then(|runs_as| word(process, address(runs_as)))
            .is_some_and(|name| process.read_up_to(name, RUNS_ONE.len()) == RUNS_ONE);
        let layouts = LAYOUTS.iter().filter(|(version, layout)| {
            layout.is_of(process, address(php.modules), *version) == Some(true)
        });
        let layout = layouts.map(|(_, layout)| *layout).next();
        let begins = LAYOUTS
            .iter()
            .any(|(_, layout)| layout.lists_none(process, address(php.modules)));
        let thread = own_id(&format!("/proc/{}/status", process.tgid()));
        match (layout, thread) {
            (Some(layout), Some(thread)) => FoundInterpreter::Yes(Self {
                layout,
                globals,
                runs_one,
                thread,
                functions: HashMap::new(),
                places: CodePlaces::default(),
                places_charge: modules.budget.nothing(),
                next_look: NextLook::default(),
                budget: modules.budget.clone(),
            }),
            _ if begins => FoundInterpreter::NotYet,
            _ => FoundInterpreter::Unknown,
        }
    }

    fn is_in(image: &Image) -> bool {
        image.php.is_some()
    }

    fn loops(&self, process: &Process) -> Vec<Range<u64>> {
        let Some((image, bias)) = process.holding(Self::is_in) else {
            return Vec::new();
        };
        let execute = image.php.iter().flat_map(|php| &php.execute);
        execute
            .map(|range| range.start.wrapping_add(bias)..range.end.wrapping_add(bias))
            .chain(process.compiled_code())
            .collect()
    }

    fn loop_calls(&self) -> LoopCalls {
        LoopCalls::Counted { by_pointer: false }
    }

    fn thread(&mut self, _: &mut Process, own_id: u32) -> Result<u64, Unread> {
        match own_id == self.thread {
            true => Ok(self.globals),
            false => Err(Unread::Thread),
        }
    }

    fn is_of(&mut self, _: &mut Process, _: u64, own_id: u32) -> Option<bool> {
        Some(own_id == self.thread)
    }

    fn chain(&mut self, process: &mut Process, globals: u64, most: usize) -> Option<Vec<RawFrame>> {
        let layout = &self.layout;
        let mut address = word(process, globals.checked_add(layout.current)?)?;
        let mut frames: Vec<RawFrame> = Vec::new();
        let (mut group, mut count) = (0, 0);
        while address != 0 {
            count += 1;
            if count > most {
                return None;
            }
            let frame = object(process, address, 80)?;
            let field = |at: u64| u64_at(&frame, at as usize);
            let code = field(layout.function)?;
            // What C puts between two calls has no function.
            if code != 0 {
                let kind = word(process, code.checked_add(layout.kind)?)? as u8;
                frames.push(RawFrame {
                    address,
                    code,
                    instruction: field(layout.instruction)?,
                    call: 0,
                });
                let info = u32_at(&frame, layout.call_info as usize)?;
                if info & layout.top != 0 && kind != IN_C {
                    frames[group..]
                        .iter_mut()
                        .for_each(|raw| raw.call = address);
                    group = frames.len();
                }
            }
            address = field(layout.previous)?;
        }
        Some(frames)
    }

    fn code(&mut self, process: &mut Process, raw: &RawFrame) -> Option<Arc<CodeNames>> {
        let layout = self.layout;
        // One in C is smaller, and may be the last thing that is mapped.
        let function = object(process, raw.code, FUNCTION_BYTES)
            .or_else(|| object(process, raw.code, C_FUNCTION_BYTES))?;
        let field = |at: u64| u64_at(&function, at as usize);
        let kind = *function.get(layout.kind as usize)?;
        let in_php = match kind {
            IN_C => false,
            IN_PHP | EVALUATED => true,
            _ => return None,
        };
        let (name, class) = (field(layout.name)?, field(layout.class)?);
        let of_php = |at: u64| in_php.then(|| field(at)).flatten().unwrap_or(0);
        let (code, file) = (of_php(layout.code), of_php(layout.file));
        let key = [raw.code, name, code, if in_php { file } else { class }];
        if let Some(known) = self.functions.get(&key) {
            return Some(Arc::clone(known));
        }
        if self.functions.len() >= MAX_FUNCTIONS || self.budget.is_short() {
            self.functions = HashMap::new();
            self.places = CodePlaces::default();
            self.places_charge = self.budget.nothing();
        }
        let name = self.name(process, name, class)?;
        let mut place = CodePlace::default();
        let mut lines = None;
        if in_php {
            place = CodePlace {
                file: self.string(process, file)?,
                first_line: u32_at(&function, layout.first_line as usize)?,
                begin: code,
            };
            let count = u32_at(&function, layout.code_count as usize)?;
            lines = self.lines(process, code, count)?;
            let bytes = u64::from(count) * layout.instruction_bytes;
            self.places.add(code, bytes, raw.code);
        }
        let mut charge = self.budget.take(FUNCTION + name.len() + place.file.len())?;
        let kept = lines.filter(|lines| charge.grow(lines.len()));
        let names = Arc::new(CodeNames::new(name, place, kept, charge));
        self.functions.insert(key, Arc::clone(&names));
        Some(names)
    }

    fn line(&self, code: &CodeNames, raw: &RawFrame) -> u32 {
        let Some(place) = raw.instruction.checked_sub(code.place.begin) else {
            return code.place.first_line;
        };
        let place = place / self.layout.instruction_bytes;
        code.line(place, |lines| {
            let line = u32_at(lines, (place as usize).saturating_mul(4));
            line.unwrap_or(code.place.first_line)
        })
    }

    fn copied(&self, process: &mut Process, copied: &[CopiedFunction]) -> CopiedFrames {
        let mut known = CopiedFrames::default();
        let mut call = 0;
        // What C puts between two calls has no function.
        for copied in copied.iter().filter(|copied| copied.code != 0) {
            let Some(in_c) = self.is_still(process, copied) else {
                known.cut = true;
                break;
            };
            known.frames.push(RawFrame {
                address: 0,
                code: copied.code,
                instruction: copied.instruction,
                call,
            });
            call += u64::from(copied.last && !in_c);
        }
        known
    }

    fn current(
        &mut self,
        process: &mut Process,
        [address, instruction]: [u64; 2],
    ) -> Option<(RawFrame, Arc<CodeNames>)> {
        let (place, function) = ((address, instruction), self.layout.function);
        let places: fn(&Self) -> &CodePlaces = |php| &php.places;
        let known = frame_at(self, process, place, function, places);
        if known.is_some() || !self.know_declared(process) {
            return known;
        }
        frame_at(self, process, place, function, places)
    }
}

impl PhpLayout {
    /// Whether no module is listed yet: the process has only just begun.
    fn lists_none(&self, process: &mut Process, modules: u64) -> bool {
        let used = word(process, modules.wrapping_add(self.table_used));
        used.is_none_or(|used| used as u32 == 0)
    }

    /// Whether the first of a process's modules is of a version, and made for no threads.
    fn is_of(&self, process: &mut Process, modules: u64, version: u32) -> Option<bool> {
        let items = word(process, modules.checked_add(self.table_items)?)?;
        let module = word(process, items.checked_add(self.item_value)?)?;
        let head = object(process, module, 16)?;
        let its = u32_at(&head, self.module_version as usize)?;
        Some(its == version && *head.get(self.module_zts as usize)? == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::*;
    use super::*;
    use crate::made_up::own_process;
    use crate::memory_tests::Random;

    #[test]
    fn frames_that_agree_with_themselves() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        let wanted = [("sleep", 0), ("Orders::load", 31)];
        let wanted = wanted.map(|(name, line)| (name.to_owned(), line)).to_vec();
        assert_eq!(made.read(process), Ok(wanted));
        // A chain that leads to itself.
        made.memory.set(made.frames[1] + 48, made.frames[0]);
        assert_eq!(made.read(process), Err(Unread::Memory));
        let mut made = MadeUpPhp::new();
        made.memory.set(made.function, 9);
        assert_eq!(made.read(process), Err(Unread::Memory), "no function");
        let mut made = MadeUpPhp::new();
        made.memory.set(made.function + 8, made.globals);
        assert_eq!(made.read(process), Err(Unread::Memory), "no name");
    }

    #[test]
    fn functions_that_came_with_a_stack() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        let inside = (made.function, made.code_of(made.function) + 32);
        let elsewhere = (made.function, inside.1 + 64);
        let copied = [(made.in_c, 0), (0, 0), inside];
        let both = ["sleep", "Orders::load"].map(|name| Some(name.to_owned()));
        assert_eq!(made.copied(process, &copied), (both.to_vec(), false));
        let copied = [(made.in_c, 0), elsewhere, inside];
        let (names, cut) = made.copied(process, &copied);
        assert_eq!((names.len(), cut), (3, false), "it stays where it is");
        // Of a request that has ended, another function may lie there by now.
        made.set_flags(made.function + LAYOUT.flags, 0);
        assert_eq!(made.copied(process, &copied), (both[..1].to_vec(), true));
        assert_eq!(made.copied(process, &[(8, 8)]), (vec![], true), "no memory");
    }

    /// Whatever is in memory: what is taken for frames keeps its bounds.
    #[test]
    fn made_up_memory_is_bounded() {
        let process = &mut own_process();
        let mut made = MadeUpPhp::new();
        let original = made.memory.clone_words();
        let mut random = Random::new();
        let mut taken = 0;
        for _ in 0..5_000 {
            made.memory.damage(&original, &mut random);
            made.not_met(process, made.before);
            if let Ok(found) = made.read(process) {
                taken += 1;
                let length = |(name, _): &(String, u32)| name.len();
                // A byte that is no text becomes three.
                assert!(
                    found
                        .iter()
                        .map(length)
                        .all(|length| length <= 2 * 3 * 4096 + 2)
                );
            }
        }
        assert!(taken > 500, "some are left as they were: {taken}");
    }
}
