//! Looks for the nodes of an array that is served, when too many of them are away, on a thread of
//! its own: asking nodes may take as long as they hang.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_cluster::ClientConfig;
use braid_cluster::VolumeAddress;
use braid_cluster::failover::Finder;

/// Pause before the nodes are asked once more.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the superblocks on these volumes and judges how the array starts from them.
pub type Judge = Box<dyn Fn(&[VolumeAddress]) -> Result<ClientConfig, Refusal> + Send>;

/// Parts that an array needs to be started again.
pub struct Again {
    /// Judge of how it starts.
    pub judge: Judge,
    /// Time for which requests wait for nodes.
    pub fail_timeout: Duration,
}

impl Again {
    pub(super) fn fail_timeout_ms(&self) -> u64 {
        u64::try_from(self.fail_timeout.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").field("fail_timeout", &self.fail_timeout).finish_non_exhaustive()
    }
}

/// A search that goes on beside the engine.
#[derive(Debug)]
pub(super) struct Search {
    /// Channel of the volumes to look at, one list for each search. The search ends when this is
    /// dropped.
    asks: Sender<Vec<VolumeAddress>>,
    found: Receiver<Result<ClientConfig, Refusal>>,
}

impl Search {
    pub(super) fn new(judge: Judge) -> std::io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let (finds, found) = mpsc::channel();
        let run = move || search(&judge, &asked, &finds);
        thread::Builder::new().name("search".into()).spawn(run)?;
        Ok(Self { asks, found })
    }
}

impl Finder for Search {
    fn look(&mut self, places: Vec<VolumeAddress>) {
        // What an earlier search found is of no use any more.
        while self.found.try_recv().is_ok() {}
        let _ = self.asks.send(places);
    }

    fn found(&mut self) -> Option<Result<ClientConfig, Refusal>> {
        self.found.try_recv().ok()
    }
}

fn search(
    judge: &Judge,
    asked: &Receiver<Vec<VolumeAddress>>,
    finds: &Sender<Result<ClientConfig, Refusal>>,
) {
    let mut began: Option<Instant> = None;
    while let Ok(mut places) = asked.recv() {
        // What was found a moment ago was not enough.
        if let Some(rest) = began.and_then(|began| PAUSE.checked_sub(began.elapsed())) {
            thread::sleep(rest);
        }
        began = Some(Instant::now());
        loop {
            match judge(&places) {
                Ok(config) => {
                    let _ = finds.send(Ok(config));
                    break;
                }
                Err(why) => {
                    let _ = finds.send(Err(why));
                }
            }
            match asked.recv_timeout(PAUSE) {
                Ok(anew) => places = anew,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
