//! Things that are due at a time.

/// Something due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Work(usize),
    Fabric(FabricDue),
    /// Unused memory of the process is taken back.
    Cool(usize),
    /// The process goes on.
    Thaw(usize),
    /// A wake-up at a given time.
    Wake,
}

/// Something due on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FabricDue {
    /// This end is told that the connection stands.
    Up(EndId),
    /// The next message reaches this end.
    Message(EndId),
    /// This end has hung up; its messages are still under way.
    Closing(EndId),
    /// This end is told that the connection is over.
    Cut(EndId),
    PutRead(usize),
    PutDone(usize),
    PutLand(usize),
    PutPlaced(usize),
}

/// One end of a connection: 0 has dialed, 1 has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndId {
    /// The connection.
    pub connection: usize,
    /// The end of the connection.
    pub end: usize,
}

impl EndId {
    pub(super) const fn other(self) -> Self {
        Self { end: 1 - self.end, ..self }
    }
}
