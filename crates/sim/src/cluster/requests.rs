//! Requests of a session's client, and how they are judged.

use braid_array::{RequestError, RequestId, Role};

use super::content::Layout;
use super::nodes::Cluster;
use super::promises::{Happened, Promises};
use super::session::{Phase, Session};
use super::suspects::ClusterSuspects;
use crate::judge::{Draft, Flight, Read};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

impl Session {
    /// Submits this request if there is room and the client takes it.
    pub fn submit_one(&mut self, kind: Kind, range: Range) -> bool {
        let draft = self.cluster.world.ask(&mut self.judge, self.client, kind, range);
        let Some(draft) = draft else { return false };
        if self.phase != Phase::Serving {
            self.phase = Phase::Serving;
            // What those wrote before it was granted the array is decided.
            self.judge.oracle.decided();
            self.suspects.crash();
        }
        if self.promises.mended && !self.promises.troubled {
            // Every slice-set that the last client left is wholly old or new.
            self.suspects.resynced(self.judge.moment());
        }
        self.promises.heard(Happened::ClientServes);
        let Range { sector, sectors } = range;
        let serial = draft.serial;
        let slot = draft.request.id.0;
        self.cluster.note(&[40, slot, sector, sectors, u64::from(serial)], || {
            format!("SUBMIT #{slot} {kind:?} {sector}+{sectors} serial {serial}")
        });
        let equal = !self.suspects.any() && self.promises.lost.is_empty();
        self.begin(self.client, draft, equal);
        self.cluster.world.drain(self.client);
        true
    }

    /// A client has taken a request.
    pub(super) fn begin(&mut self, client: usize, draft: Draft, equal: bool) {
        let kind = draft.kind;
        let range = draft.range;
        let moment = self.judge.submitted(client, draft, equal);
        if !matches!(kind, Kind::Read | Kind::Flush) {
            self.suspects.begins(moment, range);
        }
    }

    pub(super) fn completed(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Result<(), Failure> {
        let flight = self.judge.answered(self.client, id)?;
        let Flight { kind, range, request, .. } = flight;
        self.cluster.note(&[42, id.0, u64::from(result.is_ok())], || {
            format!("COMPLETE #{} {kind:?} {}+{}: {result:?}", id.0, range.sector, range.sectors)
        });
        self.cluster.world.is_free(self.client, request.buf)?;
        if let Err(error) = result
            && !self.excuses().may_fail(kind, range)
        {
            let Range { sector, sectors } = range;
            return Err(Failure(format!("{kind:?} {sector}+{sectors} failed: {error}")));
        }
        self.cluster.world.signs.flushed +=
            u64::from((kind.fua() || kind == Kind::Flush) && result.is_ok());
        if result.is_err() && !matches!(kind, Kind::Read | Kind::Flush) {
            self.promises.heard(Happened::WriteFailed);
        }
        self.conclude(&flight, result, Some(self.client))
    }

    /// Judges the answer of a client, and its read data if it is still the `reader`.
    pub(super) fn conclude(
        &mut self,
        flight: &Flight,
        result: Result<(), RequestError>,
        reader: Option<usize>,
    ) -> Result<(), Failure> {
        let Self { judge, suspects, cluster, promises, .. } = self;
        let Cluster { world, layout, .. } = cluster;
        let excuses = Excuses { suspects, layout, promises };
        let excused = |sector| excuses.cover(sector);
        let read = reader.map(|process| Read {
            bytes: world.processes[process].found(flight.request.buf),
            stays: !suspects.any() && !excuses.half_written(),
            excused: &excused,
        });
        judge.conclude(flight, result, read)?;
        match flight.kind {
            Kind::Read => {}
            Kind::Flush if result.is_ok() => suspects.flushed(flight.moment),
            Kind::Flush => {}
            kind => suspects.ends(flight.moment, judge.moment(), result.is_ok(), kind.fua()),
        }
        Ok(())
    }

    /// Compares content with the allowed content.
    pub fn judge_content(&mut self, sector: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Self { judge, suspects, cluster: Cluster { layout, .. }, promises, .. } = self;
        let excuses = Excuses { suspects, layout, promises };
        judge.content(sector, bytes, &|sector| excuses.cover(sector))
    }

    const fn excuses(&self) -> Excuses<'_> {
        let Self { suspects, cluster: Cluster { layout, .. }, promises, .. } = self;
        Excuses { suspects, layout, promises }
    }
}

/// Exceptions from the judgement: sectors that would have to be decoded from a torn slice.
struct Excuses<'a> {
    suspects: &'a ClusterSuspects,
    layout: &'a Layout,
    promises: &'a Promises,
}

impl Excuses<'_> {
    /// Returns whether slices that are being written may be torn.
    const fn half_written(&self) -> bool {
        self.promises.dead || self.promises.failed
    }

    /// Returns whether any content may be read here.
    fn cover(&self, sector: u64) -> bool {
        self.suspects.suspect(sector, self.half_written()) && self.is_lost(sector)
    }

    fn may_fail(&self, kind: Kind, range: Range) -> bool {
        if kind != Kind::Read {
            return self.promises.troubled && !self.promises.mild;
        }
        // One that is about to fail may have torn it already.
        let untold = self.promises.half_synced || self.promises.told_lost;
        let torn = |sector| untold || self.suspects.suspect(sector, true);
        let unknown = |sector| self.promises.unknowing.contains(&self.node(sector));
        let mut sectors = range.sector..range.sector + range.sectors;
        sectors.any(|sector| torn(sector) && self.is_lost(sector) || unknown(sector))
    }

    fn is_lost(&self, sector: u64) -> bool {
        self.promises.lost.contains(&self.node(sector))
    }

    /// The role of the node that holds a sector.
    fn node(&self, sector: u64) -> Role {
        let place = self.suspects.map().place(sector);
        let code = self.layout.code(place.slice.0);
        code.data()[place.index as usize].node
    }
}
