//! What is true of a client whenever [`poll`](braid_array::Machine::poll) has got empty.

use braid_array::MemberId;
use braid_array::keeper::Carried;

use super::setup::LinkState;
use super::{BTreeMap, Client, IoPurpose, Key, Link, Machine, Phase, RequestKind, VecDeque};

impl Client {
    pub(super) fn check_all(&self) -> Result<(), String> {
        self.buffers_are_somewhere()?;
        self.sets_are_counted()?;
        self.areas_are_counted()?;
        self.check_share()?;
        for (number, flush) in &self.flushes {
            let mut asked = self.questions.values().map(|(_, question)| question);
            let flushes =
                |question: &&RequestKind| matches!(question, RequestKind::Flush(n) if n == number);
            let left = asked.by_ref().filter(flushes).count();
            if left != flush.left.unwrap_or(0) as usize {
                return Err(format!("{left} nodes flush, counted {:?}", flush.left));
            }
        }
        let slots = |link: &&super::Link| {
            let used = link.slots.iter().flatten().count();
            link.alive() && used + link.free_slots.len() != link.slots.len()
        };
        if self.links.iter().any(|link| slots(&link)) {
            return Err("a slot is neither free nor in use".to_owned());
        }
        let answered = self.requests.iter().find(|(_, request)| request.is_over());
        if let Some((id, _)) = answered {
            return Err(format!("{id:?} is over and not answered"));
        }
        self.every_wait_ends()?;
        self.keeper_is_told()
    }

    /// Whatever is not over ends: by the executor, which answers what it was asked and tells what
    /// became of a connection, by a deadline, as nodes may answer or not, or by a command.
    fn every_wait_ends(&self) -> Result<(), String> {
        let rests = self.idle() || self.quiet() && self.keeper.is_paused();
        let rests = rests && !matches!(self.phase, Phase::Setup);
        let connects = |link: &Link| link.state == LinkState::Connecting;
        let by_executor = !self.ios.is_empty() || self.links.iter().any(connects);
        if rests || by_executor || self.deadline().is_some() {
            return Ok(());
        }
        Err(format!("in {:?} it waits, and nothing is on its way or due", self.phase))
    }

    fn keeper_is_told(&self) -> Result<(), String> {
        let waiting = self.jobs.iter().flatten().filter(|job| job.is_announced());
        let waiting = waiting.map(|job| (job.key, false));
        let open = self.open.values().filter(|open| !open.job.background);
        let writes = waiting.chain(open.map(|open| (open.key(), true)));
        let range = |(key, writing)| {
            let (start, end) = self.space.range(key);
            (start, end, writing)
        };
        let metas = |(_, question): &&(u16, RequestKind)| matches!(question, RequestKind::Meta);
        self.keeper.invariants(Carried {
            writers: self.requests.values().filter(|request| request.op.changes_data()).count(),
            writes: &writes.map(range).collect::<Vec<_>>(),
            work: self.waiting_work.len() + self.working.len(),
            updates: self.questions.values().filter(metas).count() + self.untold.len(),
            on: &|id| self.asked_of(id),
        })
    }

    /// What a node has not answered, unless it is not waited for any more.
    fn asked_of(&self, id: MemberId) -> Option<usize> {
        if matches!(self.phase, Phase::Stopped) {
            return None;
        }
        let links = (0..).zip(&self.links);
        let mut of = links.filter(|(_, link)| link.id == Some(id) && link.alive());
        let (role, link) = of.next()?;
        let questions = self.questions.values().filter(|(asked, _)| *asked == role);
        let sets = self.open.values().filter(|open| open.waits.contains(&role));
        Some(questions.count() + sets.count() + link.slots.iter().flatten().count())
    }

    fn buffers_are_somewhere(&self) -> Result<(), String> {
        let sets: usize = self.open.values().map(|open| open.staged.len()).sum();
        let decodes: usize = self.decodes.jobs.values().map(|job| job.buffers()).sum();
        let compares: usize = self.compares.values().map(super::Compare::buffers).sum();
        let read_back = self.read_back.buffers();
        let found = self.staging.free() + sets + decodes + compares + read_back;
        let all = self.staging.all();
        if found != all { Err(format!("{found} of {all} buffers")) } else { Ok(()) }
    }

    fn sets_are_counted(&self) -> Result<(), String> {
        let mut under_way: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
        for what in self.ios.values() {
            match what {
                IoPurpose::Put { position } => under_way.entry(*position).or_default().0 += 1,
                IoPurpose::Copy { position } | IoPurpose::Sum { position, .. } => {
                    under_way.entry(*position).or_default().1 += 1;
                }
                IoPurpose::Decode { .. } | IoPurpose::Compare { .. } | IoPurpose::ReadBack => {}
            }
        }
        let puts: u32 = under_way.values().map(|(puts, _)| puts).sum();
        if puts as usize != self.unsent {
            return Err(format!("{puts} puts, counted {}", self.unsent));
        }
        for (position, open) in &self.open {
            let found = under_way.remove(position).unwrap_or_default();
            if found != (open.puts, open.computing) {
                let counted = (open.puts, open.computing);
                return Err(format!("{found:?} of the set at {position}, counted {counted:?}"));
            }
            if self.free.iter().any(|free| free.contains(position)) {
                return Err(format!("position {position} is free and has a set"));
            }
        }
        let free: usize = self.free.iter().map(VecDeque::len).sum();
        let all = usize::from(self.pipeline.positions());
        if free + self.open.len() != all {
            return Err(format!("{free} free positions and {} sets of {all}", self.open.len()));
        }
        Ok(())
    }

    fn areas_are_counted(&self) -> Result<(), String> {
        let mut counts: BTreeMap<Key, (u32, u32, u32)> = BTreeMap::new();
        let jobs = self.jobs.iter().flatten().map(|job| job.key);
        for key in jobs.chain(self.open.values().map(super::OpenSet::key)) {
            counts.entry(key).or_default().0 += 1;
        }
        for open in self.open.values().filter(|open| open.is_going()) {
            counts.entry(open.key()).or_default().2 += 1;
        }
        for range in self.decodes.jobs.values().filter_map(|decode| decode.reads()) {
            counts.entry(self.key_of(range)).or_default().1 += 1;
        }
        for (key, _) in self.compares.iter().filter(|(_, compare)| compare.reads()) {
            counts.entry(*key).or_default().1 += 1;
        }
        for key in self.filling.slices() {
            counts.entry(key).or_default().1 += 1;
        }
        for (key, area) in &self.areas {
            let found = counts.remove(key).unwrap_or_default();
            let counted = (area.sets, area.readers, area.going);
            if found != counted {
                return Err(format!("{found:?} in slice {key:?}, counted {counted:?}"));
            }
            if area.going == 0 && !area.late_reads.is_empty() {
                return Err(format!("reads of slice {key:?} wait for nothing"));
            }
            if area.listed != self.listed.contains(key) {
                return Err(format!("slice {key:?} says that it is listed: {}", area.listed));
            }
        }
        counts.keys().next().map_or(Ok(()), |key| Err(format!("slice {key:?} is not known")))
    }
}
