//! The messages, each with its number.

use super::codec::{Field, WireError};
use super::declare::messages;
use super::{JournalEntry, Leftover, PeerAddress, SessionInfo, VolumeInfo};
use crate::ids::{Epoch, Generation, NodeId, Position, SetVersion, Slot};
use crate::pipeline::Params;
use crate::set::{Roles, Set};
use crate::view::View;
use braid_array::Role;

messages! {
    /// Client: make a volume that reads as zeroes, and open it. Answer: `Volume`.
    1 CreateVolume {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Name.
        name: String,
        /// Size.
        bytes: u64,
    }
    /// Client: open a volume. One connection at a time may have it open for writing, others may
    /// read it meanwhile. Answer: `Volume`.
    2 OpenVolume {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Name.
        name: String,
        /// For writing.
        write: bool,
    }
    /// Client: remove the open volume, if this connection made it. Answer: `Ok`.
    3 DeleteVolume {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: the volume is open; the other requests are about it from here on.
    4 Volume {
        /// The number that the request carried.
        tag: u32,
        /// Size.
        bytes: u64,
        /// The node, by a number that no other has: it may be known under several addresses.
        node: NodeId,
        /// A client that is there has it open for writing.
        used: bool,
    }
    /// Client: read a few bytes of the volume. Answer: `Meta`.
    5 ReadMeta {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// First sector.
        sector: u64,
        /// Number of bytes; a multiple of 512, at most 4096.
        bytes: u32,
    }
    /// Node: the bytes that were read.
    6 Meta {
        /// The number that the request carried.
        tag: u32,
        /// The bytes.
        bytes: Vec<u8>,
    }
    /// Client: write a few bytes of the volume, durably. Answer: `Ok`.
    7 WriteMeta {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// First sector.
        sector: u64,
        /// A multiple of 512, at most 4096.
        bytes: Vec<u8>,
    }
    /// Client: the member's part of the array is to become longer than that of the pipeline, which
    /// is at rest and prepares nothing from then on. All behind the present part reads as zeroes,
    /// but for an empty journal at the end of the volume, where there is one. Answer: `Ok`, when
    /// the volume has that length durably.
    86 LengthenVolume {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Bytes of the array's data on the member.
        data_bytes: u64,
    }
    /// Client: set up this node's end of a pipeline. Answer: `PipelineReady`.
    8 OpenPipeline {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The role of this node.
        role: Role,
        /// First sector of the data on this member.
        data_sector: u64,
        /// The pipeline.
        params: Params,
    }
    /// Node: the pipeline is set up.
    9 PipelineReady {
        /// The number that the request carried.
        tag: u32,
        /// Where the ring begins in the node's arena: the base of the offsets of `Pipeline`.
        ring: u64,
        /// Size of its journal for this array; 0 without one.
        journal_bytes: u64,
        /// Only slice-sets over a part of a stripe are recorded there.
        parts_only: bool,
    }
    /// Client: connect to the other nodes, of which every one is prepared: the lower role connects
    /// to the higher. A node that is told of its own role connects to the copy target that is to
    /// replace it; or waits for that node's connection, where no address is told. Answer: `Ok`,
    /// when all connections stand.
    10 Connect {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The other nodes that are there.
        peers: Vec<PeerAddress>,
    }
    /// Node to node, first on a connection: the pipeline and the end of it that the connection
    /// belongs to.
    11 Join {
        /// The pipeline.
        session: u64,
        /// The role of the sender.
        role: Role,
        /// The array that its client was granted: the pipeline is to be of the same.
        array: [u8; 16],
    }
    /// Client, or the node that relays it: a slice-set begins. Answer to the client: `Prepared`.
    /// Its slices may arrive before this message. A node that gets the message twice treats it as
    /// one.
    12 BeginSet {
        /// The slice-set.
        set: Set,
    }
    /// Node: its part of a slice-set is over. After `Commit` all of it is in the store (and durable
    /// when that was asked for); after `Abort` nothing of it.
    13 Finished {
        /// The position, which is free here.
        position: Position,
        /// Its generation.
        generation: Generation,
        /// Everything went well. After `Commit`, if not, the content of its range is undefined
        /// here.
        ok: bool,
        /// After `Commit`: the store had no room. The position is not free, and the content is kept
        /// for a later client, as if nothing were stored yet.
        no_room: bool,
    }
    /// Client: read from the volume into a slot, and put the content into the client's arena,
    /// announced by the number of the slot. Failure: `ReadFailed`.
    14 Read {
        /// The slot.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// Number of bytes, at most the length of the slot.
        bytes: u32,
        /// Where to, in the client's arena.
        to: u64,
    }
    /// Client: the same for the digest of the content, which takes a 64th of the room.
    80 Digest {
        /// The slot.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// Number of bytes to read, at most the length of the slot; a multiple of 4096.
        bytes: u32,
        /// Where to, in the client's arena.
        to: u64,
    }
    /// Client: read into a slot, and put the content into a slot of the copy target. Answer:
    /// `Copied`, when the content has been read. Failure: `ReadFailed`.
    81 Copy {
        /// The slot here.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// Number of bytes to read, at most the length of the slot.
        bytes: u32,
        /// The slot there.
        into: Slot,
    }
    /// Node: the block is on its way, if the other node is connected; the slot may be used again.
    82 Copied {
        /// The slot.
        slot: Slot,
    }
    /// Client: store the content that the copied member's node puts into a slot. Answer: `Ok`, when
    /// it is stored.
    83 StoreCopied {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The slot, into which no read may be under way.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// Number of bytes.
        bytes: u32,
    }
    /// Node: nothing was put; the slot is free.
    15 ReadFailed {
        /// The slot.
        slot: Slot,
    }
    /// Client: everything closed so far shall be durable. Answer: `Ok`, or `Refused` when that
    /// failed.
    16 Flush {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: done.
    17 Ok {
        /// The number that the request carried.
        tag: u32,
    }
    /// Node: not done. With the tag [`PARTING_TAG`](crate::node::PARTING_TAG), which no request
    /// has: the reason why the node hangs up; from a client, the reason why it does not take the
    /// node back.
    18 Refused {
        /// The number that the request carried, or `PARTING_TAG`.
        tag: u32,
        /// Busy: another client has the object of the request, and may give it back.
        busy: bool,
        /// Reason.
        reason: String,
        /// Advice, in words.
        advice: String,
    }
    /// Node to node: a slice will not come, because something went wrong before it.
    19 Missing {
        /// The announcement of the missing slice.
        imm: u32,
    }
    /// Node: the new content of its part of a slice-set is in its memory, or cannot be had. Nothing
    /// is stored, and nothing more will be sent or needed but the client's decision: `Commit` or
    /// `Abort`. A slice-set whose slices the client has all put is prepared by every node that
    /// lives.
    20 Prepared {
        /// The position.
        position: Position,
        /// Its generation.
        generation: Generation,
        /// The content is there.
        ok: bool,
        /// The content is missing because of this node's store.
        own_fault: bool,
        /// The store has no room.
        no_room: bool,
        /// Nodes that this one is not connected to and should be.
        cut_off: Roles,
        /// Bytes of all slices that this node has received so far, of any client: how busy its
        /// link is.
        received_bytes: u64,
    }
    /// Client: the content that is prepared here replaces the stored content, and the same is to
    /// happen at all other nodes. Answer to each: `Finished`.
    21 Commit {
        /// Positions, each with its generation.
        sets: Vec<(Position, Generation)>,
    }
    /// Client: the content that is prepared here is not stored. Answer: `Finished`.
    22 Abort {
        /// The position.
        position: Position,
        /// Its generation.
        generation: Generation,
    }
    /// Client: a node has left the array; nothing of it will come.
    23 Without {
        /// Its role; the own role stands for the copy target.
        role: Role,
    }
    /// Node: the connection to another node is over. Slice-sets that this node was to relay will
    /// not reach the other one any more.
    26 NeighbourLost {
        /// Its role.
        role: Role,
    }
    /// Client: asks for the use of the whole ring. Answer: `Ok`, or `Refused` when others use the
    /// memory. Before the answer, and after a refusal, only the base may be used.
    24 LeaseRing {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Client: of the ring, nothing but the base is used any more. Answer: `Ok`.
    25 ReturnRing {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The base is given up, too, until the answer.
        all: bool,
    }
    /// Client, first on a connection: no client of a lower epoch may change anything of this array
    /// any more. Answer: `Granted`, when that is so, or `Outvoted`.
    30 Grant {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Its id.
        array: [u8; 16],
        /// Epoch of the client.
        epoch: Epoch,
        /// The client, by a number that no other has. The same client alone may be granted an epoch
        /// again.
        client: u64,
    }
    /// Node: the epoch is granted, durably, and nothing of an older client is under way here.
    31 Granted {
        /// The number that the request carried.
        tag: u32,
        /// The newest view that was recorded here.
        view: View,
        /// A number that changes with each start of the node: tells whether the node has lost its
        /// memory.
        incarnation: u64,
        /// The node, by a number that no other has.
        node: NodeId,
    }
    /// Node: another client was granted this epoch or a higher one. With
    /// [`PARTING_TAG`](crate::node::PARTING_TAG): to a client that a higher epoch has ended.
    32 Outvoted {
        /// The number that the request carried, or `PARTING_TAG`.
        tag: u32,
        /// The highest epoch granted.
        granted: Epoch,
    }
    /// Client: the present state of the array. Answer: `Ok`, when it is durable.
    33 StoreView {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The view.
        view: View,
    }
    /// Any process: asks for the vote on this array, without any change. Answer: `VoteIs`.
    37 ReadVote {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Its id.
        array: [u8; 16],
    }
    /// Node: the vote.
    38 VoteIs {
        /// The number that the request carried.
        tag: u32,
        /// The highest epoch granted.
        granted: Epoch,
        /// The newest view that was recorded here.
        view: View,
        /// See `Granted`.
        incarnation: u64,
        /// The node, by a number that no other has.
        node: NodeId,
    }
    /// Client, alone on a connection: the node shall forget its grant for this array, and the views
    /// that it was told of. Refused while a volume of the node carries a member of the array, or a
    /// client has it. Answer: `Ok`, when that is durable.
    39 Forget {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The array's id.
        array: [u8; 16],
    }
    /// Client that was granted the array: asks for the leftover slice-sets of its predecessor.
    /// Answer: `Leftovers`.
    34 ListLeftovers {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u16,
    }
    /// Node: the leftovers.
    35 Leftovers {
        /// The number that the request carried.
        tag: u32,
        /// Parameters of the pipeline, if something is prepared.
        params: Option<Params>,
        /// Slice-sets, the latest at each position.
        items: Vec<Leftover>,
        /// The next one to list; 0 at the end.
        next: u16,
    }
    /// Client: commit these prepared slice-sets of its predecessors, and drop all others. Answer:
    /// `Ok`, when they are durable.
    36 ResolveLeftovers {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// By epoch and version.
        commit: Vec<SetVersion>,
    }
    /// Client: asks for the records that the journal held when the pipeline was set up. Answer:
    /// `JournalEntries`.
    76 ListJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u32,
    }
    /// Node: the records.
    77 JournalEntries {
        /// The number that the request carried.
        tag: u32,
        /// Slice-sets up to this one are stored durably by all.
        mark: SetVersion,
        /// Records, the oldest first.
        items: Vec<JournalEntry>,
        /// The next one to list; 0 at the end.
        next: u32,
    }
    /// Client: store the recorded content, at each place the newest by epoch and version. Answer:
    /// `Ok`, when it is durable.
    78 ReplayJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Skips records up to this one.
        above: SetVersion,
        /// Skips these records.
        without: Vec<SetVersion>,
    }
    /// Client: all nodes have stored the writes up to this slice-set durably, so that they need no
    /// records any more. Answer: `Ok`, when that is noted durably.
    79 TrimJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The slice-set.
        mark: SetVersion,
        /// Nothing that is recorded now is needed.
        all: bool,
    }
    /// Client: asks for a sign of life. Answer, whatever else the node is doing: `Pong`.
    40 Ping {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: is there.
    41 Pong {
        /// The number that the request carried.
        tag: u32,
        /// Age of the oldest unanswered operation on its storage, in milliseconds.
        storage_silent_ms: u32,
    }
    /// Client: asks for the node's status. Needs no volume. Answer: `NodeInfo`.
    42 NodeStatus {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Volumes and votes behind this one, `next` of the last answer.
        after: String,
    }
    /// Node: its status.
    43 NodeInfo {
        /// The number that the request carried.
        tag: u32,
        /// Its version, for people.
        version: String,
        /// By a number that no other node has.
        node: NodeId,
        /// Bytes that its store holds in all, and those that are free.
        total_bytes: u64,
        /// See above.
        free_bytes: u64,
        /// Of the free bytes, those that its volumes may still take.
        promised_bytes: u64,
        /// Memory for rings.
        ring_bytes: u64,
        /// Memory for rings in use.
        ring_used_bytes: u64,
        /// Clients that have a volume open.
        clients: u32,
        /// Witness: keeps no volumes.
        witness: bool,
        /// Volumes, in order of their names.
        volumes: Vec<VolumeInfo>,
        /// Arrays of which it keeps a vote.
        votes: Vec<[u8; 16]>,
        /// The name to continue after; empty at the end.
        next: String,
    }
    /// Client: asks for the other clients, and for what each has of this node. Needs no volume.
    /// Answer: `Sessions`.
    46 ListSessions {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u32,
    }
    /// Node: the clients.
    47 Sessions {
        /// The number that the request carried.
        tag: u32,
        /// In order of their numbers.
        sessions: Vec<SessionInfo>,
        /// The next one to list; 0 at the end.
        next: u32,
    }
    /// Client: remove the volume that it has open for writing, if nobody else has. Answer: `Ok`.
    44 RemoveVolume {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Client: end the node. Needs no volume. Answer: `Ok`.
    45 Shutdown {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Client: asks for the node's identity. Needs no volume. Asked before `Grant`, which ends what
    /// the client has there already. Answer: `Identity`.
    64 Identify {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: its identity.
    65 Identity {
        /// The number that the request carried.
        tag: u32,
        /// By a number that no other node has.
        node: NodeId,
    }
}
