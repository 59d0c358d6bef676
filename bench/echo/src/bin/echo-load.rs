//! A closed loop of small requests: `echo-load ADDRESS CONNECTIONS SECONDS` prints a line of JSON
//! with the rate and the latencies. One thread, so that it takes no more than one CPU from the
//! server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const REQUEST: [u8; 64] = [b'x'; 64];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, address, connections, seconds] = args.as_slice() else {
        return Err("usage: echo-load ADDRESS CONNECTIONS SECONDS".into());
    };
    let (address, connections): (SocketAddr, usize) = (address.parse()?, connections.parse()?);
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut latencies_ns, took) = runtime.block_on(load(address, connections, duration))?;
    latencies_ns.sort_unstable();
    let quantile =
        |q: f64| latencies_ns[((latencies_ns.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    println!(
        "{{\"requests\": {}, \"rps\": {:.1}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}",
        latencies_ns.len(),
        latencies_ns.len() as f64 / took.as_secs_f64(),
        quantile(0.5),
        quantile(0.99),
    );
    Ok(())
}

/// Gives every latency in nanoseconds, and how long all of it took.
async fn load(
    address: SocketAddr,
    connections: usize,
    duration: Duration,
) -> Result<(Vec<u64>, Duration), Box<dyn std::error::Error>> {
    // All are connected, and were answered once, before the clock starts.
    let mut streams = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        ask(&mut stream).await?;
        streams.push(stream);
    }
    let start = Instant::now();
    let end = start + duration;
    let local = tokio::task::LocalSet::new();
    let clients: Vec<_> = streams
        .into_iter()
        .map(|stream| local.spawn_local(client(stream, end)))
        .collect();
    local.await;
    let took = start.elapsed();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    if latencies.is_empty() {
        return Err("no request was answered in time".into());
    }
    Ok((latencies, took))
}

async fn client(mut stream: TcpStream, end: Instant) -> std::io::Result<Vec<u64>> {
    let mut latencies = Vec::new();
    loop {
        let asked = Instant::now();
        if asked >= end {
            return Ok(latencies);
        }
        ask(&mut stream).await?;
        latencies.push(asked.elapsed().as_nanos() as u64);
    }
}

async fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&REQUEST).await?;
    let mut answer = [0; REQUEST.len()];
    stream.read_exact(&mut answer).await?;
    Ok(())
}
