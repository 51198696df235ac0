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
        /// How many bytes; a multiple of 512, at most 4096.
        bytes: u32,
    }
    /// Node: what was to be read.
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
    /// Node: it is set up.
    9 PipelineReady {
        /// The number that the request carried.
        tag: u32,
        /// Where the ring begins in the node's arena: what `Pipeline` counts from.
        ring: u64,
        /// How much its journal holds for this array; 0 without one.
        journal_bytes: u64,
        /// Only slice-sets over a part of a stripe are recorded there.
        parts_only: bool,
    }
    /// Client: connect to the other nodes, of which every one is prepared: the lower role connects
    /// to the higher. A node that is told of its own role connects to the one that is to take its
    /// place, to which it is copied; or waits for that one's connection, where no address is told.
    /// Answer: `Ok`, when all connections stand.
    10 Connect {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The other nodes that are there.
        peers: Vec<PeerAddress>,
    }
    /// Node to node, first on a connection: which end of which pipeline it is.
    11 Join {
        /// Which pipeline.
        session: u64,
        /// The role of the sender.
        role: Role,
        /// The array that its client was granted: the pipeline is to be of the same.
        array: [u8; 16],
    }
    /// Client, or the node that relays it: a slice-set begins. Answer to the client: `Prepared`.
    /// Its slices may arrive before this does. A node that was told by the other one already takes
    /// it for said once.
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
    }
    /// Client: read from the volume into a slot, and put that into the client's arena, announced
    /// by the number of the slot. Failure: `ReadFailed`.
    14 Read {
        /// The slot.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// How many bytes, at most the length of the slot.
        bytes: u32,
        /// Where to, in the client's arena.
        to: u64,
    }
    /// Client: the same of the digest of what is read, which takes a 64th of the room.
    80 Digest {
        /// The slot.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// How many bytes to read, at most the length of the slot; a multiple of 4096.
        bytes: u32,
        /// Where to, in the client's arena.
        to: u64,
    }
    /// Client: the same of what is read, into a slot of the node to which this one is copied.
    /// Answer: `Copied`, when it has been read. Failure: `ReadFailed`.
    81 Copy {
        /// The slot here.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// How many bytes to read, at most the length of the slot.
        bytes: u32,
        /// The slot there.
        into: Slot,
    }
    /// Node: it is on its way, if the other node is connected; the slot may be used again.
    82 Copied {
        /// The slot.
        slot: Slot,
    }
    /// Client: store what the node that is copied puts into a slot. Answer: `Ok`, when that is
    /// done.
    83 StoreCopied {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The slot, into which no read may be under way.
        slot: Slot,
        /// First sector of the volume.
        sector: u64,
        /// How many bytes.
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
    /// Node: not done. With a tag that is nobody's, [`PARTING_TAG`](crate::node::PARTING_TAG), the
    /// reason why the node hangs up; or, of a client, why it does not take the node back.
    18 Refused {
        /// The number that the request carried, or `PARTING_TAG`.
        tag: u32,
        /// Somebody else has what was asked for, and may give it back.
        busy: bool,
        /// Why.
        reason: String,
        /// What to do, in words.
        advice: String,
    }
    /// Node to node: a slice will not come, because something went wrong before it.
    19 Missing {
        /// What would have announced it.
        imm: u32,
    }
    /// Node: the new content of its part of a slice-set is in its memory, or cannot be had; nothing
    /// is stored, and nothing will be sent or needed any more but the client's decision: `Commit`
    /// or `Abort`. A slice-set whose slices the client has all put is prepared by every node that
    /// lives.
    20 Prepared {
        /// The position.
        position: Position,
        /// Its generation.
        generation: Generation,
        /// The content is there.
        ok: bool,
        /// It is not, because of this node's store.
        own_fault: bool,
        /// That has no room.
        no_room: bool,
        /// Nodes that this one is not connected to and should be.
        cut_off: Roles,
        /// Bytes of all slices that this node has received so far, of any client: how busy its
        /// link is.
        received_bytes: u64,
    }
    /// Client: what is prepared here takes the place of what is stored, and is to go on at all
    /// other nodes too. Answer to each: `Finished`.
    21 Commit {
        /// Positions, each with its generation.
        sets: Vec<(Position, Generation)>,
    }
    /// Client: what is prepared here is not stored. Answer: `Finished`.
    22 Abort {
        /// The position.
        position: Position,
        /// Its generation.
        generation: Generation,
    }
    /// Client: a node is not of the array any more; nothing of it will come.
    23 Without {
        /// Its role; its own is that of the node to which it is copied.
        role: Role,
    }
    /// Node: the connection to another node is over: of slice-sets that this one was to relay,
    /// nothing will come that has not come by now.
    26 NeighbourLost {
        /// Its role.
        role: Role,
    }
    /// Client: may all of the ring be used? Answer: `Ok`, or `Refused` when others use the memory;
    /// until then, and after that, the base alone.
    24 LeaseRing {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Client: of the ring, nothing but the base is used any more. Answer: `Ok`.
    25 ReturnRing {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The base neither, until the answer.
        all: bool,
    }
    /// Client, first on a connection: nobody of a lower epoch shall change anything of this array
    /// any more. Answer: `Granted`, when that is so, or `Outvoted`.
    30 Grant {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Its id.
        array: [u8; 16],
        /// Of the client.
        epoch: Epoch,
        /// The client, by a number that no other has. It alone may be granted an epoch again.
        client: u64,
    }
    /// Node: it is granted, durably, and nothing of an older client is under way here.
    31 Granted {
        /// The number that the request carried.
        tag: u32,
        /// The newest view that was recorded here.
        view: View,
        /// Another one each time the node starts: whether it has lost what was in its memory.
        incarnation: u64,
        /// The node, by a number that no other has.
        node: NodeId,
    }
    /// Node: another client was granted this epoch or a higher one. With
    /// [`PARTING_TAG`](crate::node::PARTING_TAG) to a client whose time is over by that.
    32 Outvoted {
        /// The number that the request carried, or `PARTING_TAG`.
        tag: u32,
        /// The highest epoch granted.
        granted: Epoch,
    }
    /// Client: this is how the array stands. Answer: `Ok`, when it is durable.
    33 StoreView {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// It.
        view: View,
    }
    /// Anybody: what would be granted of this array? Nothing changes by that. Answer: `VoteIs`.
    37 ReadVote {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Its id.
        array: [u8; 16],
    }
    /// Node: that.
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
    /// Client, alone on a connection: the node shall not know any more what it granted and was told
    /// of this array. Refused while a volume of the node carries a member of it, or a client has
    /// it. Answer: `Ok`, when that is durable.
    39 Forget {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// The array's id.
        array: [u8; 16],
    }
    /// Client that was granted the array: what is here of its predecessor's slice-sets? Answer:
    /// `Leftovers`.
    34 ListLeftovers {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u16,
    }
    /// Node: that is here.
    35 Leftovers {
        /// The number that the request carried.
        tag: u32,
        /// What the pipeline was, if something is prepared.
        params: Option<Params>,
        /// Slice-sets, the latest at each position.
        items: Vec<Leftover>,
        /// With which one to go on; 0 at the end.
        next: u16,
    }
    /// Client: of what is prepared here of its predecessors' these go, and all others are dropped.
    /// Answer: `Ok`, when they are durable.
    36 ResolveLeftovers {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// By epoch and version.
        commit: Vec<SetVersion>,
    }
    /// Client: what did the journal hold when the pipeline was set up? Answer: `JournalEntries`.
    76 ListJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u32,
    }
    /// Node: this.
    77 JournalEntries {
        /// The number that the request carried.
        tag: u32,
        /// Slice-sets up to this one are stored durably by all.
        mark: SetVersion,
        /// Records, the oldest first.
        items: Vec<JournalEntry>,
        /// With which one to go on; 0 at the end.
        next: u32,
    }
    /// Client: store what is recorded, of each place what is newest by epoch and version. Answer:
    /// `Ok`, when it is durable.
    78 ReplayJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Nothing up to this one.
        above: SetVersion,
        /// Nor these.
        without: Vec<SetVersion>,
    }
    /// Client: everybody has stored durably what was written up to this slice-set: it need not be
    /// recorded any more. Answer: `Ok`, when that is noted durably.
    79 TrimJournal {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// It.
        mark: SetVersion,
        /// Nothing that is recorded now is needed.
        all: bool,
    }
    /// Client: is the node there? Answer, whatever else it is at: `Pong`.
    40 Ping {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: it is.
    41 Pong {
        /// The number that the request carried.
        tag: u32,
        /// How long the oldest operation on its storage has not been answered, in milliseconds.
        storage_silent_ms: u32,
    }
    /// Client: what is this node? Needs no volume. Answer: `NodeInfo`.
    42 NodeStatus {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// Volumes and votes behind this one, `next` of the last answer.
        after: String,
    }
    /// Node: this.
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
        /// Memory for rings.
        ring_bytes: u64,
        /// That in use.
        ring_used_bytes: u64,
        /// Clients that have a volume open.
        clients: u32,
        /// It keeps no volumes.
        witness: bool,
        /// Volumes, in order of their names.
        volumes: Vec<VolumeInfo>,
        /// Arrays of which it keeps a vote.
        votes: Vec<[u8; 16]>,
        /// Behind which one to go on; empty at the end.
        next: String,
    }
    /// Client: which other clients have what of this node? Needs no volume. Answer: `Sessions`.
    46 ListSessions {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
        /// From this one on.
        from: u32,
    }
    /// Node: these.
    47 Sessions {
        /// The number that the request carried.
        tag: u32,
        /// In order of their numbers.
        sessions: Vec<SessionInfo>,
        /// With which one to go on; 0 at the end.
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
    /// Client: which node is this? Needs no volume, and is to be asked before `Grant`, which ends
    /// what the client has there already. Answer: `Identity`.
    64 Identify {
        /// The number that the answer carries, chosen by the sender.
        tag: u32,
    }
    /// Node: this.
    65 Identity {
        /// The number that the request carried.
        tag: u32,
        /// By a number that no other node has.
        node: NodeId,
    }
}
