//! Small scripted machines: clients that send messages no client of the library would send.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use braid_array::action::Event;
use braid_array::{Action, AnyMachine, Instant, Machine};

use super::World;
use super::process::Process;

/// Reaction of a script to an event.
type Rule = Box<dyn FnMut(&Event) -> Vec<Action> + Send>;

/// Events of a script so far, oldest first.
pub type Heard = Arc<Mutex<Vec<Event>>>;

/// A machine that begins with given actions, answers each event by its rule, and remembers the
/// events.
struct Script {
    actions: VecDeque<Action>,
    heard: Heard,
    rule: Rule,
}

impl Machine for Script {
    fn handle(&mut self, _now: Instant, event: Event) {
        self.actions.extend((self.rule)(&event));
        self.heard.lock().expect("no panic while it is held").push(event);
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        true
    }
}

/// Starts a script that listens under its name. Returns its process, and its events. Every peer may
/// put into the first half of its arena.
pub fn start(
    world: &mut World,
    name: &str,
    arena_bytes: u64,
    begin: Vec<Action>,
    rule: impl FnMut(&Event) -> Vec<Action> + Send + 'static,
) -> (usize, Heard) {
    let heard = Heard::default();
    let script = Script { actions: begin.into(), heard: Arc::clone(&heard), rule: Box::new(rule) };
    let machine = AnyMachine::Plain(Box::new(script));
    let address = Some(name.to_owned());
    let mut process = Process::new(name.to_owned(), machine, arena_bytes as usize, address);
    process.open_to_all = 0..arena_bytes / 2;
    (world.start(process), heard)
}
