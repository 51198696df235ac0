//! Drives the machines of a world: hands them events, and carries out their actions.

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::{Action, Machine};
use braid_cluster::client::{Client, ClientConfig};

use super::due::{Due, EndId, FabricDue};
use super::process::Process;
use super::work::Task;
use super::world::ClusterWorld;

impl ClusterWorld {
    /// Starts a process, and carries out the first actions of its machine. Returns its number.
    pub fn start(&mut self, process: Process) -> usize {
        self.processes.push(process);
        let number = self.processes.len() - 1;
        self.drain(number);
        number
    }

    /// Starts a client with this arena: buffers of its requests, and behind them its own memory.
    /// With `limit`, it has the key of that array alone.
    ///
    /// # Errors
    /// Returns an error if the client refuses the array.
    pub fn start_client(
        &mut self,
        name: &str,
        config: ClientConfig,
        buffers_bytes: u64,
        limit: Option<[u8; 16]>,
    ) -> Result<usize, String> {
        let scratch = Scratch { offset: buffers_bytes, bytes: Client::scratch_bytes(&config) };
        let client = Box::new(Client::new(config, scratch)?);
        Ok(self.start(Process::of_client(name, client, scratch, limit)))
    }

    /// Tells a machine to do something.
    pub(super) fn command(&mut self, process: usize, id: CommandId, command: Command) {
        self.handle(process, Event::Command { id, command });
    }

    /// Hands a machine an event, and carries out the resulting actions.
    pub fn handle(&mut self, process: usize, event: Event) {
        if !self.processes[process].alive {
            return;
        }
        self.steps += 1;
        self.processes[process].machine.handle(self.clock.now(), event);
        self.drain(process);
    }

    /// Carries out the pending actions of a machine.
    pub fn drain(&mut self, process: usize) {
        while let Some(action) = self.processes[process].machine.poll() {
            self.carry_out(process, action);
        }
        if let Err(what) = self.processes[process].machine.invariants() {
            self.fault(process, &what);
        }
    }

    /// Carries out an action of a machine, or of a test in its place.
    pub fn carry_out(&mut self, process: usize, action: Action) {
        match action {
            Action::Io { io, member, op } => self.issue(process, io, member, op),
            Action::Compute { io, compute } => self.compute(process, io, compute),
            Action::Store { buf, bytes } => self.store(process, buf, &bytes),
            Action::Load { io, buf } => self.begin(process, io, Task::Load(buf)),
            Action::Volume { io, op } => self.begin(process, io, Task::Volume(op)),
            Action::Note { io, op } => self.begin(process, io, Task::Note(op)),
            Action::Survey { io, after, most } => {
                self.begin(process, io, Task::Survey(after, most));
            }
            Action::Fabric(op) => self.fabric_op(process, op),
            Action::Use { .. } => {}
            Action::GiveBack { range } => self.give_back(process, &range),
            other => self.outputs.push((process, other)),
        }
    }

    /// Lets the next thing happen. False when nothing is due.
    pub fn step(&mut self) -> bool {
        let deadline = |(number, process): (usize, &Process)| {
            process.machine.deadline().map(|at| (at, number))
        };
        let goes_on = |(_, process): &(usize, &Process)| process.alive && !process.frozen;
        let alive = self.processes.iter().enumerate().filter(goes_on);
        let tick = alive.filter_map(deadline).min();
        let due = self.clock.next_due();
        match (due, tick) {
            (None, None) => false,
            (due, Some((at, process))) if due.is_none_or(|due| at < due) => {
                self.clock.advance(at);
                self.note(&[1, process as u64], || format!("tick of process {process}"));
                self.handle(process, Event::Tick);
                true
            }
            _ => {
                let Some(due) = self.clock.pop() else { return false };
                let hears = self.hears(due).filter(|&hears| self.processes[hears].frozen);
                match (due, hears) {
                    (due, Some(process)) => self.processes[process].held.push(due),
                    (Due::Work(slot), _) => {
                        let told = self.finish(slot);
                        self.tell(told);
                    }
                    (Due::Fabric(due), _) => self.fabric_due(due),
                    (Due::Thaw(process), _) => self.thaw(process),
                    (Due::Wake, _) => {}
                }
                true
            }
        }
    }

    /// Tells a process of something that is done.
    fn tell(&mut self, told: Option<(usize, Event)>) {
        if let Some((process, event)) = told {
            self.handle(process, event);
        }
    }

    /// Something on the network goes on.
    fn fabric_due(&mut self, due: FabricDue) {
        match due {
            FabricDue::Closing(id) if self.network.is_drained(id) => self.cut(id.other()),
            FabricDue::Closing(_) => self.later(due),
            FabricDue::Cut(id) => self.cut(id),
            _ => {
                let told = self.arrive(due);
                self.tell(told);
            }
        }
    }

    /// An end is told that the connection is over, and before of its puts.
    fn cut(&mut self, id: EndId) {
        let Some(state) = self.begin_cut(id) else { return };
        while let Some((process, event)) = self.end_put_of(id) {
            self.handle(process, event);
        }
        let told = self.end_cut(id, state);
        self.tell(told);
    }

    /// Kills the process between two events: its device I/O is done in part, its messages are under
    /// way, and the others learn of it in time.
    pub fn kill(&mut self, process: usize) {
        let name = self.processes[process].name.clone();
        self.note(&[2, process as u64], || format!("KILL {name}"));
        self.processes[process].alive = false;
        self.abandon_work(process);
        self.abandon_connections(process);
        let process = &mut self.processes[process];
        for volume in process.volumes.values_mut() {
            volume.open = None;
        }
        // Hundreds of them may have died before a seed is over.
        process.arena = Vec::new();
    }
}
