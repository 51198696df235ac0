//! Disks with one power supply, which fails at an operation that is chosen beforehand.

use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use super::dice::Dice;
use super::disk::Disk;
use crate::support::until;

/// Named disks, as all who use them share them.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
pub(super) struct Inside {
    disks: Vec<(String, Disk)>,
    power: Power,
    /// How often disks are open.
    open: usize,
}

#[derive(Debug)]
enum Power {
    On,
    /// It fails at so many writes and flushes from now: the last of them is not answered well, and
    /// what it was about may be kept.
    FailsAfter(u64, Dice),
    Off,
}

impl Rack {
    pub(super) fn new(disks: Vec<(String, Disk)>) -> Self {
        Self { inside: Arc::new(Mutex::new(Inside { disks, power: Power::On, open: 0 })) }
    }

    /// The disks.
    pub(super) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("nothing panics within")
    }

    /// The power fails at the `operations`th write or flush from now.
    pub(super) fn cut_after(&self, operations: u64, dice: Dice) {
        assert!(operations > 0, "an operation at which the power fails");
        self.inside().power = Power::FailsAfter(operations, dice);
    }

    pub(super) fn is_off(&self) -> bool {
        matches!(self.inside().power, Power::Off)
    }

    /// Power is there, and stays; nobody uses the disks.
    pub(super) fn power_on(&self) {
        self.wait_until_closed();
        self.inside().power = Power::On;
    }

    /// What a process that was killed had asked for may still be on its way through the kernel: it
    /// has arrived when its files are closed.
    fn wait_until_closed(&self) {
        until("disks that nobody has open", || self.inside().open == 0);
    }

    /// What the disks hold, durable or not.
    pub(super) fn copy(&self) -> Vec<(String, Disk)> {
        self.inside().disks.clone()
    }

    /// Other disks, of the same names and sizes, with power.
    pub(super) fn exchange(&self, disks: &[(String, Disk)]) {
        self.wait_until_closed();
        let mut inside = self.inside();
        let same = |(old, new): (&(String, Disk), &(String, Disk))| {
            old.0 == new.0 && old.1.bytes() == new.1.bytes()
        };
        assert!(inside.disks.len() == disks.len() && inside.disks.iter().zip(disks).all(same));
        inside.disks = disks.to_vec();
        inside.power = Power::On;
    }
}

impl Inside {
    /// Which disk has this name?
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.disks.iter().position(|(known, _)| known.as_bytes() == name)
    }

    pub(super) fn bytes(&self, disk: usize) -> Option<usize> {
        self.disks.get(disk).map(|(_, disk)| disk.bytes())
    }

    pub(super) const fn opened(&mut self) {
        self.open += 1;
    }

    pub(super) const fn closed(&mut self) {
        self.open -= 1;
    }

    pub(super) fn read(&self, disk: usize, offset: usize, bytes: usize) -> Result<&[u8], Errno> {
        if matches!(self.power, Power::Off) {
            return Err(Errno::IO);
        }
        let (_, disk) = self.disks.get(disk).ok_or(Errno::NOENT)?;
        Ok(disk.read(offset..offset + bytes))
    }

    pub(super) fn write(
        &mut self,
        disk: usize,
        offset: usize,
        data: &[u8],
        durable: bool,
    ) -> Result<(), Errno> {
        if matches!(self.power, Power::Off) {
            return Err(Errno::IO);
        }
        let written = self.disks.get_mut(disk).ok_or(Errno::NOENT)?.1.write(offset, data);
        written.ok_or(Errno::INVAL)?;
        self.count()?;
        if durable {
            self.disks[disk].1.force(offset, data.len());
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, disk: usize) -> Result<(), Errno> {
        self.count()?;
        self.disks.get_mut(disk).ok_or(Errno::NOENT)?.1.flush();
        Ok(())
    }

    /// An operation; it fails when there is no power, or not any longer.
    fn count(&mut self) -> Result<(), Errno> {
        match &mut self.power {
            Power::On => return Ok(()),
            Power::FailsAfter(left, _) if *left > 1 => {
                *left -= 1;
                return Ok(());
            }
            Power::FailsAfter(_, dice) => {
                for (_, disk) in &mut self.disks {
                    disk.lose_power(dice);
                }
            }
            Power::Off => {}
        }
        self.power = Power::Off;
        Err(Errno::IO)
    }
}

#[test]
fn the_power_fails_at_the_operation_that_was_chosen() {
    let disks = [0, 1].map(|number| (format!("disk{number}"), Disk::new(512)));
    let rack = Rack::new(disks.to_vec());
    rack.cut_after(3, Dice::new(1));
    let mut inside = rack.inside();
    assert_eq!(inside.write(0, 0, &[1; 512], false), Ok(()));
    assert_eq!(inside.flush(0), Ok(()));
    assert_eq!(inside.write(1, 0, &[2; 512], true), Err(Errno::IO));
    assert_eq!(inside.read(0, 0, 512), Err(Errno::IO));
    assert_eq!(inside.flush(1), Err(Errno::IO));
    drop(inside);
    assert!(rack.is_off());
    rack.power_on();
    assert_eq!(rack.inside().read(0, 0, 512), Ok(&[1; 512][..]));
    assert_eq!(rack.inside().find(b"disk1"), Some(1));
}
