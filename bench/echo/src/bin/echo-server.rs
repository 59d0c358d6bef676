//! Sends back what it gets, on a tokio pool of two workers. Prints its address once it listens.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const WORKERS: usize = 2;

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            // A client that goes away is no news.
            tokio::spawn(async move { echo(stream).await.ok() });
        }
    })
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        let size = stream.read(&mut buffer).await?;
        if size == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..size]).await?;
    }
}
