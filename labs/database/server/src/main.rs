//! A server that asks a database for each request and answers with what became of it when.
//!
//! `database [--max-size N] DATABASE`: it is tokio's runtime of several threads, with deadpool's
//! pool of connections.

use anyhow::{Context, Result, bail};
use deadpool_postgres::{Config, ManagerConfig, Pool, PoolConfig, RecyclingMethod, Runtime};
use lab_kit::{announce, monotonic_ms};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_postgres::NoTls;

const QUERY: &str = "SELECT pg_sleep(0.05)";

fn main() -> Result<()> {
    use lexopt::prelude::{Long, Value, ValueExt};
    let (mut address, mut most) = (None, 16);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("max-size") => most = parser.value()?.parse()?,
            Value(value) => address = Some(value.string()?),
            _ => bail!(argument.unexpected()),
        }
    }
    let address = address.context("whom to ask?")?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(pool(&address, most)?))
}

fn pool(address: &str, most: usize) -> Result<Pool> {
    let (host, port) = address.rsplit_once(':').context("no port")?;
    let mut config = Config::new();
    config.host = Some(host.to_owned());
    config.port = Some(port.parse()?);
    config.user = Some("postgres".to_owned());
    config.dbname = Some("postgres".to_owned());
    config.pool = Some(PoolConfig::new(most));
    config.manager = Some(ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    });
    Ok(config.create_pool(Some(Runtime::Tokio1), NoTls)?)
}

async fn serve(pool: Pool) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&listener.local_addr()?.to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        let pool = pool.clone();
        tokio::spawn(async move {
            if let Err(error) = converse(stream, &pool).await {
                eprintln!("database: {error:#}");
                std::process::exit(1);
            }
        });
    }
}

/// Serves a client, keep-alive, until it goes.
async fn converse(mut client: TcpStream, pool: &Pool) -> Result<()> {
    client.set_nodelay(true)?;
    let mut received = Vec::new();
    while client.read_buf(&mut received).await? > 0 {
        if !received.ends_with(b"\r\n\r\n") {
            continue;
        }
        received.clear();
        let read = monotonic_ms();
        let (begun, ended) = fetch_report(pool).await?;
        client.write_all(&answer(read, begun, ended)).await?;
    }
    Ok(())
}

/// The query, from when it has a connection until its rows are read.
async fn fetch_report(pool: &Pool) -> Result<(f64, f64)> {
    let connection = pool.get().await?;
    let begun = monotonic_ms();
    connection.simple_query(QUERY).await?;
    Ok((begun, monotonic_ms()))
}

fn answer(read: f64, begun: f64, ended: f64) -> Vec<u8> {
    let calls = [[begun, ended]];
    let said = json!({ "read": read, "begun": begun, "ended": ended, "calls": calls });
    let body = said.to_string();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
