//! Moves that begin, or go on, without a member.

use super::super::world::Fate;
use super::*;

/// Members that are missing are none of a reason to wait: what they hold is computed.
#[test]
fn data_move_without_a_member() {
    let changes = CHANGES.iter().filter(|change| change.0 != 10);
    for (number, &change) in changes.enumerate() {
        let lost = if change.0 == 6 { 2 } else { 1 };
        // More places of a few.
        let close = if number < 3 { 24 } else { 4 };
        let mut most = number % 7;
        loop {
            let what = format!("{change:?} without {lost}: {most} writes");
            let mut world = before(change, most % 2 == 0);
            let content = fill_kept(&mut world, change);
            for member in (0..).step_by(3).take(lost).map(|at| at + number as u16 % 3) {
                let member = MemberId(member % change.2 as u16);
                world.command(Command::Fail(member));
                world.command(Command::Remove(member));
                world.disks[usize::from(member.0)] = None;
            }
            if roles_after(change) > change.2 {
                // Its recovery begins, and is put off.
                world.hold(|_, op| matches!(op, IoOp::Read { .. }));
                (change.2..roles_after(change)).for_each(|_| _ = world.add_disk());
                world.tell(Command::Grow(change.4));
                world.answers.clear();
            }
            let seen = lose_after(&mut world, most);
            if roles_after(change) > change.2 {
                world.release();
            } else {
                world.begin_command(Command::Grow(change.4));
            }
            assert_eq!(world.refusals, Vec::<String>::new(), "{what}");
            let all = seen.get();
            world.cut_power_and_restart();
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            (0..lost).for_each(|_| _ = world.add_disk());
            world.run();
            let status = world.array.status();
            assert_eq!(status.degraded, 0, "{what}: {:?}", status.members);
            holds(&mut world, &content, &format!("{what}, and with others"));
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            most = next_cut(most, all, close, number);
        }
    }
}

/// A member fails at the begin, and has not heard of it: it is not taken for one that says that
/// nothing has moved.
#[test]
fn a_member_that_did_not_hear_of_the_begin_does_not_count() {
    let change = (5, 2, 4, 16, Grow::RaidDisks(3));
    let mut most = 0;
    while most < 90 {
        let mut world = begin(change, most % 2 == 0);
        let content = fill_kept(&mut world, change);
        world.run();
        let mut seen = 0;
        world.rule(move |member, op| match op {
            IoOp::Write { sector, .. } if member == MemberId(1) && sector < DATA_OFFSET => {
                Fate::Fail(crate::action::IoError::GONE)
            }
            IoOp::Write { .. } | IoOp::WriteZeroes { .. } => {
                seen += 1;
                if seen > most { Fate::Lose } else { Fate::Serve }
            }
            _ => Fate::Serve,
        });
        world.begin_command(Command::Grow(change.4));
        world.cut_power_and_restart();
        world.rule(|_, _| Fate::Serve);
        world.run();
        holds(&mut world, &content, &format!("{most} writes"));
        if world.array.status().degraded > 0 {
            world.add_disk();
            world.run();
        }
        assert_eq!(world.array.status().degraded, 0, "{most} writes");
        assert_eq!(world.check(), 0, "{most} writes");
        most = next_cut(most, 90, 45, 0);
    }
}
