//! Replacement of the program that serves an array by another one, in the same process: requests
//! wait, those in flight are answered, the array stops cleanly, and the other program assembles it,
//! with the clients, mounts, sockets and members that this one had open.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use braid_array::action::Command;
use braid_array::events::SyncAction;
use braid_array::format::superblock::feature;
use braid_array::format::suspended::journal_number;
use braid_array::refusal::{Invocation, Next, Refusal};
use braid_array::status::{ArrayState, JournalMode, MemberState, MemberStatus, Status};
use serde::{Deserialize, Serialize};

use super::Assembled;
use super::contents::ServedPart;
use super::faulty::{self, FaultyMember};
use super::leftovers::Leftovers;
use super::nodes::NotSetUp;
use super::running::{NotReplaced, Running};
use super::trial;
use crate::control::wire::LastScrub;
use crate::control::{ControlServer, News, NextProgram, StopAnswer};
use crate::handover::{self, Ended, Handover, What};
use crate::limits::{LimitKeeper, Limits};
use crate::submission::{Message, SubmissionQueue};
use crate::system::{describe, refused_by_system};

/// Limit on waiting for clients that may be disconnected.
const MOMENT: Duration = Duration::from_secs(1);
/// Limit on waiting for operations in flight, while requests wait.
const PATIENCE: Duration = Duration::from_secs(5);

type Words = Box<dyn Fn(&[String], &[String]) -> Vec<String> + Send>;

/// Command line by which another program assembles the array from these members and serves it with
/// these exports, as this one does.
pub struct Successor(Words);

impl Successor {
    /// Members, which options may follow, and exports come as a user types them.
    pub fn new(words: impl Fn(&[String], &[String]) -> Vec<String> + Send + 'static) -> Self {
        Self(Box::new(words))
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Successor").finish_non_exhaustive()
    }
}

/// Settings made while the array ran, and findings, which end with the process.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    limits: Limits,
    paused: bool,
    /// Mode of the journal, for arrays that have one, or have it off for a time.
    journal_mode: Option<JournalMode>,
    /// Parts on the array, as clients know them.
    #[serde(default)]
    parts: Option<Vec<ServedPart>>,
    #[serde(default)]
    faulty: Vec<FaultyMember>,
    #[serde(default)]
    last_scrub: Option<LastScrub>,
}

impl Settings {
    fn of(status: &Status, upgrade: &Upgrade<'_>, parts: Option<&Vec<ServedPart>>) -> Self {
        let is_off = journal_number(&status.superblock).is_some();
        let has_journal = status.journal.is_some() || is_off;
        Self {
            limits: upgrade.limits.get(),
            paused: status.sync.paused,
            journal_mode: has_journal.then_some(status.journal_mode),
            parts: parts.cloned(),
            faulty: faulty::of(status),
            last_scrub: upgrade.news.last_scrub(),
        }
    }
}

/// Returns the parts on the array, as the previous program served them.
pub(super) fn parts() -> Option<Vec<ServedPart>> {
    handover::settings::<Settings>()?.parts
}

/// Returns the last check or repair that ended while the previous program served the array.
pub(super) fn last_scrub() -> Option<LastScrub> {
    handover::settings::<Settings>()?.last_scrub
}

/// Adds to the configuration the members that failed while the previous program served the array.
pub(super) fn list_faulty(array: &mut Assembled) {
    if let Some(settings) = handover::settings::<Settings>() {
        faulty::list(array, &settings.faulty);
    }
}

/// Has the array begin with the limits of background work that were in force before another program
/// took over, where one did, or else with these.
pub(super) fn begin_limited(keeper: &LimitKeeper, limits: Limits) {
    let settings = handover::settings::<Settings>();
    let (before, paused) = settings.map_or_else(Default::default, |it| (it.limits, it.paused));
    keeper.begin(before.over(limits));
    if paused {
        keeper.begin_paused();
    }
}

/// Restores the mode of the journal, as it was before another program took over, where one did.
pub(super) fn restore(submissions: &SubmissionQueue) -> Result<(), Refusal> {
    let mode = handover::settings::<Settings>().and_then(|settings| settings.journal_mode);
    let Some(mode) = mode.filter(|mode| *mode != JournalMode::default()) else { return Ok(()) };
    let command = Command::JournalMode(mode);
    let set = submissions.call(|done| Message::Command { command, device: None, done });
    // An array that has ended meanwhile tells why by itself.
    set.unwrap_or(Ok(()))
}

/// Parts of this program that another one needs, besides the array itself.
pub(super) struct Upgrade<'a> {
    /// `None` where there can be no other program.
    pub(super) successor: &'a Option<Successor>,
    pub(super) limits: &'a LimitKeeper,
    pub(super) news: &'a News,
    pub(super) control: &'a ControlServer,
}

impl Upgrade<'_> {
    /// Puts another program in the place of this one. Returns only when that did not come about.
    pub(super) fn replace_program(
        &self,
        running: &mut Running,
        wanted: NextProgram,
    ) -> NotReplaced {
        match self.try_replace_program(running, wanted) {
            Ok(why) => why,
            Err(refusal) => NotReplaced::Refused(refusal),
        }
    }

    fn try_replace_program(
        &self,
        running: &mut Running,
        NextProgram { program, takes, force, more, asker }: NextProgram,
    ) -> Result<NotReplaced, Refusal> {
        let Some(Successor(words)) = self.successor else {
            let reason = "its members are memory of its process, or pieces of other arrays, with \
                          which no other program goes on";
            return Err(Refusal::new(reason, running.stop_and_assemble()));
        };
        check_version(&program, takes)?;
        let ended = || Refusal::new("the engine has ended", "assemble the array again");
        let status = running.submissions.status().ok_or_else(ended)?;
        let members = [members(&status)?, more].concat();
        trial::check_program(&program)?;
        let Some(asker) = asker else { return Ok(NotReplaced::Possible) };
        let system = |error| refused_by_system(&error);
        let settings = Settings::of(&status, self, running.open_exports.parts());
        let mut handover = Handover::begin(&settings, &members).map_err(system)?;
        let exports = running.open_exports.hand_over(&mut handover).map_err(system)?;
        self.control.hand_over(&mut handover).map_err(system)?;
        handover.give(What::Asker, asker);
        let handover = running.hand_over_clients(handover, force)?;
        handover::begin_to_leave();
        let name = &running.name;
        tracing::info!(array = name, "hands over to {}", program.display());
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        let stopped =
            running.submissions.call(stop).unwrap_or(Ok(())).and_then(|()| running.join());
        // However it went: what was answered is on the members, and the clients are gone from here.
        if let Err(refusal) = stopped {
            tracing::error!(array = running.name, "handed over without a clean stop: {refusal}");
        }
        let spill = spill(&status).map(|file| ["--backup-file".to_owned(), file.to_owned()]);
        let words = words(&[members, spill.into_iter().flatten().collect()].concat(), &exports);
        let error = handover.exec(&program, words);
        let reason = format!("{} cannot be started: {}", program.display(), describe(&error));
        Ok(NotReplaced::Stopped(Refusal::new(reason, "assemble the array again")))
    }
}

impl Running {
    /// Holds new requests, waits for those in flight, and hands the clients over.
    fn hand_over_clients(&self, handover: Handover, force: bool) -> Result<Handover, Refusal> {
        let held = self.exports.hold(if force { MOMENT } else { PATIENCE })
            || force && {
                self.exports.cut_off();
                self.exports.hold(PATIENCE)
            };
        if !held {
            self.exports.go_on();
            let reason = format!(
                "what was asked of it is still not answered after {} s, by a member or by a client \
                 that does not send or take its data",
                PATIENCE.as_secs()
            );
            let detail = Invocation::Detail { array: Some(self.name.clone()) };
            let next = "hang up on such a client with --force, or see its members and clients";
            return Err(Refusal::new(reason, Next::by(next, detail)));
        }
        match self.exports.hand_over(handover) {
            Some(Ok(handover)) => Ok(handover),
            Some(Err(error)) => {
                self.exports.go_on();
                Err(Refusal::new(describe(&error), self.stop_and_assemble()))
            }
            None => Err(Refusal::new("the engine has ended", "assemble the array again")),
        }
    }

    fn stop_and_assemble(&self) -> Next {
        let stop = Invocation::Stop { array: Some(self.name.clone()), force: false };
        Next::by("stop it, and start it with the other program", stop)
    }
}

/// Checks that the program can take over from this one.
fn check_version(program: &Path, takes: u32) -> Result<(), Refusal> {
    if takes >= handover::VERSION {
        return Ok(());
    }
    let reason = format!(
        "{} takes hand-overs up to version {takes}, and this is version {}",
        program.display(),
        handover::VERSION
    );
    Err(Refusal::new(reason, "use a newer program, or stop the array first"))
}

/// The members as they are typed. An error while something goes on that a stop would end.
fn members(status: &Status) -> Result<Vec<String>, Refusal> {
    let scrubs = |array: &Status| {
        let works = [Some(array.sync.action), array.sync.next];
        works.iter().flatten().any(|work| matches!(work, SyncAction::Check | SyncAction::Repair))
    };
    if scrubs(status) || status.children.iter().any(scrubs) {
        let reason = "a check or repair is under way, which would end";
        return Err(Refusal::new(reason, "wait for its end, or end it with --stop"));
    }
    refuse_what_no_start_takes(status)?;
    if status.waiting.is_some() {
        return Err(Refusal::new("its nodes are away", "try again when they are back"));
    }
    // A member that has failed is not taken in again; one whose node is away comes back.
    let goes_on = |member: &&MemberStatus| member.awaited || member.state != MemberState::Faulty;
    let members = faulty::arrays(status).iter().flat_map(|array| &array.members).filter(goes_on);
    let mut members: Vec<String> = members.map(|member| member.device.clone()).collect();
    // Who was away when the array was assembled is looked for on.
    let absent = status.view.iter().flat_map(|view| &view.absent);
    for absent in absent {
        if !members.contains(&absent.device) {
            members.push(absent.device.clone());
        }
    }
    Ok(members)
}

/// An array that goes on as it is, and would not start.
fn refuse_what_no_start_takes(status: &Status) -> Result<(), Refusal> {
    if status.state == ArrayState::Failed {
        let reason = "it has failed, and no program starts it as it is";
        return Err(Refusal::new(reason, "save what can still be read, then stop it"));
    }
    check_spill(status)?;
    let is_live = |id| {
        let member = status.members.iter().find(|member| member.member == id);
        member.is_some_and(|member| member.state != MemberState::Faulty)
    };
    let journal = status.journal.as_ref().map(|journal| journal.member);
    if status.superblock.has(feature::JOURNAL) && !journal.is_some_and(is_live) {
        let reason = "its journal has failed, and no program starts it without";
        return Err(Refusal::new(reason, "give it another one with add --journal"));
    }
    Ok(())
}

/// Returns the file that a move in place saves to.
fn spill(status: &Status) -> Option<&str> {
    let spill = status.spill.as_ref().filter(|spill| !spill.is_over)?;
    status.superblock.has(feature::RESHAPE_ACTIVE).then_some(spill.device.as_str())
}

/// Checks that the file that a move in place saves to is where the other program will look for it,
/// and that the move gets to where nothing is there alone.
fn check_spill(status: &Status) -> Result<(), Refusal> {
    let Some(spill) = spill(status) else { return Ok(()) };
    if let Some(why) = &status.held_up {
        let reason = format!("{why}, and what is saved to {spill} may be there alone");
        let next = Next::by("see what it waits for", Invocation::Status { array: None });
        return Err(Refusal::new(reason, next));
    }
    let header = File::open(spill).and_then(|file| {
        let mut header = [0; 32];
        file.read_exact_at(&mut header, 0).map(|()| header)
    });
    let reason = match header {
        Ok(header) if header[16..] == status.superblock.set_uuid => return Ok(()),
        Ok(_) => format!("{spill} is not the file any more that data are saved to"),
        Err(error) => format!("{spill}, which data are saved to: {}", describe(&error)),
    };
    Err(Refusal::new(reason, Next::by("wait for the move", Invocation::Watch { array: None })))
}

impl Running {
    /// Ends an array that is not served after all, or leaves it to the program that this one goes
    /// back to. Returns the answer to a requested stop, if any, and the reason for the end.
    pub(super) fn end_start(
        &mut self,
        NotSetUp { why, told }: NotSetUp,
    ) -> (Option<StopAnswer>, Result<(), Refusal>) {
        if handover::is_pending() {
            self.let_go();
            return (told, Err(why));
        }
        (told, self.stop(true).and(Err(why)))
    }

    /// Serves from here on the inherited clients, and has what is left of an earlier array removed;
    /// there is no way back.
    pub(super) fn take_over(&self, leftovers: Option<Leftovers>) -> Result<(), Refusal> {
        if handover::is_pending() {
            // An engine that has ended would serve nobody.
            self.submissions
                .status()
                .ok_or_else(|| Refusal::new("the engine has ended", "see its log"))?;
            conclude(&self.name);
            self.exports.go_on();
        }
        let removed =
            leftovers.map_or(Ok(()), |it| it.remove_in_the_end(&self.name, &self.submissions));
        removed.map_err(|error| refused_by_system(&error))
    }
}

/// Reports to the connection that asked for another program, and to the log, that this one serves
/// the array.
fn conclude(name: &str) {
    let Some(Ended { asker, pause, returned }) = handover::complete() else { return };
    let millis = pause.as_millis();
    if returned {
        let what = "the other program could not serve it, as said above; this one goes on";
        tracing::error!(array = name, "{what}; requests waited {millis} ms");
    } else {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(array = name, "taken over by version {version}; waited {millis} ms");
    }
    if let Some(asker) = asker {
        // Whoever asked may have gone away.
        let _ = crate::control::say_upgraded(asker, pause, returned);
    }
}
