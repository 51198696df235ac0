//! Names of operations in flight in the parts of the engine. This module is below all of these, so
//! that none has to know another for its names.

/// Operation that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A step of a read, write or flush on a member.
    Io(usize),
    /// A step of a longer operation on a member.
    Range(usize),
    /// An operation of an export's.
    Export(ExportId, ExportToken),
    /// The submission queue has messages.
    Wake,
    /// An operation of the fabric's.
    Fabric(FabricToken),
}

/// Number of an export in an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportId(pub(crate) usize);

/// Operation of an export. Only the export knows the meaning of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportToken {
    pub(crate) kind: u8,
    pub(crate) index: usize,
}

/// Operation of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricToken {
    /// A thread of the fabric's has news: its eventfd is readable.
    Wake,
    /// A receive.
    Receive(usize),
    /// A send.
    Send(usize),
}

/// Owner of a request, which gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A job of an export's.
    Export(ExportId, JobRef),
    /// A job of another thread.
    SubmissionQueue(usize),
    /// A request that lies on the array in several pieces, of which this is one.
    Spread(usize),
}

/// Name of an export's job for a client. Only the export knows the meaning of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    pub(crate) client: usize,
    pub(crate) job: usize,
}
