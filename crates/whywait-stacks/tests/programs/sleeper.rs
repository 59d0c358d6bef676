// Blocks the main thread in join, a second thread in a mutex below generic and inlined code.
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Server<T>(T);

impl<T: Fn() -> u64> Server<T> {
    #[inline(never)]
    fn handle(&self, n: u64) -> u64 {
        black_box(self.inlined(n)) + 1
    }
    #[inline(always)]
    fn inlined(&self, n: u64) -> u64 {
        black_box((self.0)()) + n
    }
}

#[inline(never)]
fn take_lock(lock: &Mutex<u64>) -> u64 {
    *lock.lock().unwrap()
}

#[inline(never)]
fn sleep_long(n: u64) -> u64 {
    std::thread::sleep(Duration::from_secs(black_box(n)));
    n
}

fn main() {
    let lock = Arc::new(Mutex::new(1));
    let _held = lock.lock().unwrap();
    let other = lock.clone();
    std::thread::spawn(move || {
        let server = Server(|| take_lock(&other));
        black_box(server.handle(black_box(3)))
    });
    black_box(sleep_long(black_box(1000)));
}
