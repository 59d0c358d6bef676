//! Records a running process: `record PID SECONDS DIR`. With `TIER=fexit` it does without the
//! tracepoints of sockets, as on kernels before 6.3; with `COST=1` it says what its programs cost.
use whywait_capture::{Options, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let pid: u32 = args[1].parse()?;
    let seconds: u64 = args[2].parse()?;
    let absent: &[&str] = match std::env::var("TIER").as_deref() {
        Ok("fexit") => &["sk_data_ready", "sock_recv_length", "sock_send_length"],
        _ => &[],
    };
    let options = Options {
        measure_cost: std::env::var_os("COST").is_some(),
        absent_tracepoints: absent.to_vec(),
        ..Default::default()
    };
    let begun = std::time::Instant::now();
    let dir = std::path::Path::new(&args[3]);
    let mut session = Session::start(pid, whywait_target::command_line(pid), dir, &options)?;
    eprintln!("attached after {:?}", begun.elapsed());
    while begun.elapsed().as_secs() < seconds && whywait_target::alive(pid) {
        session.turn()?;
        session.sleep();
    }
    let ended = std::time::Instant::now();
    eprintln!("{:?} in {:?}", session.finish(None)?, ended.elapsed());
    Ok(())
}
