//! How many of a recording's waits have a user stack, and a complete one: `bench-stacks DIR` prints
//! a line of JSON. Waits that had not ended are left out: theirs are taken in another way, by
//! looking at who still sleeps.

use std::error::Error;
use std::path::Path;

use whywait_events::Wait;
use whywait_events::recording::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir] = args.as_slice() else {
        return Err("usage: bench-stacks DIR".into());
    };
    let recording = Recording::open(Path::new(dir))?;
    let stacks = recording.stacks()?;
    let [mut waits, mut complete, mut cut_short, mut none] = [0u64; 4];
    recording.read::<Wait>(None, &mut |wait| {
        if wait.in_ns.is_none() {
            return;
        }
        waits += 1;
        match stacks.truncated(wait.user_stack) {
            Some(false) => complete += 1,
            Some(true) => cut_short += 1,
            None => none += 1,
        }
    })?;
    if let Some(damage) = recording.damaged().first() {
        return Err(format!("{}: {}", damage.what, damage.reason).into());
    }
    let counters: Vec<String> = recording
        .counters()?
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value}"))
        .collect();
    println!(
        "{{\"waits\": {waits}, \"complete\": {complete}, \"cut_short\": {cut_short}, \
         \"none\": {none}, \"counters\": {{{}}}}}",
        counters.join(", ")
    );
    Ok(())
}
