//! The score of each class, and the decision.

use super::{Primitive, Seen, WaitClass};

/// A class needs this score…
const ENOUGH: i32 = 4;
/// … and this much more than the next.
const CLEAR: i32 = 2;

/// FUTEX_WAIT_BITSET, FUTEX_CMD_MASK (include/uapi/linux/futex.h).
const CMD_MASK: u32 = 0x7f;
const LOCK_PI: [u32; 2] = [6, 13];
/// A mutex of musl that is locked, with waiters: EBUSY, and the highest bit
/// (src/thread/pthread_mutex_timedlock.c).
const MUSL_LOCKED: u32 = 0x8000_0010;
/// From one part in so many of a serving thread's waits on, that others which serve ended them
/// speaks against a result.
const PEERS: u64 = 4;

/// What the sleeps were for, and why, the strongest reason first.
pub(crate) fn classify(seen: &Seen, primitive: Option<Primitive>) -> (WaitClass, Vec<String>) {
    let mut reasons = Reasons::default();
    by_primitive(primitive, &mut reasons);
    by_what_ended_them(seen, primitive, &mut reasons);
    if primitive.is_none() {
        by_release(seen, &mut reasons);
    }
    by_threads(seen, &mut reasons);
    by_word(seen, &mut reasons);
    by_requests(seen, &mut reasons);
    reasons.decide()
}

/// What speaks for or against a class, with how much, in words.
#[derive(Default)]
struct Reasons(Vec<(WaitClass, i32, String)>);

impl Reasons {
    fn say(&mut self, class: WaitClass, score: i32, text: impl Into<String>) {
        self.0.push((class, score, text.into()));
    }

    fn score(&self, class: WaitClass) -> i32 {
        self.0
            .iter()
            .filter(|(of, ..)| *of == class)
            .map(|(_, score, _)| score)
            .sum()
    }

    fn decide(mut self) -> (WaitClass, Vec<String>) {
        let mut scores = [
            WaitClass::Lock,
            WaitClass::Idle,
            WaitClass::Result,
            WaitClass::Timer,
        ]
        .map(|class| (self.score(class), class));
        scores.sort_by_key(|(score, class)| (std::cmp::Reverse(*score), *class));
        let [(best, class), (next, _), ..] = scores;
        let class = if best >= ENOUGH && best - next.max(0) >= CLEAR {
            class
        } else {
            WaitClass::Unknown
        };
        self.0
            .sort_by_key(|(of, score, _)| (*of != class, std::cmp::Reverse(score.abs())));
        (class, self.0.into_iter().map(|(.., text)| text).collect())
    }
}

/// How many of the sleeps there were, at least one.
fn count(seen: &Seen) -> u64 {
    seen.count.max(1)
}

/// Whether something holds of nearly all of the sleeps.
fn is_most(n: u64, seen: &Seen) -> bool {
    n * 10 >= count(seen) * 9
}

/// What the sleepers called.
fn by_primitive(primitive: Option<Primitive>, reasons: &mut Reasons) {
    match primitive {
        Some(lock) if lock.is_lock() => reasons.say(
            WaitClass::Lock,
            10,
            format!("the sleeper was taking {}", lock.with_article()),
        ),
        Some(Primitive::Join) => {
            reasons.say(WaitClass::Result, 10, "the sleeper was joining a thread");
        }
        Some(Primitive::GoIdle) => reasons.say(
            WaitClass::Idle,
            10,
            "a thread of Go's scheduler that had no goroutine to run",
        ),
        Some(Primitive::Housekeeping) => reasons.say(
            WaitClass::Idle,
            10,
            "a thread of the runtime's own that had nothing to do",
        ),
        Some(Primitive::Sleep) => reasons.say(
            WaitClass::Timer,
            10,
            "the sleeper was in a function that lets a time pass",
        ),
        Some(other) => reasons.say(
            WaitClass::Lock,
            -10,
            format!(
                "the sleeper was at a {}, which is no lock itself",
                other.name()
            ),
        ),
        None => {}
    }
}

/// Timeouts, owners, and the kernel at a thread's end.
fn by_what_ended_them(seen: &Seen, primitive: Option<Primitive>, reasons: &mut Reasons) {
    let count = count(seen);
    // CPython asks for its lock again every 5 ms.
    let tries_again = primitive.is_some_and(Primitive::tries_again);
    if seen.timeouts > 0 && is_most(seen.timeouts, seen) && !tries_again {
        reasons.say(
            WaitClass::Timer,
            14,
            format!(
                "{} of {count} waits were ended by their timeout",
                seen.timeouts
            ),
        );
    }
    if LOCK_PI.contains(&(seen.op & CMD_MASK)) {
        reasons.say(
            WaitClass::Lock,
            10,
            "the system call takes a priority-inheriting lock",
        );
    }
    if seen.by_owner > 0 && seen.by_owner * 2 >= count {
        reasons.say(
            WaitClass::Lock,
            8,
            format!(
                "the owner that stands beside the word ended {} of {count} waits",
                seen.by_owner
            ),
        );
    }
    if let Some(thread) = seen.value_is_thread
        && seen.values.len() == 1
    {
        reasons.say(
            WaitClass::Result,
            8,
            format!(
                "the word held the id of thread {thread}, and the kernel clears it at the thread's \
                 end"
            ),
        );
    }
}

/// What it says of a bare word that those who ended the sleeps on it were letting go of a lock.
///
/// Of a mutex of the C library that is enough only if several threads sleep on the word, or if the
/// word said so itself: who waits for a condition variable of musl may be woken by such a one too,
/// and sleeps on a word of its own, with another value.
fn by_release(seen: &Seen, reasons: &mut Reasons) {
    let count = count(seen);
    if seen.released == 0 || seen.released * 10 < count * 8 {
        return;
    }
    let of_musl = seen.values.get(&MUSL_LOCKED).copied().unwrap_or(0);
    let is_sure =
        seen.released_surely * 10 >= count * 8 || seen.waiters.len() >= 2 || is_most(of_musl, seen);
    reasons.say(
        WaitClass::Lock,
        if is_sure { 7 } else { 3 },
        format!(
            "{} of {count} waits were ended by a thread that was letting go of a lock",
            seen.released
        ),
    );
}

/// Who sleeps, and who ends that.
fn by_threads(seen: &Seen, reasons: &mut Reasons) {
    if seen.parked_in_pool > 0 && is_most(seen.parked_in_pool, seen) {
        reasons.say(
            WaitClass::Idle,
            9,
            "the sleeper was where the threads of its event loop park that have nothing to do",
        );
    }
    let mutual = seen
        .wakers
        .keys()
        .filter(|tid| seen.waiters.contains_key(tid))
        .count();
    if mutual >= 2 && mutual * 2 >= seen.wakers.len() {
        reasons.say(
            WaitClass::Lock,
            // Not enough alone: two that hand work to and fro over one word do the same.
            3,
            format!("{mutual} threads both wait on it and end each other's waits"),
        );
    }
}

/// What the word said.
fn by_word(seen: &Seen, reasons: &mut Reasons) {
    let value = |wanted: u32| seen.values.get(&wanted).copied().unwrap_or(0);
    if is_most(value(2), seen) {
        reasons.say(
            WaitClass::Lock,
            2,
            "the word said \"locked, with waiters\" (2)",
        );
    }
    if is_most(value(u32::MAX), seen) {
        reasons.say(WaitClass::Lock, -4, "the word said \"parked\" (-1)");
    }
}

/// What was kept waiting meanwhile.
fn by_requests(seen: &Seen, reasons: &mut Reasons) {
    let count = count(seen);
    // Who is woken by a thread that serves others may have waited for what that one had.
    let by_peers = seen.by_peers * PEERS >= seen.serving;
    if seen.serving > 0 && seen.serving * 10 >= count * 8 && !by_peers {
        reasons.say(
            WaitClass::Result,
            4,
            format!(
                "in {} of {count} waits the thread had read a request and not answered it",
                seen.serving
            ),
        );
    } else if seen.serving == 0 && seen.led_to_answers > 0 && seen.led_to_answers * 2 >= count {
        reasons.say(
            WaitClass::Idle,
            4,
            format!(
                "nothing was open while it waited, and after {} of {count} waits it did what \
                 others were waiting for",
                seen.led_to_answers
            ),
        );
    }
}
