//! Hand-over of a serving process to the program that takes its place: `exec` in the same process
//! keeps descriptors open, so clients stay connected and members stay claimed. A document in memory
//! has the kind of each descriptor; an environment variable has the descriptor of the document.
//!
//! The starting program assembles the array like any other, but takes descriptors from here in
//! place of opening them, where they are here. If it cannot serve the array, the program before it
//! takes it back the same way.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_array::Refusal;
use rustix::fs::{FlockOperation, MemfdFlags, flock};
use rustix::io::FdFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execve::execve;
use crate::notify::kept;
use crate::system::{refused_by_system, since_1970};

/// Version of the document. A program takes its own and those before it.
pub const VERSION: u32 = 1;

/// The number of the document's descriptor.
const VARIABLE: &str = "BRAID_HANDOVER";

/// Kind of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A member, claimed and locked.
    Member(PathBuf),
    /// A listening Unix socket, which lies there.
    Socket(PathBuf),
    /// A listening socket on TCP, as the export names it.
    Tcp(String),
    /// The device of a mount.
    Mount(PathBuf),
    /// The program that serves until now.
    Program,
    /// The control connection over which this was asked for.
    Asker,
}

/// A client that stays connected.
#[derive(Debug, Serialize, Deserialize)]
struct HandedClient {
    /// The export, as it is named.
    at: String,
    socket: RawFd,
    /// Progress of the conversation; only the export understands it.
    state: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    /// Time since which requests wait: microseconds since 1970.
    since_us: u64,
    /// Settings made while the array ran.
    settings: Value,
    descriptors: Vec<(What, RawFd)>,
    guests: Vec<HandedClient>,
    /// The command line that goes on with it, without the program's name.
    words: Vec<String>,
    /// The next program could not, and this one is back.
    returned: bool,
}

/// Descriptors and state about to be handed over.
#[derive(Debug)]
pub(crate) struct Handover {
    document: Document,
    /// Members that the array needs to go on as it is.
    members: Vec<PathBuf>,
    /// Descriptors that the document names, in its order.
    descriptors: Vec<OwnedFd>,
    sockets: Vec<OwnedFd>,
}

impl Handover {
    /// Begins an empty hand-over of an array of these members. Requests wait from now on.
    ///
    /// # Errors
    /// When the program that runs cannot be opened.
    pub(crate) fn begin(settings: &impl Serialize, members: &[String]) -> io::Result<Self> {
        let document = Document {
            version: VERSION,
            since_us: now_us(),
            settings: serde_json::to_value(settings)?,
            descriptors: Vec::new(),
            guests: Vec::new(),
            words: Vec::new(),
            returned: false,
        };
        let members = members.iter().map(PathBuf::from).collect();
        let descriptors = Vec::new();
        let mut handover = Self { document, members, descriptors, sockets: Vec::new() };
        handover.give(What::Program, File::open("/proc/self/exe")?.into());
        Ok(handover)
    }

    /// Returns whether the array goes on with this member. Failed members are left behind.
    pub(crate) fn needs(&self, member: &Path) -> bool {
        self.members.iter().any(|known| known == member)
    }

    /// Hands a descriptor over.
    pub(crate) fn give(&mut self, what: What, descriptor: OwnedFd) {
        self.document.descriptors.push((what, descriptor.as_raw_fd()));
        self.descriptors.push(descriptor);
    }

    /// Hands a client of an export over.
    ///
    /// # Errors
    /// When its state has no form in JSON.
    pub(crate) fn give_guest(
        &mut self,
        at: &str,
        socket: OwnedFd,
        state: &impl Serialize,
    ) -> io::Result<()> {
        let state = serde_json::to_value(state)?;
        let guest = HandedClient { at: at.to_owned(), socket: socket.as_raw_fd(), state };
        self.document.guests.push(guest);
        self.sockets.push(socket);
        Ok(())
    }

    /// Puts a program in the place of this one, or this one anew if that fails. Returns only when
    /// neither can be started.
    pub(crate) fn exec(mut self, program: &Path, words: Vec<String>) -> io::Error {
        self.document.words = words;
        let error = exec(program, &self.document);
        tracing::error!("{}: {error}", program.display());
        self.document.returned = true;
        exec(Path::new("/proc/self/exe"), &self.document);
        error
    }
}

/// Puts a program in the place of this one, which is not handed to a shell if it is none.
fn exec(program: &Path, document: &Document) -> io::Error {
    let prepared = prepare(document);
    let Ok(memory) = prepared else { return prepared.expect_err("it is not there") };
    document.lock_members();
    let words = document.words.iter().map(OsString::from);
    let words = [OsString::from("braid")].into_iter().chain(words);
    let number = (OsString::from(VARIABLE), OsString::from(memory.as_raw_fd().to_string()));
    let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE && !kept::is_its(name));
    execve(program, words, others.chain([number]))
}

/// The document as a descriptor, which stays open across `exec` as those do that it names.
fn prepare(document: &Document) -> io::Result<File> {
    let mut memory = File::from(rustix::fs::memfd_create("braid-handover", MemfdFlags::empty())?);
    memory.write_all(&serde_json::to_vec(document)?)?;
    memory.rewind()?;
    document.numbers().try_for_each(|number| keep(number, true))?;
    Ok(memory)
}

impl Document {
    /// This process has closed its members, and with that unlocked them.
    fn lock_members(&self) {
        for (what, number) in &self.descriptors {
            if matches!(what, What::Member(_)) {
                // SAFETY: the document's descriptors are open as long as it is there.
                let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(*number) };
                // Somebody who looks at each file may have it; the next program waits for that.
                let _ = flock(descriptor, FlockOperation::NonBlockingLockExclusive);
            }
        }
    }

    fn numbers(&self) -> impl Iterator<Item = RawFd> {
        let descriptors = self.descriptors.iter().map(|(_, number)| *number);
        descriptors.chain(self.guests.iter().map(|guest| guest.socket))
    }
}

/// Sets whether a descriptor stays open across `exec`.
fn keep(number: RawFd, keep: bool) -> io::Result<()> {
    // SAFETY: it is only looked at; one that is not open is an error.
    let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    let flags = if keep { FdFlags::empty() } else { FdFlags::CLOEXEC };
    Ok(rustix::io::fcntl_setfd(descriptor, flags)?)
}

/// Descriptors and state from the previous program, until the array is served.
static INHERITED: Mutex<Option<Inherited>> = Mutex::new(None);

#[derive(Debug)]
struct Inherited {
    document: Document,
    /// Owns the descriptors that the document names.
    _open: Vec<OwnedFd>,
}

fn inherited() -> MutexGuard<'static, Option<Inherited>> {
    INHERITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes over the descriptors that the previous program in the same process has left, if there was
/// one. To be called before anything else is opened.
///
/// # Errors
/// When the document cannot be decoded. Then no other program can serve the array either.
pub fn adopt() -> Result<(), Refusal> {
    let Some(number) = std::env::var(VARIABLE).ok().and_then(|number| number.parse().ok()) else {
        return Ok(());
    };
    // A child of the program that was handed this has the variable, and not what it stands for.
    if keep(number, false).is_err() {
        return Ok(());
    }
    let refused = |error: io::Error| {
        let why = refused_by_system(&error);
        Refusal::new(format!("what was handed over cannot be read: {}", why.reason), why.next)
    };
    let document = read(number).map_err(refused)?;
    document.numbers().try_for_each(|number| keep(number, false)).map_err(refused)?;
    // SAFETY: the program before this one has left them for this, and nobody else here knows them.
    let open = document.numbers().map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect();
    // The process was given another name by the way in which the program was found.
    let _ = rustix::thread::set_name(c"braid");
    *inherited() = Some(Inherited { document, _open: open });
    Ok(())
}

fn read(number: RawFd) -> io::Result<Document> {
    // SAFETY: as in `adopt`; it is closed when it was read.
    let mut memory = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut bytes = Vec::new();
    memory.read_to_end(&mut bytes)?;
    let document: Document = serde_json::from_slice(&bytes)?;
    if document.version > VERSION {
        let reason = format!("its version is {}, not {VERSION}", document.version);
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(document)
}

/// Returns whether something is inherited that this program does not serve yet. While all of it may
/// have to be given back, nothing visible is taken away: no socket file, no mount, no client.
pub(crate) fn is_pending() -> bool {
    inherited().is_some()
}

/// Requests wait, and another program is about to take the place of this one.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Leaves, from now on, answers on the control socket to the next program.
pub(crate) fn begin_to_leave() {
    BEGUN.store(true, Ordering::Relaxed);
}

/// Returns whether another program is about to take the place of this one.
pub(crate) fn is_leaving() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// A descriptor that was handed over as this, until the array is served.
pub(crate) fn take(what: &What) -> Option<OwnedFd> {
    let inherited = inherited();
    let descriptors = &inherited.as_ref()?.document.descriptors;
    let (_, number) = descriptors.iter().find(|(known, _)| known == what)?;
    copy(*number)
}

/// The clients of an export, with how far each has come.
pub(crate) fn guests(at: &str) -> Vec<(OwnedFd, Value)> {
    let inherited = inherited();
    let Some(Inherited { document, .. }) = &*inherited else { return Vec::new() };
    let guests = document.guests.iter().filter(|guest| guest.at == at);
    guests.filter_map(|guest| Some((copy(guest.socket)?, guest.state.clone()))).collect()
}

/// A descriptor of the same file: the original stays for the program before this one.
fn copy(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is one of those that `INHERITED` owns, whose lock is held.
    let original = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(original, 0).ok()
}

/// Returns the settings made while the array ran.
pub(crate) fn settings<T: DeserializeOwned>() -> Option<T> {
    let settings = inherited().as_ref()?.document.settings.clone();
    serde_json::from_value(settings).ok()
}

/// Result of a hand-over.
pub(crate) struct Ended {
    /// Connection that asked for it.
    pub(crate) asker: Option<OwnedFd>,
    /// Time for which requests waited.
    pub(crate) pause: Duration,
    /// The program that was to take over could not.
    pub(crate) returned: bool,
}

/// Ends the hand-over once the array is served; there is no way back from here. `None` when nothing
/// was handed over.
pub(crate) fn complete() -> Option<Ended> {
    let asker = take(&What::Asker);
    let Inherited { document, .. } = inherited().take()?;
    let pause = Duration::from_micros(now_us().saturating_sub(document.since_us));
    Some(Ended { asker, pause, returned: document.returned })
}

/// An array that is no longer served, though it was to be upgraded.
#[derive(Debug)]
pub struct Unserved {
    /// Connection that asked for the upgrade, and waits.
    pub asker: Option<OwnedFd>,
    /// Reason for the failure.
    pub reason: String,
}

/// The array cannot be served by this program, for this reason: puts the one before it in its place
/// again, with all that it had. Returns where nothing was handed over, or where the one before
/// cannot serve it either.
pub fn go_back(reason: &str) -> Option<Unserved> {
    let asker = take(&What::Asker);
    let Inherited { mut document, _open } = inherited().take()?;
    let is_program = |(what, _): &&(What, RawFd)| *what == What::Program;
    let program = document.descriptors.iter().find(is_program).map(|(_, number)| *number);
    let mut reason = reason.to_owned();
    if let Some(program) = program
        && !document.returned
    {
        document.returned = true;
        let error = exec(Path::new(&format!("/proc/self/fd/{program}")), &document);
        tracing::error!("the program that served before cannot be started again: {error}");
        reason = format!("{reason}; the program before cannot be started again: {error}");
    }
    Some(Unserved { asker, reason })
}

fn now_us() -> u64 {
    let now = since_1970();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
