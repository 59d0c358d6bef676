//! Writes a recording of made-up events with many rows: `bench-generate ROWS DIR [KIND]`; prints
//! the rows of each table as a line of JSON. The kinds: [`kinds`].

#[path = "../../../crates/whywait-events/examples/generator/mod.rs"]
mod generator;
mod kinds;
mod output;

use std::error::Error;
use std::path::Path;

use generator::Server;
use kinds::Kind;
use output::Output;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (rows, dir, kind) = match args.as_slice() {
        [rows, dir] => (*rows, *dir, Some(Kind::Mixed)),
        [rows, dir, kind] => (*rows, *dir, Kind::of_name(kind)),
        _ => return Err("usage: bench-generate ROWS DIR [KIND]".into()),
    };
    let rows: u64 = rows.parse()?;
    let kind = kind.ok_or_else(|| format!("KIND is one of {}", Kind::names().join(", ")))?;
    let server = Server::new(7);
    let mut output = Output::create(Path::new(dir), server.now())?;
    let end_ns = kind.write(server, rows, &mut output)?;
    println!("{}", output.finish(end_ns)?);
    Ok(())
}
