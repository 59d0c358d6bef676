//! A server whose handler computes a fixed amount, or with `--tenth` a tenth more: how much that
//! takes is the machine's business, but the ratio is not.

use std::hint::black_box;

use anyhow::Result;
use lab_kit::http;

/// Rounds of a handler's computing: some 2 ms.
const ROUNDS: u32 = 1_000_000;

fn main() -> Result<()> {
    let mut rounds = ROUNDS;
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("tenth") => rounds += ROUNDS / 10,
            _ => return Err(arg.unexpected().into()),
        }
    }
    http::serve(move |_| Ok(format!("{:x}", render_page(rounds))))
}

/// Stands for what a page takes to make. Not inlined, so that its frame is in the stack of a
/// release build.
#[inline(never)]
fn render_page(rounds: u32) -> u64 {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..rounds {
        // Each round needs the last one's result: no compiler and no CPU gets ahead of that.
        state = (state ^ u64::from(round))
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .rotate_left(31);
    }
    state
}
