//! Records a running process: `record PID SECONDS DIR`.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let pid: u32 = args[1].parse()?;
    let seconds: u64 = args[2].parse()?;
    let options = whywait_capture::Options {
        measure_cost: std::env::var_os("COST").is_some(),
        ..Default::default()
    };
    let begun = std::time::Instant::now();
    let mut session = whywait_capture::Session::start(
        pid,
        whywait_target::command_line(pid),
        std::path::Path::new(&args[3]),
        &options,
    )?;
    eprintln!("attached after {:?}", begun.elapsed());
    while begun.elapsed().as_secs() < seconds && whywait_target::alive(pid) {
        session.turn()?;
        session.sleep();
    }
    let ended = std::time::Instant::now();
    eprintln!("{:?} in {:?}", session.finish(None)?, ended.elapsed());
    Ok(())
}
