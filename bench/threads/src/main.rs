//! Thread-per-connection, as many servers are: each request takes a lock that all share,
//! hands a job to a few workers and sleeps until the answer is there. So a request is many futex
//! calls and many switches. Prints its address once it listens; `echo-load` loads it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

const WORKERS: usize = 4;
const REQUEST: usize = 64;

struct Job {
    request: [u8; REQUEST],
    answer: Sender<[u8; REQUEST]>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    filled: Condvar,
}

impl Queue {
    fn push(&self, job: Job) {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(job);
        self.filled.notify_one();
    }

    fn pop(&self) -> Job {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = jobs.pop_front() {
                return job;
            }
            jobs = self
                .filled
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What all connections share: how often each first byte was asked for.
struct Statistics([u64; 256]);

fn main() -> std::io::Result<()> {
    let queue = Arc::new(Queue::default());
    let statistics = Arc::new(Mutex::new(Statistics([0; 256])));
    for number in 0..WORKERS {
        let queue = Arc::clone(&queue);
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || work(&queue))?;
    }
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        let (queue, statistics) = (Arc::clone(&queue), Arc::clone(&statistics));
        thread::Builder::new()
            .name("connection".to_owned())
            // A client that goes away is no news.
            .spawn(move || serve(stream, &queue, &statistics).ok())?;
    }
}

fn serve(
    mut stream: TcpStream,
    queue: &Queue,
    statistics: &Mutex<Statistics>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (answer, answers) = channel();
    let mut request = [0; REQUEST];
    loop {
        stream.read_exact(&mut request)?;
        count(statistics, request[0]);
        queue.push(Job {
            request,
            answer: answer.clone(),
        });
        let Ok(response) = answers.recv() else {
            return Ok(());
        };
        stream.write_all(&response)?;
    }
}

fn count(statistics: &Mutex<Statistics>, kind: u8) {
    statistics.lock().unwrap_or_else(PoisonError::into_inner).0[usize::from(kind)] += 1;
}

fn work(queue: &Queue) {
    loop {
        let Job {
            mut request,
            answer,
        } = queue.pop();
        request.reverse();
        // The connection may have gone.
        answer.send(request).ok();
    }
}
