//! Members of an array in few bytes: sectors of its content, which can be made again, are named,
//! and so is parity of them. All else is kept as it is.
//!
//! A member is a row of runs: `KIND COUNT`, and after `CONTENT` the seed's number and the first
//! sector, after `LITERAL` the bytes, after `P` the member that is left out (or none), after `Q`
//! the member with P and how members are counted.

use std::collections::HashMap;

use crate::{Content, SECTOR_BYTES, fill};

const SECTOR: usize = SECTOR_BYTES as usize;
/// No member is left out.
const NONE: u8 = 255;

type Sector = [u8; SECTOR];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zero,
    Content { seed: u8, number: u32 },
    Literal,
    P { without: u8 },
    Q { p: u8, by_role: bool },
}

/// Packs members, of which each has whole sectors.
#[must_use]
pub fn pack(members: &[Vec<u8>], content: &Content) -> Vec<u8> {
    let seeds = seeds(content);
    let known = Known::of(&seeds, members.iter().map(Vec::len).sum::<usize>() / SECTOR);
    let mut kinds: Vec<Vec<Kind>> = members
        .iter()
        .map(|member| sectors(member).map(|sector| known.kind(sector)).collect())
        .collect();
    let rows = kinds.iter().map(Vec::len).min().unwrap_or(0);
    (0..rows).for_each(|row| {
        let is_unknown = |at: &usize| kinds[*at][row] == Kind::Literal;
        let unknown: Vec<usize> = (0..members.len()).filter(is_unknown).collect();
        let sectors: Vec<Sector> = members.iter().map(|member| sector(member, row)).collect();
        for (at, kind) in parity(&sectors, &unknown) {
            kinds[at][row] = kind;
        }
    });
    let mut packed = vec![members.len() as u8];
    for (member, kinds) in members.iter().zip(&kinds) {
        packed.extend((member.len() as u64).to_le_bytes());
        pack_member(member, kinds, &mut packed);
    }
    packed
}

/// The members that were packed, of an array with this content.
pub fn unpack(packed: &[u8], content: &Content) -> Result<Vec<Vec<u8>>, String> {
    let seeds = seeds(content);
    let mut from = Bytes(packed);
    let mut members = Vec::new();
    let mut runs = Vec::new();
    for _ in 0..from.byte()? {
        let mut member = vec![0; from.number(8)? as usize];
        runs.push(unpack_member(&mut from, &seeds, &mut member)?);
        members.push(member);
    }
    for wanted in [true, false] {
        for (at, runs) in runs.iter().enumerate() {
            for &(row, kind) in runs.iter().filter(|(_, kind)| is_p(*kind) == wanted) {
                let others: Vec<Sector> =
                    members.iter().map(|member| sector(member, row)).collect();
                let made = match kind {
                    Kind::P { without } => p_of(&others, at, without),
                    Kind::Q { p, by_role } => q_of(&others, at, p, by_role),
                    _ => continue,
                };
                members[at][row * SECTOR..][..SECTOR].copy_from_slice(&made);
            }
        }
    }
    Ok(members)
}

const fn is_p(kind: Kind) -> bool {
    matches!(kind, Kind::P { .. })
}

fn seeds(content: &Content) -> Vec<u64> {
    std::iter::once(content.seed).chain(content.over.iter().map(|write| write.seed)).collect()
}

fn sectors(member: &[u8]) -> impl Iterator<Item = &Sector> {
    member.chunks_exact(SECTOR).map(|chunk| chunk.try_into().expect("a sector"))
}

/// What lies there; nothing but zeros behind the end.
fn sector(member: &[u8], row: usize) -> Sector {
    let bytes = member.get(row * SECTOR..(row + 1) * SECTOR);
    bytes.map_or([0; SECTOR], |bytes| bytes.try_into().expect("a sector"))
}

/// Sectors of the content, by their first eight bytes.
struct Known(HashMap<[u8; 8], (Kind, u64)>);

impl Known {
    fn of(seeds: &[u64], count: usize) -> Self {
        let mut known = HashMap::new();
        for (index, seed) in (0..).zip(seeds) {
            for number in 0..count as u32 {
                let mut word = [0; 8];
                fill(*seed, u64::from(number) * SECTOR_BYTES, &mut word);
                known.insert(word, (Kind::Content { seed: index, number }, *seed));
            }
        }
        Self(known)
    }

    fn kind(&self, sector: &Sector) -> Kind {
        if sector.iter().all(|byte| *byte == 0) {
            return Kind::Zero;
        }
        let Some((kind, seed)) = self.0.get(&sector[..8]) else { return Kind::Literal };
        let Kind::Content { number, .. } = kind else { return Kind::Literal };
        let mut made = [0; SECTOR];
        fill(*seed, u64::from(*number) * SECTOR_BYTES, &mut made);
        if made == *sector { *kind } else { Kind::Literal }
    }
}

/// Which of these members, of which nothing is known, are parity of the others in this row.
fn parity(row: &[Sector], unknown: &[usize]) -> Vec<(usize, Kind)> {
    let is_p = |at: usize, without: u8| p_of(row, at, without) == row[at];
    let q = |at: usize, p: usize| {
        let is_q = |by_role: &bool| q_of(row, at, p as u8, *by_role) == row[at];
        let by_role = [false, true].into_iter().find(is_q)?;
        Some(Kind::Q { p: p as u8, by_role })
    };
    match *unknown {
        [at] if is_p(at, NONE) => vec![(at, Kind::P { without: NONE })],
        [at] => {
            let others = (0..row.len()).filter(|p| *p != at);
            others.filter_map(|p| q(at, p)).take(1).map(|kind| (at, kind)).collect()
        }
        [a, b] => {
            for (p, other) in [(a, b), (b, a)] {
                if is_p(p, other as u8) {
                    let mut found = vec![(p, Kind::P { without: other as u8 })];
                    found.extend(q(other, p).map(|kind| (other, kind)));
                    return found;
                }
            }
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn p_of(row: &[Sector], at: usize, without: u8) -> Sector {
    let mut sum = [0; SECTOR];
    for (other, sector) in row.iter().enumerate() {
        if other != at && other != usize::from(without) {
            sum.iter_mut().zip(sector).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
    sum
}

/// The syndrome: data are counted from the member behind Q on, or by their roles.
fn q_of(row: &[Sector], at: usize, p: u8, by_role: bool) -> Sector {
    let count = row.len();
    let mut data: Vec<(usize, usize)> = Vec::new();
    for step in 1..count {
        let member = (at + step) % count;
        if member != usize::from(p) {
            data.push((if by_role { member } else { data.len() }, member));
        }
    }
    // Horner's way, from the highest power down.
    let mut sum = [0; SECTOR];
    for power in (0..count).rev() {
        sum.iter_mut().for_each(|byte| *byte = doubled(*byte));
        if let Some((_, member)) = data.iter().find(|(of, _)| *of == power) {
            sum.iter_mut().zip(&row[*member]).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
    sum
}

const fn doubled(byte: u8) -> u8 {
    (byte << 1) ^ if byte & 0x80 == 0 { 0 } else { 0x1d }
}

fn goes_on(before: Kind, count: u32, next: Kind) -> bool {
    match (before, next) {
        (Kind::Content { seed: a, number }, Kind::Content { seed: b, number: next }) => {
            a == b && number + count == next
        }
        _ => before == next,
    }
}

fn pack_member(member: &[u8], kinds: &[Kind], packed: &mut Vec<u8>) {
    let mut row = 0;
    while row < kinds.len() {
        let kind = kinds[row];
        let mut count = 1;
        while kinds.get(row + count).is_some_and(|next| goes_on(kind, count as u32, *next)) {
            count += 1;
        }
        let (letter, more): (u8, Vec<u8>) = match kind {
            Kind::Zero => (b'0', Vec::new()),
            Kind::Literal => (b'L', member[row * SECTOR..(row + count) * SECTOR].to_vec()),
            Kind::Content { seed, number } => {
                (b'C', std::iter::once(seed).chain(number.to_le_bytes()).collect())
            }
            Kind::P { without } => (b'P', vec![without]),
            Kind::Q { p, by_role } => (b'Q', vec![p, u8::from(by_role)]),
        };
        packed.push(letter);
        packed.extend((count as u32).to_le_bytes());
        packed.extend(more);
        row += count;
    }
}

/// Fills in what needs no other member; the parity that is left, by rows.
fn unpack_member(
    from: &mut Bytes<'_>,
    seeds: &[u64],
    member: &mut [u8],
) -> Result<Vec<(usize, Kind)>, String> {
    let mut left = Vec::new();
    let mut row = 0;
    while row < member.len() / SECTOR {
        let letter = from.byte()?;
        let count = from.number(4)? as usize;
        let end = (row + count) * SECTOR;
        let to = member.get_mut(row * SECTOR..end).ok_or("more than a member has")?;
        match letter {
            b'0' => {}
            b'L' => to.copy_from_slice(from.take(to.len())?),
            b'C' => {
                let seed = *seeds.get(usize::from(from.byte()?)).ok_or("no such seed")?;
                fill(seed, from.number(4)? * SECTOR_BYTES, to);
            }
            b'P' => {
                let kind = Kind::P { without: from.byte()? };
                left.extend((row..row + count).map(|row| (row, kind)));
            }
            b'Q' => {
                let kind = Kind::Q { p: from.byte()?, by_role: from.byte()? == 1 };
                left.extend((row..row + count).map(|row| (row, kind)));
            }
            letter => return Err(format!("no run {letter}")),
        }
        row += count;
    }
    Ok(left)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, count: usize) -> Result<u64, String> {
        let bytes = self.take(count)?.iter().rev();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five members of a RAID-6 with Q on the third and P on the second, and something else.
    fn members(content: &Content) -> Vec<Vec<u8>> {
        let mut members = vec![vec![0; 64 * SECTOR]; 5];
        for (number, at) in [3, 4, 0].into_iter().enumerate() {
            content.fill(number as u64 * 56 * SECTOR_BYTES, &mut members[at][8 * SECTOR..]);
        }
        for row in 8..64 {
            let data: Vec<Sector> = members.iter().map(|member| sector(member, row)).collect();
            let at = row * SECTOR;
            members[1][at..at + SECTOR].copy_from_slice(&p_of(&data, 1, 2));
            members[2][at..at + SECTOR].copy_from_slice(&q_of(&data, 2, 1, false));
        }
        members[4][5..8].copy_from_slice(b"raw");
        members
    }

    #[test]
    fn what_was_packed_is_there_again_and_parity_takes_no_room() {
        let content = Content::of(7);
        let members = members(&content);
        let packed = pack(&members, &content);
        assert!(packed.len() < 5 * SECTOR, "{}", packed.len());
        assert!(unpack(&packed, &content) == Ok(members));
        assert!(unpack(&packed[..packed.len() - 1], &content).is_err());
    }
}
