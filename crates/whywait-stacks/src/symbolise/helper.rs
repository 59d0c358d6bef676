//! Names by another process, one without privileges: whatever a file does to its reader, it costs
//! the names of that file.
//!
//! A job goes over a socket: the file, open, and one end of a stream of its own. Over that come the
//! question and the answer, as JSON. The answer is not trusted: it is bounded and checked.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::names::{Answer, MAX_DEPTH, MAX_NAME, Named, Question};

/// Bytes of an answer.
const MAX_ANSWER: u64 = 40 << 20;
/// Bytes of a question: a million addresses have less.
const MAX_QUESTION: u64 = 32 << 20;
/// The helper ends what takes too long; by then it has.
const GRACE: Duration = Duration::from_millis(500);

/// Has a file's names read.
pub(super) fn ask(
    helper: &UnixStream,
    file: &File,
    question: &Question<'_>,
    at_most: Duration,
) -> io::Result<Answer> {
    let (ours, theirs) = UnixStream::pair()?;
    let at_most_ms = u32::try_from(at_most.as_millis()).unwrap_or(u32::MAX);
    if at_most_ms == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    send(helper, at_most_ms, file, theirs)?;
    ours.set_read_timeout(Some(at_most + GRACE))?;
    ours.set_write_timeout(Some(at_most + GRACE))?;
    let mut asked = BufWriter::new(&ours);
    serde_json::to_writer(&mut asked, question)?;
    asked.flush()?;
    ours.shutdown(Shutdown::Write)?;
    let mut bytes = Vec::new();
    (&ours).take(MAX_ANSWER).read_to_end(&mut bytes)?;
    // One that is cut off is no JSON.
    let answer: Answer = serde_json::from_slice(&bytes)?;
    if !is_sound(&answer.named, question.addresses.len()) {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(answer)
}

fn is_sound(named: &[Named], addresses: usize) -> bool {
    let each = |it: &Named| {
        (it.at as usize) < addresses
            && usize::from(it.depth) < MAX_DEPTH
            && it.name.len() <= MAX_NAME
            && it.file.len() <= MAX_NAME
    };
    named.iter().all(each) && named.is_sorted_by(|a, b| (a.at, a.depth) < (b.at, b.depth))
}

fn send(socket: &UnixStream, at_most_ms: u32, file: &File, stream: UnixStream) -> io::Result<()> {
    let descriptors = [file.as_fd(), stream.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = at_most_ms.to_le_bytes();
    sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// A file whose names are wanted.
#[derive(Debug)]
pub struct Job {
    file: File,
    stream: UnixStream,
    at_most: Duration,
}

/// The next job that comes over a socket, for whoever is the helper; `None`: there are no more.
///
/// # Errors
/// Fails when something else comes.
pub fn next_job(socket: &UnixStream) -> io::Result<Option<Job>> {
    let mut bytes = [0; 4];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let [file, stream]: [OwnedFd; 2] = descriptors
        .try_into()
        .map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
    Ok(Some(Job {
        file: file.into(),
        stream: stream.into(),
        at_most: Duration::from_millis(u32::from_le_bytes(bytes).into()),
    }))
}

impl Job {
    /// How long it may take.
    pub fn at_most(&self) -> Duration {
        self.at_most
    }

    /// Does it.
    ///
    /// # Errors
    /// Fails when nobody waits for it any more.
    pub fn run(self) -> io::Result<()> {
        let question: Question<'_> =
            serde_json::from_reader(BufReader::new((&self.stream).take(MAX_QUESTION)))?;
        let answer = question.names(&self.file);
        let mut written = BufWriter::new(&self.stream);
        serde_json::to_writer(&mut written, &answer)?;
        written.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::names::Debug;
    use super::*;

    fn question(addresses: &[u64]) -> Question<'_> {
        Question {
            addresses: Cow::Borrowed(addresses),
            debug: Debug::None,
            installed: Vec::new(),
        }
    }

    #[test]
    fn a_job_and_its_answer() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = std::thread::spawn(move || {
            let mut jobs = 0;
            while let Some(job) = next_job(&theirs).unwrap() {
                assert_eq!(job.at_most(), Duration::from_secs(60));
                job.run().unwrap();
                jobs += 1;
            }
            jobs
        });
        let file = File::open("/proc/self/exe").unwrap();
        let elf = crate::elf::Elf::read(&file).unwrap();
        let mut start = 0;
        elf.symbols(1 << 30, |name, address, _| {
            if name == b"_start" {
                start = address;
            }
        });
        let addresses = [start];
        let asked = question(&addresses);
        let answer = ask(&ours, &file, &asked, Duration::from_secs(60)).unwrap();
        assert_eq!(answer, asked.names(&file));
        assert_eq!((&*answer.named[0].name, answer.lost), ("_start", 0));
        drop(ours);
        assert_eq!(helper.join().unwrap(), 1);
    }

    #[test]
    fn a_helper_that_dies_or_sleeps_is_an_error() {
        let file = File::open("/proc/self/exe").unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let brief = Duration::from_millis(20);
        let begun = std::time::Instant::now();
        assert!(ask(&ours, &file, &question(&[1]), brief).is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
        drop(theirs);
        assert!(ask(&ours, &file, &question(&[1]), brief).is_err());
        assert!(ask(&ours, &file, &question(&[1]), Duration::ZERO).is_err());
    }

    #[test]
    fn an_answer_is_checked() {
        let named = |at, depth, length| Named {
            at,
            depth,
            name: "a".repeat(length),
            file: String::new(),
            line: 0,
        };
        assert!(is_sound(
            &[named(0, 0, 1), named(0, 1, MAX_NAME), named(2, 0, 1)],
            3
        ));
        for wrong in [
            vec![named(3, 0, 1)],
            vec![named(0, MAX_DEPTH as u16, 1)],
            vec![named(0, 0, MAX_NAME + 1)],
            vec![named(1, 0, 1), named(0, 0, 1)],
            vec![named(1, 0, 1), named(1, 0, 1)],
        ] {
            assert!(!is_sound(&wrong, 3), "{wrong:?}");
        }
    }
}
