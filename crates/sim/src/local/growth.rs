//! Other shapes for an array while it lives: more members, more of each, another level.
//!
//! The array is asked again and again until it may have the shape; what it refuses is refused.

use braid_array::Refusal;
use braid_array::action::Command;
use braid_array::format::Version;
use braid_array::format::suspended::journal_number;
use braid_array::grow::{self, Grow, NewShape};
use braid_array::level::Level;
use braid_array::status::{MemberState, Status};

use crate::local::scenario::{self, Scenario};
use crate::local::spill;
use crate::local::troubles;
use crate::local::{CLIENT, Local};
use crate::oracle::Range;
use crate::rng::Rng;

/// The array is looked at once in so many events.
const EVENTS: u32 = 16;
/// Looks until a wish is asked for that is going to be refused.
const LOOKS: u32 = 60;

/// The shapes that are asked for in a life.
#[derive(Debug)]
pub struct Growth {
    rng: Rng,
    /// Before which request the next one is asked for.
    at: Option<u64>,
    wish: Option<Grow>,
    looks: u32,
    events: u32,
    /// Number of times that a reshape is to be turned round.
    turns: u32,
    /// Clients ask for no more than so many sectors, as the array is to become smaller.
    limit: Option<u64>,
}

impl Growth {
    /// Draws when the array is asked for in a life of so many requests, if it ever is.
    pub fn draw(scenario: &Scenario, mut aside: Rng, requests: u64) -> Self {
        let at = (scenario.grows && aside.percent(80)).then(|| aside.below(requests / 2));
        let turns = aside.pick(&[0, 0, 1, 3]);
        Self { rng: aside, at, wish: None, looks: LOOKS, events: 0, turns, limit: None }
    }

    /// Returns how many requests come besides, to meet the change.
    pub const fn requests(&self) -> u64 {
        if self.comes() { 60 } else { 0 }
    }

    /// Returns how many of so many sectors clients may ask for.
    pub fn limit(&self, sectors: u64) -> u64 {
        self.limit.unwrap_or(sectors).min(sectors)
    }

    /// Returns whether the array is asked for another shape in this life: then the power is cut
    /// near the begin or the end of the change.
    pub const fn comes(&self) -> bool {
        self.at.is_some()
    }

    /// Asks for another shape if it is time, and does what that takes.
    pub fn drive(&mut self, local: &mut Local, submitted: u64) {
        if !local.scenario.grows || local.parts.top().asked.is_some() {
            return;
        }
        self.events += 1;
        if self.events % EVENTS != 1 {
            return;
        }
        let moves = local.parts.top().shape.moves();
        if moves && local.scenario.spills {
            spill::trouble(local, &mut self.rng);
        }
        if local.scenario.has_journal() {
            self.lose_journal(local);
        }
        if moves && self.turns > 0 {
            self.turn(local);
        }
        if moves || self.at.is_none_or(|at| at > submitted) {
            return;
        }
        let status = local.status();
        local.look(&status);
        let scenario = &local.parts.top().scenario;
        let wish = *self.wish.get_or_insert_with(|| draw_wish(scenario, &mut self.rng));
        self.looks -= 1;
        match planned(local, &status, wish) {
            Err(_) if self.looks > 0 => prepare(local, &status, wish),
            planned => {
                let (shape, saved) =
                    planned.map_or((None, None), |(shape, saved)| (Some(shape), saved));
                let after = shape.as_ref().and_then(|shape| shape.geometry().ok());
                let after = after.map(|after| after.array_sectors());
                let waits = !self.may_leave(local, after);
                if waits && self.looks > 0 {
                    return;
                }
                let tolerance = shape.map(|shape| {
                    let layout = shape.layout.encode();
                    scenario::tolerance(shape.level, layout, shape.raid_disks as u16)
                });
                if !waits && troubles::may_grow(local, &status, tolerance) {
                    if let Some(unit) = saved {
                        self.save(local, unit);
                    }
                    if let Some(sectors) = self.limit {
                        local.judge.oracle.shrink(sectors);
                    }
                    local.ask(Command::GrowSuspending(wish));
                    local.cut_percent = 20;
                    self.over(submitted);
                } else if self.looks == 0 {
                    self.over(submitted);
                }
            }
        }
    }

    /// Returns whether no client uses what lies behind so many sectors; none begins to.
    fn may_leave(&mut self, local: &Local, after: Option<u64>) -> bool {
        let before = local.judge.oracle.sectors();
        self.limit = after.filter(|after| *after < before);
        self.limit.is_none_or(|sector| {
            !local.judge.touches(CLIENT, Range { sector, sectors: before - sector })
        })
    }

    /// At times, has what moves move back.
    fn turn(&mut self, local: &mut Local) {
        if !self.rng.percent(25) {
            return;
        }
        let status = local.status();
        if troubles::may_grow(local, &status, None) {
            self.turns -= 1;
            if let (false, Some((_, unit))) =
                (spill::has_one(&status), self.way_back(local, &status))
            {
                self.save(local, unit);
            }
            local.ask(Command::Grow(Grow::Undo));
            local.cut_percent = 20;
        }
    }

    /// At times, the device of a journal that is off is gone: the array does without from then on.
    fn lose_journal(&self, local: &mut Local) {
        if !self.rng.aside(u64::from(self.events)).percent(2) {
            return;
        }
        if journal_number(&local.status().superblock).is_none() {
            return;
        }
        let Some(device) = local.parts.devices[0].journal else { return };
        if !local.disk(device).gone() {
            local.note(&[49, device as u64], || format!("TROUBLE journal {device} is gone"));
            local.disk_mut(device).set_gone(true);
        }
    }

    /// Returns the way back of a move in place.
    fn way_back(&self, local: &Local, status: &Status) -> Option<(NewShape, u64)> {
        let in_place = local.scenario.spills && status.superblock.reshape.new_offset == 0;
        if in_place { spill::planned(status, Grow::Undo) } else { None }
    }

    /// Gives the array a device with room for some units.
    fn save(&mut self, local: &mut Local, unit: u64) {
        let units = self.rng.pick(&[1, 1, 2, 3, 8]);
        spill::attach(local, units * unit);
    }

    /// Another one may follow.
    fn over(&mut self, submitted: u64) {
        let Self { rng, .. } = self;
        self.at = rng.percent(50).then(|| submitted + rng.below(20));
        self.wish = None;
        self.looks = LOOKS;
        self.limit = None;
    }

    /// Draws after how many events the power is to be cut, as likely as the array says.
    pub fn draw_cut(&mut self, local: &mut Local, crash: bool) -> Option<u64> {
        let percent = std::mem::take(&mut local.cut_percent);
        if percent == 0 || !crash {
            return None;
        }
        let within = self.rng.pick(&[20, 60, 120, 250, 500]);
        self.rng.percent(percent).then(|| self.rng.between(1, within))
    }
}

/// Plans a change, while logs are off. Where data move in place, returns also how much is saved at
/// a time at least.
fn planned(local: &Local, status: &Status, wish: Grow) -> Result<(NewShape, Option<u64>), Refusal> {
    let status = grow::suspended(status, wish)?;
    match grow::plan(&status, wish) {
        Ok(shape) => Ok((shape, None)),
        Err(why) if local.scenario.spills => {
            let in_place = spill::planned(&status, wish).ok_or(why)?;
            Ok((in_place.0, Some(in_place.1)))
        }
        Err(why) => Err(why),
    }
}

/// Draws a change that moves data.
fn draw_move(scenario: &Scenario, rng: &mut Rng) -> Grow {
    let members = u32::from(scenario.members);
    match rng.below(7) {
        0 | 1 => Grow::Chunk(rng.pick(&scenario::CHUNKS)),
        2 | 3 => Grow::RaidDisks(members + rng.pick(&[1, 1, 2, 3])),
        4 => Grow::RaidDisks(members - 1),
        _ if scenario.level == Level::Raid4 => Grow::Chunk(rng.pick(&scenario::CHUNKS)),
        _ => Grow::Layout(scenario::draw_layout(scenario.level, scenario.members, rng)),
    }
}

fn draw_wish(scenario: &Scenario, rng: &mut Rng) -> Grow {
    if scenario.spills && scenario.has_parity() && rng.percent(75) {
        return draw_move(scenario, rng);
    }
    let members = u32::from(scenario.members);
    let unit = u64::from(scenario.chunk_sectors.max(8));
    let size = scenario.data_sectors[0] + unit;
    let size = Grow::Size(rng.percent(50).then_some(size));
    let level = |level: i32, rng: &mut Rng| Grow::Level { level, keep_layout: rng.percent(90) };
    match (scenario.level, rng.below(10)) {
        (Level::Raid1, 0..=3) => Grow::RaidDisks(members + 1),
        (Level::Raid1, 4..=5) => Grow::RaidDisks(members - 1),
        (Level::Raid1, 6..=7) => level(5, rng),
        (Level::Raid4 | Level::Raid5 | Level::Raid6, 0..=1)
            if scenario.version != Version::V1_0 =>
        {
            if scenario.level == Level::Raid4 || rng.percent(50) {
                Grow::Chunk(rng.pick(&scenario::CHUNKS))
            } else {
                Grow::Layout(scenario::draw_layout(scenario.level, scenario.members, rng))
            }
        }
        (Level::Raid4 | Level::Raid5 | Level::Raid6, 2..=5)
            if scenario.version != Version::V1_0 =>
        {
            Grow::RaidDisks(members + rng.pick(&[1, 1, 2, 3]))
        }
        (Level::Raid4 | Level::Raid5 | Level::Raid6, 8) if scenario.version != Version::V1_0 => {
            Grow::RaidDisks(members - 1)
        }
        (Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10, 9)
            if size != Grow::Size(None) =>
        {
            Grow::Size(Some(scenario.data_sectors[0].saturating_sub(8 * unit)))
        }
        (Level::Raid10, 0..=2) if scenario.version != Version::V1_0 => {
            let copies = scenario.tolerance() as u32 + 1;
            let layouts = [copies | 1 << 8, 1 | copies << 8 | 1 << 16];
            match rng.below(2) {
                0 => Grow::Chunk(rng.pick(&scenario::CHUNKS)),
                _ => Grow::Layout(rng.pick(&layouts)),
            }
        }
        (Level::Raid10, 3..=6) if scenario.version != Version::V1_0 => {
            Grow::RaidDisks(members + rng.pick(&[1, 1, 2, 3]))
        }
        (Level::Raid10, 7) if scenario.version != Version::V1_0 => Grow::RaidDisks(members - 1),
        (Level::Raid4, 6..=7) => level(5, rng),
        (Level::Raid5, 6..=7) => {
            let to = if members == 2 { 1 } else { rng.pick(&[4, 6, 6, 6]) };
            level(to, rng)
        }
        (Level::Raid6, 6..=7) => level(5, rng),
        (Level::Raid0, 0..=5) if scenario.version != Version::V1_0 => {
            Grow::RaidDisks(members + rng.pick(&[1, 1, 2, 3]))
        }
        (Level::Raid0, _) => {
            let to = rng.pick(&[4, 5, 10]);
            level(to, rng)
        }
        _ => size,
    }
}

/// Adds the members that it takes; of a mirror that is to have less copies, one is taken off.
fn prepare(local: &mut Local, status: &Status, wish: Grow) {
    let scenario = &local.parts.top().scenario;
    let members = u32::from(scenario.members);
    let new = match wish {
        Grow::RaidDisks(count) if count < members && scenario.level == Level::Raid1 => {
            return troubles::take_off(local, status);
        }
        Grow::RaidDisks(count) => count.saturating_sub(members),
        Grow::Level { level: 6, .. } => 1,
        _ => 0,
    };
    let spares = status.members.iter().filter(|member| member.state == MemberState::Spare);
    if (spares.count() as u32) < new && local.asked() == 0 {
        troubles::add_blank(local);
    }
}
