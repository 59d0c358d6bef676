//! A bank with a lock for each account: `/ab` and `/ba` move money one way and the other.
//!
//! One at a time they are healthy. `/ab/together` and `/ba/together` meet on the way: broken, each
//! with the account locked that it takes from, so that each then waits for the other for good.
//! Fixed, both lock in the same order, and meet before they lock anything, which is as bad as it
//! can come.

use std::sync::{Barrier, Mutex as StdMutex, PoisonError};

use anyhow::{Result, bail};
use lab_kit::sync::{Mutex, lock};
use lab_kit::{http, tid};
use serde_json::{Value, json};

#[derive(Default)]
struct Accounts {
    a: Mutex<i64>,
    b: Mutex<i64>,
}

fn main() -> Result<()> {
    let fixed = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--fixed") => true,
        Some(other) => bail!("{other} is unknown"),
    };
    let accounts = Accounts::default();
    let meeting = Barrier::new(2);
    let met = StdMutex::new(Vec::<Value>::new());
    http::serve(move |path| {
        let together = path.ends_with("/together");
        if together {
            let mut met = met.lock().unwrap_or_else(PoisonError::into_inner);
            met.push(json!({"path": path, "tid": tid()?}));
        }
        let meet = || {
            if together {
                meeting.wait();
            }
        };
        match (path.trim_end_matches("/together"), fixed) {
            ("/ab", false) => transfer_ab(&accounts, meet),
            ("/ba", false) => transfer_ba(&accounts, meet),
            ("/ab", true) => {
                meet();
                transfer_ab(&accounts, || ());
            }
            ("/ba", true) => {
                meet();
                transfer_ba_in_order(&accounts);
            }
            ("/about", _) => {
                let met = met.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok(json!({"threads": *met}).to_string());
            }
            _ => bail!("no {path}"),
        }
        Ok("done".to_owned())
    })
}

/// These are not inlined, so that their frames are in the stack of a release build.
#[inline(never)]
fn transfer_ab(accounts: &Accounts, meet: impl Fn()) {
    let mut from = lock(&accounts.a);
    meet();
    let mut to = lock(&accounts.b);
    *from -= 1;
    *to += 1;
}

/// The fault: the account that it takes from first, as in `transfer_ab`, is the other one.
#[inline(never)]
fn transfer_ba(accounts: &Accounts, meet: impl Fn()) {
    let mut from = lock(&accounts.b);
    meet();
    let mut to = lock(&accounts.a);
    *from -= 1;
    *to += 1;
}

#[inline(never)]
fn transfer_ba_in_order(accounts: &Accounts) {
    let mut to = lock(&accounts.a);
    let mut from = lock(&accounts.b);
    *from -= 1;
    *to += 1;
}
