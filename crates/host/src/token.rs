//! Names that the parts of the engine give to what they have under way. Here, below all of them, so
//! that none has to know another for its names.

/// Which operation a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A step of a read, write or flush on a member.
    Io(usize),
    /// A step of a longer operation on a member.
    Range(usize),
    /// A listener's accept.
    Accept(usize),
    /// A connection's receive.
    Receive(usize),
    /// A connection's send.
    Send(usize),
    /// Somebody is at the door.
    Wake,
    /// An operation of the fabric's.
    Fabric(FabricToken),
}

/// Which operation of the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricToken {
    /// A thread of the fabric's has news: its eventfd is readable.
    Wake,
    /// Something is to be received.
    Receive(usize),
    /// Something was sent.
    Send(usize),
}

/// Who gets the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A command under way on an NBD connection.
    Nbd(JobRef),
    /// A job from the door.
    Door(usize),
}

/// Names a command under way on an NBD connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    pub(crate) connection: usize,
    pub(crate) job: usize,
}
