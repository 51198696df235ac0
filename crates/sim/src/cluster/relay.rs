//! Clients that follow one another on a small array, many of them, each for a short while.

use std::ops::Range;

use braid_array::action::CommandId;
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::status::ArrayState;
use braid_array::{Action, AnyMachine, Buf, Op, Request, RequestError, RequestId};
use braid_cluster::client::{Client, ClientConfig};
use braid_cluster::view::View;

use self::blocks::Blocks;
use super::process::Process;
use super::scenario::Scenario;
use super::sequenced_blocks::{self, BLOCK_BYTES};
use super::session::{ARRAY, Session, VOLUME};
use crate::report::Failure;
use crate::rng::Rng;

mod array;
mod between;
mod blocks;
mod finish;
mod life;
mod starts;

/// Requests of a client in flight.
const DEPTH: usize = 6;
const BLOCK_SECTORS: u64 = (BLOCK_BYTES / 512) as u64;
/// The largest request, in blocks.
const MAX_BLOCKS: u64 = 64;
/// Beyond so many events it is said to hang.
const MAX_STEPS: u64 = 400_000;
const STOP: CommandId = CommandId(1);

#[derive(Clone, Debug)]
enum Flight {
    Read(Range<usize>),
    Write { blocks: Range<usize>, first: u64, fua: bool },
    Flush { began: u64 },
}

/// A client.
#[derive(Debug)]
struct Runner {
    process: usize,
    /// The roles that it was started with.
    roles: Vec<u16>,
    flights: Vec<Option<Flight>>,
    serves: bool,
    /// All that was left was decided when it began, and nothing has failed since.
    sure: bool,
    /// What it was started from is no more.
    outdated: bool,
    stopped: bool,
}

/// A run of many short-lived clients: they die, are cut off or taken over from at any moment, above
/// all just when a node is lost; each reaches other nodes than the one before; nodes lose their
/// memories and come back at once, and at times all lose power. Whoever serves reads what was
/// answered, or, after a loss of power, what was flushed; in the end, with all nodes there,
/// everything fits.
///
/// [`run`] makes it. A client begins ([`begin`](Self::begin)), is asked for things and heard
/// ([`life`](Self::life)), and ends; [`pass_on`](Self::pass_on) says with which roles the next one
/// begins. After the last one [`finish`](Self::finish) reads all. The flags say what may be missing
/// by now: from them follows what `blocks` may hold.
struct Relay<'a> {
    session: &'a mut Session,
    blocks: Blocks,
    client: Option<Runner>,
    /// The one before, which goes on.
    fenced: Option<Runner>,
    next_value: u64,
    /// The highest epoch granted before the client came.
    granted: u32,
    /// Roles that were lost since.
    gone: Vec<u16>,
    /// Enough of those who hold the array have been there ever since.
    kept: bool,
    /// Not all of them are there, or not all members held it.
    missing: bool,
    /// After a loss of power it was gone on without some: what they had of whole stripes that
    /// nobody had recorded is lost.
    short: bool,
    began_at: u64,
    /// The last client has served.
    served: bool,
}

/// Is a seed about this? Drawn aside: the others are what they would be if there were none.
pub(super) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x0072_656c_6179).percent(33)
}

/// What such a seed is about.
pub(super) fn scenario(rng: &mut Rng) -> Scenario {
    array::draw(rng)
}

/// Lets clients follow one another, and looks at what is there in the end.
///
/// # Errors
/// What is wrong.
pub(super) fn run(session: &mut Session) -> Result<(), Failure> {
    let blocks = Blocks::new(session.layout.sectors() / BLOCK_SECTORS);
    let mut relay = Relay {
        blocks,
        client: None,
        fenced: None,
        next_value: 1,
        granted: 0,
        gone: Vec::new(),
        kept: true,
        missing: false,
        short: false,
        began_at: 0,
        served: false,
        session,
    };
    let all: Vec<u16> = (0..relay.session.scenario.params.nodes).collect();
    let mut roles = all.clone();
    for _ in 0..relay.session.rng.between(4, 16) {
        let just_then = relay.life(&roles)?;
        roles = relay.pass_on(just_then, &all);
    }
    relay.finish(&all)
}

impl Relay<'_> {
    /// Starts a client from what lies on the volumes of these roles.
    fn begin(&mut self, roles: &[u16]) {
        self.granted = self.session.votes().map(|vote| vote.granted).max().unwrap_or(0);
        (self.kept, self.missing) = (true, false);
        self.began_at = self.session.world.steps;
        let config = self.session.assembled(roles);
        let process = config.and_then(|config| self.start(config, roles));
        let begun = process.is_some();
        self.session.world.note(&[70], || format!("CLIENT with {roles:?}: {begun}"));
        self.client = process.map(|process| Runner {
            process,
            roles: roles.to_vec(),
            flights: vec![None; DEPTH],
            serves: false,
            sure: false,
            outdated: false,
            stopped: false,
        });
    }

    fn start(&mut self, config: ClientConfig, roles: &[u16]) -> Option<usize> {
        let session = &mut *self.session;
        let Scenario { params, limited, .. } = session.scenario;
        let looks = session.rng.percent(50);
        let others = (0..params.nodes).filter(|role| looks && !roles.contains(role));
        let places = others.map(|role| (session.address(role), VOLUME.to_owned()));
        let absent = places.collect();
        let config = ClientConfig { absent, ..config };
        let slots = DEPTH as u64 * MAX_BLOCKS * BLOCK_BYTES as u64;
        let bytes = Client::scratch_bytes(&config);
        // Those who came back to it may not be enough.
        let client = Client::new(config, Scratch { offset: slots, bytes }).ok()?;
        let client = AnyMachine::Block(Box::new(client));
        let process = Process::new("runner".to_owned(), client, (slots + bytes) as usize, None);
        session.client = session.world.start(process.limited_to(limited.then_some(ARRAY)));
        Some(session.client)
    }

    /// Until it serves: does the client find enough of those who held the array before?
    fn look_at_those_before(&mut self) {
        let Some(client) = self.client.as_ref().filter(|client| !client.serves) else { return };
        let views = self.session.votes().map(|vote| vote.view);
        let before = views.filter(|view| (1..=self.granted).contains(&view.epoch));
        let newest = before.max_by_key(View::order);
        let away = |role: &u16| !client.roles.contains(role) || self.gone.contains(role);
        let nodes = self.session.scenario.params.nodes;
        let away: Vec<u16> = (0..nodes).filter(away).collect();
        let lacks = |view: &View| (0..nodes).any(|role| !view.has(role));
        self.missing |= !away.is_empty() || newest.as_ref().is_some_and(lacks);
        let kept = newest.is_some_and(|v| !v.torn && self.session.have_kept_enough(&v, &away));
        self.kept &= kept;
        self.short |= !self.kept && self.missing && self.session.scenario.parts_only;
    }

    /// Asks the client for this, unless something else is under way there. Does it take it?
    fn request(&mut self, op: Op, range: Range<u64>) -> bool {
        self.look_at_those_before();
        if self.is_refused() {
            return false;
        }
        let Some(client) = &mut self.client else { return false };
        let Some(slot) = client.flights.iter().position(Option::is_none) else { return false };
        let (process, first) = (client.process, self.next_value);
        let blocks = range.start as usize..range.end as usize;
        if !self.blocks.take(blocks.clone()) {
            return false;
        }
        let offset = slot as u64 * MAX_BLOCKS * BLOCK_BYTES as u64;
        let buf = Buf { offset, len: (blocks.len() * BLOCK_BYTES) as u32 };
        let world = &mut self.session.world;
        let flight = match op {
            Op::Read => Flight::Read(blocks.clone()),
            Op::Write { fua } => {
                sequenced_blocks::fill(world.processes[process].bytes(buf), first);
                Flight::Write { blocks: blocks.clone(), first, fua }
            }
            _ => Flight::Flush { began: self.blocks.moment() },
        };
        let (sector, sectors) =
            (range.start * BLOCK_SECTORS, (range.end - range.start) * BLOCK_SECTORS);
        let request = Request { id: RequestId(slot as u64), op, sector, sectors, buf };
        let now = world.now();
        if world.processes[process].client().submit(now, request).is_err() {
            self.blocks.leave(blocks);
            return false;
        }
        world.note(&[75, slot as u64, sector, sectors], || format!("SUBMIT {slot} {flight:?}"));
        client.flights[slot] = Some(flight);
        self.it_serves();
        if matches!(op, Op::Write { .. }) {
            self.blocks.write(blocks, first, !self.session.scenario.parts_only);
            self.next_value += range.end - range.start;
        }
        self.session.world.drain(process);
        true
    }

    /// Is the client not to serve?
    fn is_refused(&mut self) -> bool {
        let Some(client) = self.client.as_ref().filter(|client| !client.serves) else {
            return false;
        };
        let status = self.session.world.processes[client.process].client().status();
        status.state == ArrayState::Failed
    }

    /// The client has taken a request: what it serves is what was left to it.
    fn it_serves(&mut self) {
        let Some(client) = self.client.as_mut().filter(|client| !client.serves) else { return };
        (client.serves, client.sure, self.served) = (true, self.kept, true);
        let (kept, missing) = (self.kept, self.missing);
        self.session.world.note(&[76], || format!("SERVES kept {kept} missing {missing}"));
        if !kept {
            self.blocks.power_lost(missing);
        }
    }

    fn step(&mut self) -> Result<bool, Failure> {
        self.look_at_those_before();
        let moved = self.session.world.step();
        for (process, action) in std::mem::take(&mut self.session.world.outputs) {
            self.hear(process, action)?;
        }
        if let Some(fault) = self.session.world.faults.first() {
            return Err(Failure(fault.clone()));
        }
        let Some(client) = &self.client else { return Ok(moved) };
        let waits = client.flights.iter().flatten().count();
        let steps = self.session.world.steps - self.began_at;
        if !moved && waits > 0 || steps > MAX_STEPS {
            return Err(Failure(format!("hangs, with {waits} requests unanswered")));
        }
        if client.outdated {
            let roles = client.roles.clone();
            self.session.world.kill(client.process);
            self.begin(&roles);
        }
        Ok(moved)
    }

    fn hear(&mut self, process: usize, action: Action) -> Result<(), Failure> {
        let serves = self.client.as_ref().is_some_and(|client| client.serves);
        let is_own = self.client.as_ref().is_some_and(|client| client.process == process);
        // One that is none any more may answer what it wrote before the next one served.
        let runner = if is_own { &mut self.client } else { &mut self.fenced };
        let heard = |runner: &&mut Runner| runner.process == process && (is_own || !serves);
        let Some(runner) = runner.as_mut().filter(heard) else { return Ok(()) };
        match action {
            Action::Complete { id, result } => {
                let flight = runner.flights.get_mut(id.0 as usize).and_then(Option::take);
                let flight = flight.ok_or_else(|| Failure("completed twice".to_owned()))?;
                runner.sure &= result.is_ok();
                let sure = runner.sure;
                let ok = result.is_ok();
                self.session.world.note(&[77, process as u64, id.0, u64::from(ok)], || {
                    format!("COMPLETE {process} {} {flight:?} {result:?}", id.0)
                });
                self.completed((process, is_own), id.0, flight, result, sure)
            }
            Action::Notify(ArrayEvent::MembersChanged) => {
                runner.outdated = true;
                Ok(())
            }
            Action::Reply { id: STOP, result } => {
                runner.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Notify(event) => {
                let joined = matches!(event, ArrayEvent::MemberActive { .. });
                self.session.signs.joined += u64::from(joined);
                self.session.world.note(&[78], || format!("EVENT {process} {event:?}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn completed(
        &mut self,
        (process, own): (usize, bool),
        slot: u64,
        flight: Flight,
        result: Result<(), RequestError>,
        sure: bool,
    ) -> Result<(), Failure> {
        match flight {
            Flight::Write { blocks, first, fua } => {
                if result.is_ok() {
                    self.blocks.written(blocks.clone(), first, fua);
                }
                if own {
                    self.blocks.leave(blocks);
                }
            }
            Flight::Read(blocks) if own => {
                self.blocks.leave(blocks.clone());
                if result.is_ok() {
                    let offset = slot * MAX_BLOCKS * BLOCK_BYTES as u64;
                    let len = (blocks.len() * BLOCK_BYTES) as u32;
                    let bytes = self.session.world.processes[process].bytes(Buf { offset, len });
                    self.blocks.read(blocks.start as u64, bytes, sure)?;
                }
            }
            Flight::Flush { began } if result.is_ok() => self.blocks.flushed(began),
            Flight::Read(_) | Flight::Flush { .. } => {}
        }
        Ok(())
    }
}
