//! The numbers that findings depend on: thresholds of time, counts and shares, and how much is
//! looked at or shown. Each stands here once, with why it has its value.
//!
//! A number is read as `*NAME`. Times are in nanoseconds, and their names end so; a share is a
//! [`Share`]; the rest are counts.

#[cfg(test)]
mod held_tests;
mod share;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod varied;

use std::ops::Deref;

pub(crate) use share::Share;

/// A number of the list below.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number<T> {
    value: T,
    /// What tests have it be instead, to see what depends on it.
    #[cfg(test)]
    varied: varied::Varied<T>,
}

impl<T> Deref for Number<T> {
    type Target = T;

    fn deref(&self) -> &T {
        #[cfg(test)]
        if let Some(value) = self.varied.instead() {
            return value;
        }
        &self.value
    }
}

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

macro_rules! numbers {
    ($($section:literal {
        $($(#[doc = $why:literal])+ $name:ident: $type:ty = $value:expr;)+
    })+) => {
        $($(
            $(#[doc = $why])+
            pub(crate) const $name: Number<$type> = Number {
                value: $value,
                #[cfg(test)]
                varied: varied::Varied::of(stringify!($name)),
            };
        )+)+

        /// The list, for tests.
        #[cfg(test)]
        static LISTED: &[Listed] = &[$($(Listed {
            section: $section,
            name: stringify!($name),
            why: &[$($why),+],
            shown: || tests::Figure::shown(*$name, stringify!($name)),
        },)+)+];
    };
}

/// A number, as tests see it.
#[cfg(test)]
struct Listed {
    section: &'static str,
    name: &'static str,
    why: &'static [&'static str],
    shown: fn() -> String,
}

numbers! {
    "What several detectors ask" {
        /// Half or more of something is most of it.
        MOST: Share = Share::percent(50);
        /// What is beyond is noise: two figures are as good as the same.
        ALL_OF_IT: Share = Share::percent(99);
        /// A shorter delay needs no explanation: what takes a request less is not looked for, and a
        /// fix that saves it less is not worth it. It is a wake-up under load.
        SLOW_NS: u64 = 10 * MS;
        /// What takes a request so long is an error, where it is the rule.
        ERROR_NS: u64 = 100 * MS;
        /// What concerns fewer requests may be chance.
        MIN_REQUESTS: usize = 5;
        /// What is typical takes so much of the time of all the requests that it concerns.
        TYPICAL_OF_ALL: Share = Share::percent(40);
        /// What takes a request less is a remark: a garbage collection, a page cache that is cold.
        WARNING_NS: u64 = 30 * MS;
        /// A smaller part of all slow requests' time is rare, and at most a remark.
        RARE_OF_SLOW: Share = Share::one_in(10);
        /// What is rare is remarked only if it made a request take so long.
        OUTLIER_NS: u64 = 100 * MS;
        /// A request that takes so many times what others of its kind take is an outlier.
        OUTLIER_TIMES: u64 = 3;
        /// The rest of a wait is not worth a word in a title.
        NEARLY_ALL: Share = Share::percent(95);
        /// More late requests are no accident of scheduling.
        CROWDED_RARE: Share = Share::one_in(50);
        /// So much of something is worth a word, or a fix, of its own.
        MUCH: Share = Share::percent(20);
        /// A call lies on several threads, the peer's and those that it asks, and each waits for a
        /// CPU: the call is late by so many such waits.
        CROWDED_WAITS: u64 = 5;
        /// What lies in so small a part of the time between two of its kind may do so by chance.
        BY_CHANCE: Share = Share::one_in(4);
        /// A replay that changes nothing, and is off by more of what was, says nothing of a change.
        REPLAY_OFF: Share = Share::percent(10);
        /// Fewer samples do not show what a thread did, and the lack of fewer not that it slept.
        MIN_SAMPLES: u64 = 5;
        /// Fewer samples do not show in which function one piece of work was.
        FEW_SAMPLES: usize = 3;
    }

    "Calls of peers" {
        /// With fewer calls to a peer linked to requests, or less of their time, too little is
        /// known.
        CALLS_KNOWN: Share = Share::percent(90);
        /// So many calls are made while a request is under way, and so much of their time passes
        /// with no more calls than requests: then they are the requests', one after another.
        CALLS_OF_REQUESTS: Share = Share::percent(90);
        /// Fewer calls that followed others are chance.
        QUEUE_MIN_HANDOVERS: usize = 10;
        /// So many calls must have followed the end of another at once.
        QUEUE_PROMPT: Share = Share::percent(80);
        /// A call that follows the end of another at once comes within this …
        QUEUE_AT_ONCE_NS: u64 = 5 * MS;
        /// For so much of the time in which a request waited, as many calls were under way as ever.
        QUEUE_FULL: Share = Share::percent(70);
        /// Less of the process' slow requests' time is no queue to speak of.
        QUEUE_WORTH: Share = Share::one_in(3);
        /// Nearly all requests have a call of their own, and nearly all calls a request.
        QUEUE_PAIRED: Share = Share::percent(90);
        /// With so many connections for the calls, each call has a new one.
        CONNECTION_EACH: Share = Share::percent(90);
        /// Fewer calls with few others under way do not show how long the peer takes alone.
        QUEUE_FEW: usize = 5;
        /// Calls with few others under way that take less of what those at full load take are
        /// shorter.
        QUEUE_SHORTER: Share = Share::new(10, 14);
        /// Calls with few others under way that take so much of it are not: the peer would serve
        /// more.
        QUEUE_SERVES: Share = Share::percent(80);
    }

    "Replays" {
        /// A thread of whose requests more overlap serves several at a time.
        CREW_OVERLAPPING: Share = Share::one_in(10);
        /// A client that asks again within this was waiting for its answer.
        CLIENT_COMES_BACK_NS: u64 = 20 * MS;
        /// What is read so soon has not waited for the loop.
        TURN_AT_ONCE_NS: u64 = MS;
    }

    "io_uring rings" {
        /// With fewer operations nothing is said of a ring.
        RING_MIN_OPERATIONS: u64 = 50;
    }

    "The verdict and the ranking" {
        /// Slow requests that take less of all requests' time say nothing of the server.
        VERDICT_FEW: Share = Share::one_in(10);
        /// Requests that are open for less may be under way as usual, and a shorter stop is none.
        STUCK_NS: u64 = 100 * MS;
        /// They are so many times as old as what 99 of 100 answered requests took.
        STUCK_TIMES: u64 = 2;
        /// So many answers that follow the one before after the same time come in step …
        IN_STEP: Share = Share::percent(75);
        /// … where fewer may do so by chance.
        IN_STEP_MIN_GAPS: usize = 10;
        /// What takes a request no longer than it takes so many of those that it makes slow takes
        /// no longer than it has to.
        QUICKEST: Share = Share::one_in(10);
        /// So few may be outliers by chance.
        FEW_OUTLIERS: Share = Share::one_in(100);
        /// With less of the other finding's time this one is not the reason for most of it.
        EXPLAINS_MOST: Share = Share::percent(70);
    }

    "stranded-readiness" {
        /// The thread that polled last, if it mostly waited for a CPU, worked for at least this
        /// part of the time in which nobody polled.
        STRANDED_DOING: Share = Share::one_in(8);
    }

    "workers-exhausted" {
        /// Fewer requests are a burst, or a worker that had bad luck …
        WORKERS_MIN_VICTIMS: usize = 3;
        /// … unless one waited for so long.
        WORKERS_HANG_NS: u64 = S;
        /// Less of the slow requests' time is no lack of workers.
        WORKERS_WORTH: Share = Share::one_in(3);
        /// More workers help if the replay with them takes less of the time.
        WORKERS_MORE_HELP: Share = Share::percent(90);
        /// So many of the sleeps in a place must be with a request in hand, for the place to be one
        /// of work.
        SLEEPS_IN_WORK: Share = Share::percent(75);
        /// So many workers that begin to wait at once wait for the same …
        WORKERS_TOGETHER: usize = 2;
        /// … where at once is within this part of the shortest of these waits.
        TOGETHER_WITHIN: Share = Share::one_in(5);
        /// Fewer workers may be in step by chance.
        WORKERS_IN_STEP: usize = 3;
        /// Fewer of their waits may be in step by chance.
        WORKERS_MIN_GAPS: usize = 20;
        /// A wait that is off by less of the first one, or a multiple of it, is in step with it.
        STEP_OFF: Share = Share::percent(25);
        /// What differs by more than so much of a step differs as the sum of many.
        ADDED_UP: Share = Share::percent(150);
        /// A wait that takes more of the median, or of the first one, is out of step.
        STEP_LONGER: Share = Share::percent(150);
        /// A wait that takes less of the median is out of step.
        STEP_SHORTEST: Share = Share::percent(60);
        /// Who woke the loop less often is no executor's thread.
        EXECUTOR_MIN_JOBS: usize = 3;
        /// A loop answers so soon after a job was done.
        EXECUTOR_ANSWERED_NS: u64 = 20 * MS;
        /// So many of the loop's answers must follow a job.
        EXECUTOR_ANSWERS: Share = Share::percent(70);
        /// As many jobs as ever are under way where so many of them are: who ends one and who
        /// begins the next have the reader between them.
        EXECUTOR_FULL: Share = Share::percent(90);
        /// More requests for each worker that are done after the same sleep were told at once: a
        /// job that slept may be followed by one that does not sleep.
        EXECUTOR_JOBS_A_SLEEP: usize = 2;
        /// A thread of whose requests others answer so many hands them on.
        HANDED_ON: Share = Share::percent(90);
        /// So many of the workers that exist at a time sleep: it is no lack of CPUs.
        WORKERS_ASLEEP: Share = Share::percent(75);
    }

    "accept-stalled and accept-overflow" {
        /// Younger requests may be about to be accepted.
        UNACCEPTED_NS: u64 = 100 * MS;
        /// From this age on it is an error.
        UNACCEPTED_ERROR_NS: u64 = S;
        /// Fewer dropped connections are a moment.
        DROPPED: u32 = 3;
        /// With so many dropped connections for a request it is an error.
        DROPPED_ERROR: Share = Share::one_in(100);
    }

    "blocked-loop" {
        /// A loop that slept elsewhere, or computed, for less of the interval was in its poll.
        AWAY_OF_INTERVAL: Share = Share::percent(25);
        /// An interval begins with a read or a write, noted a moment before or after the read
        /// itself.
        AWAY_SLACK_NS: u64 = 50 * US;
        /// A remark must be about at least this part of all requests' time.
        AWAY_WORTH_A_NOTE: Share = Share::one_in(100);
        /// An interval without a poll in which the loop was on a CPU for less is not known to be
        /// work.
        AWAY_RAN: Share = Share::one_in(10);
        /// A function that is in so many of an absence's samples lasts as long as the absence.
        AWAY_IN_SAMPLES: Share = Share::percent(75);
        /// A function with a smaller part of the time says nothing of what it calls: that it was
        /// seen innermost is chance.
        AWAY_OF_ITS_OWN: Share = Share::one_in(10);
    }

    "lock-contention, deadlock, unfinished-wait, idle-waiters" {
        /// A request that waited for less is not worth a remark …
        LOCK_NS: u64 = MS;
        /// … nor one that spent a smaller part of its time so.
        LOCK_SHARE: Share = Share::one_in(20);
        /// Short waits must be at least this part of all requests' time.
        LOCK_WORTH_A_NOTE: Share = Share::one_in(20);
        /// Without requests: the waits are at least this part of the run of the threads that
        /// waited.
        LOCK_OF_RUN: Share = Share::one_in(10);
        /// A lock may be held for less without anybody being stuck.
        DEADLOCK_NS: u64 = 500 * MS;
        /// A shorter wait may well be about to end.
        UNFINISHED_NS: u64 = S;
        /// It is so many times as long as the slowest request that was answered.
        UNFINISHED_TIMES: u64 = 5;
    }

    "slow-path-wait" {
        /// Fewer sleeps in one function may be the steps of its work.
        TRIES: usize = 3;
    }

    "paused" {
        /// Samples in what is done with all others stopped are of one pause if no more than so many
        /// ticks of the clock lie between two: CPUs tick at different moments.
        SAMPLES_APART: u64 = 3;
    }

    "slow-upstream, one-at-a-time, pool-exhausted, serial-calls" {
        /// With fewer requests paired with calls, or calls with requests, the pairs may be others.
        UPSTREAM_PAIRED: Share = Share::percent(90);
        /// So many requests ask at once over HTTP/2 and answer at once after a reply. By chance one
        /// in four does either: then at most two in nine of these are by chance.
        HTTP2_PAIRED: Share = Share::percent(60);
        /// A peer that takes so long may be meant to: a long poll.
        UPSTREAM_BY_DESIGN_NS: u64 = 5 * S;
        /// From so many calls a request on it is `serial-calls`.
        UPSTREAM_MOST_CALLS: f64 = 5.0;
        /// Fewer calls of a request are no loop over what could be asked at once.
        SERIAL_MIN_CALLS: usize = 5;
        /// So many ticks of the sampling clock show for how long threads computed, to a quarter.
        LANE_WINDOW: u64 = 10;
        /// So many slow requests must be known by themselves to speak of all of them.
        SERIAL_KNOWN: Share = Share::one_in(10);
    }

    "serial-work" {
        /// A caller in so many of the work's samples is what they have in common.
        WORK_IN_COMMON: Share = Share::percent(80);
        /// A function with so much of the work is named for it.
        WORK_TELLING: Share = Share::percent(25);
        /// How well a line must fit: the part of the variance that it explains.
        GROWTH_R2: f64 = 0.8;
        /// A thread that is on a CPU, or waits for one, for less of the time is not bound by it.
        RING_BOUND: Share = Share::percent(60);
        /// A function with less of the thread's CPU time does not dominate.
        RING_FUNCTION: Share = Share::percent(20);
        /// A function with less of the thread's CPU time is a note.
        RING_FUNCTION_WARNING: Share = Share::percent(30);
        /// With fewer samples shares are not known well enough.
        RING_WORK_MIN_SAMPLES: u64 = 30;
        /// A thread that never waits and has everything with the kernel in so many samples goes
        /// round in its queue.
        RING_NOTHING_TO_DO: Share = Share::percent(95);
        /// It goes on for longer than this on average before it waits in the kernel. (One that
        /// takes completions by the hundred and works for a second on them has nothing but its
        /// work, too, and everything that it asked for is with the kernel meanwhile. Then it
        /// waits.)
        RING_NEVER_WAITS_NS: u64 = S;
        /// Without the function the rest takes less time, too, by this part at most: the function
        /// empties the caches for it. Measured on the lab relay by its own clocks: 5 to 10 % where
        /// lines are formatted (`logged` against `all-fixed`), 16 % where a vector of 1,000 packets
        /// is moved (`published` against `deque`; 1.28 us of a packet's 8.66 became 1.08).
        RING_REST_FASTER: Share = Share::one_in(5);
    }

    "Responses on their way" {
        /// Fewer responses on a port, or requests that were abandoned, may be chance.
        MIN_RESPONSES: usize = 3;
        /// From here on, typically, what holds a response up may be an error.
        RESPONSE_ERROR_NS: u64 = 30 * MS;
        /// From here on, typically, it was the client's delayed acknowledgement.
        NAGLE_NS: u64 = 5 * MS;
        /// What is shorter is the kernel's tick.
        BUFFER_NS: u64 = 10 * MS;
        /// From here on clients notice.
        LOSS_WARNING_NS: u64 = 5 * MS;
        /// With so many of the responses it is an error.
        LOSS_ERROR: Share = Share::one_in(100);
        /// What is shorter is a moment: the kernel's tick, and a client that had no CPU.
        READER_NS: u64 = 50 * MS;
        /// So much of the recording is no chance, however often it was: a large send buffer takes
        /// several messages, and is then full for long (the lab `broadcast node`).
        PUSH_HELD: Share = Share::one_in(10);
    }

    "abandoned-work" {
        /// What is shorter cannot be helped: the client leaves while the response is on its way.
        ABANDONED_NS: u64 = 5 * MS;
        /// So much of the target's CPU time is an error …
        ABANDONED_CPU_ERROR: Share = Share::one_in(5);
        /// … so much a warning …
        ABANDONED_CPU_WARNING: Share = Share::one_in(50);
        /// … as are so many of all requests …
        ABANDONED_WARNING: Share = Share::one_in(100);
        /// … but not if all of their clients left within so long …
        ABANDONED_TOGETHER_NS: u64 = 100 * MS;
        /// … and are a smaller part of all requests: that is one program that ended, as a load
        /// generator does, and not clients that gave up.
        ABANDONED_TOGETHER: Share = Share::one_in(5);
    }

    "dns-timeout, connect-retried, cpu-limit" {
        /// Fewer queries may be chance: a note.
        DNS_MIN_QUERIES: usize = 3;
        /// A thread that waits for an answer goes to sleep so soon after it asked.
        DNS_SLEEPS_WITHIN_NS: u64 = 10 * MS;
        /// A shorter sleep was no wait for a lost query. As `ASKED_AGAIN_NS` of `dns.bpf.h`.
        DNS_LATE_NS: u64 = 900 * MS;
        /// Fewer connections to a peer may be chance: a note.
        RETRIED: u64 = 3;
        /// A limit that was reached less often is no matter …
        THROTTLED: u64 = 3;
        /// … nor one that was reached in a smaller part of the periods.
        THROTTLED_PERIODS: Share = Share::one_in(20);
    }

    "futile-wakeups, thundering-herd" {
        /// Of one CPU, over the part of the recording in which the thread did not have to wait for
        /// one: less is not worth a word.
        SPINS: Share = Share::percent(5);
        /// Of one CPU, likewise: from here on it is an error.
        SPINS_ERROR: Share = Share::percent(25);
        /// What it would have spun with a CPU of its own is reckoned from no less of the recording
        /// than what is left when so much is gone.
        SPINS_QUEUED: Share = Share::percent(90);
        /// A turn of a loop that spins may leave so many times as much to a virtual machine's own
        /// threads as what else the process does.
        SPINS_HELPED_TIMES: u64 = 2;
        /// A program that asks its rings without waiting does so on purpose if they complete so
        /// many operations a second.
        RING_BUSY_PER_SECOND: u64 = 10;
        /// Fewer wasted wake-ups altogether say nothing …
        HERD_WASTED: u64 = 50;
        /// … nor do fewer a second.
        HERD_WASTED_PER_SECOND: u64 = 100;
        /// From this part of a CPU on it is a warning.
        HERD_WARNING: Share = Share::percent(2);
    }

    "Findings of io_uring rings" {
        /// Fewer failed operations are no matter, unless they are all …
        FAILED: u64 = 10;
        /// … nor a smaller part of the operations.
        FAILED_SHARE: Share = Share::one_in(100);
        /// When all of so many fail there is no doubt.
        FAILED_ALL: u64 = 3;
        /// Answers "there is none" are worth a word from so many on.
        MISSING: u64 = 50;
        /// Such answers must be so many of the operations.
        MISSING_SHARE: Share = Share::percent(90);
        /// Fewer operations are no leak.
        LEAKED: u64 = 3;
        /// More must have been added over so long, where several at a time may be posted ahead.
        LEAKED_OVER_NS: u64 = 500 * MS;
        /// Fewer lags may be chance.
        MIN_LAGS: u64 = 3;
        /// Twice for so long is a fault with few operations too …
        LAG_TWICE_NS: u64 = 100 * MS;
        /// … and once for so long.
        LAG_ONCE_NS: u64 = 500 * MS;
        /// A ring of whose operations so many are sends is held by sockets.
        SENDS_ONLY: Share = Share::percent(90);
        /// From so many of the operations on an overflow is a warning.
        OVERFLOWED: Share = Share::one_in(1000);
        /// More slots than the queue has may be counted: an operation that is just being completed
        /// on another CPU has two for an instant. This part of the queue, and one.
        SLOTS_COUNTED_TWICE: Share = Share::one_in(8);
        /// So many of the waits must have been come back to in vain.
        SLOTS_STALLED: Share = Share::percent(25);
        /// So many workers for each CPU are what the kernel has for files on disks.
        STORM_FOR_EACH_CPU: u64 = 4;
        /// Fewer workers are no storm on a machine of any size.
        STORM: u64 = 32;
        /// CPU time for an operation above which a call to submit it is cheaper.
        POLLER_EXPENSIVE_NS: u64 = 20 * US;
        /// A poller that takes less of a core is cheap.
        POLLER_BURNT: Share = Share::percent(20);
        /// That a poller slept matters even once if it was for so long …
        POLLER_LONG_NS: u64 = 100 * MS;
        /// … and for so much of the time.
        POLLER_ASLEEP: Share = Share::percent(1);
        /// With fewer samples the poller's share is not known.
        POLLER_MIN_SAMPLES: u64 = 20;
        /// With fewer slots in use on average there is hardly more than one operation to submit at
        /// a time.
        UNBATCHED_SLOTS: u64 = 4;
        /// Calls that submit and take less of the time in which the ring is in use are not worth a
        /// word.
        UNBATCHED_WORTH: Share = Share::one_in(10);
        /// So many operations have a call of their own.
        UNBATCHED_SHARE: Share = Share::percent(90);
    }

    "How much is looked at or shown" {
        /// Calls, or steps of paths, that are looked at for one request, or one kind of wait:
        /// bounds the work on hostile recordings.
        LOOKED_AT: usize = 256;
        /// Calls meanwhile that are looked at for one request: it may make so many. Bounds the work
        /// on hostile recordings.
        MEANWHILE_LOOKED_AT: usize = 4096;
        /// Sleeps and samples of a thread that are looked at to know what it is, or does in a
        /// place.
        SLEEPS_LOOKED_AT: usize = 64;
        /// More findings of one kind hide the others.
        FINDINGS_OF_A_KIND: usize = 3;
        /// A smaller part of a bound, or of a time, is not worth a line.
        NOTABLE: Share = Share::one_in(50);
        /// Of a list in a title, or of fixes.
        IN_TITLE: usize = 2;
        /// Of a list in a line of evidence.
        SHOWN: usize = 4;
        /// Threads that are named one by one, each with a line.
        IDLE_NAMED: usize = 6;
        /// Of a list for views that have room.
        KEPT: usize = 16;
        /// Requests of which a finding says what a fix saves each.
        SAVINGS_KEPT: usize = 100;
    }
}
