//! CPU time of recordings whose clock ticked at different rates.

use std::path::Path;

use whywait_compare::Run;
use whywait_events::recording::{Meta, RecordingOptions, Writer};
use whywait_events::{Event, Sample};

const MS: u64 = 1_000_000;

/// A recording of a second in which a thread was on a CPU for 400 ms, sampled once in so many
/// periods of 5 ms.
fn recorded(dir: &Path, periods: u32) -> Run {
    let meta = Meta {
        ended_ns: Some(1_000 * MS),
        options: RecordingOptions {
            sample_hz: 200,
            ..RecordingOptions::default()
        },
        ..Meta::default()
    };
    let mut writer = Writer::create(dir, &meta).expect("a recording can be created");
    for at in (0..400).step_by(5 * periods as usize) {
        let sample = Sample {
            at_ns: at * MS,
            tid: 7,
            tgid: 7,
            periods,
            ..Sample::default()
        };
        writer
            .write(&Event::Sample(sample))
            .expect("a sample can be written");
    }
    writer.finish(&meta).expect("a recording can be finished");
    Run::read(dir).expect("a recording can be read")
}

#[test]
fn a_clock_that_ticks_less_often_sees_as_much_cpu_time() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let dense = recorded(&folder.path().join("dense"), 1);
    let sparse = recorded(&folder.path().join("sparse"), 4);
    let cores = |run: &Run| run.value("cpu.cores");
    assert_eq!(
        (cores(&dense), cores(&sparse)),
        (Some(0.4), Some(0.4)),
        "400 ms of a second are 0.4 of a CPU, with 80 samples and with 20"
    );
}
