use std::collections::BTreeSet;

use braid_array::MemberId;
use braid_array::events::SyncAction;
use braid_array::figures::Figures;
use braid_array::status::{ArrayState, Status, SyncStatus};
use braid_host::control::wire::LastScrub;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::cmd::monitor::recent::testing::reads;
use crate::cmd::monitor::seen::testing::served;

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (132, 43);

/// Returns the lines of the screen, and the index of the first member on it.
fn drawn(screen: &Screen<'_>, (width, height): (u16, u16)) -> (Vec<String>, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut first_member = 0;
    terminal.draw(|frame| first_member = screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = |y| (0..width).map(move |x| buffer[(x, y)].symbol());
    let lines = (0..height).map(|y| cells(y).collect::<String>().trim_end().to_owned());
    (lines.collect(), first_member)
}

fn screen(arrays: &[ControlStatus], chosen: usize, size: (u16, u16)) -> String {
    let events = VecDeque::from(["12:00:00 Fail home /dev/sdb".to_owned()]);
    let mut board = Board::default();
    board.look(60_000, arrays, BTreeSet::new());
    let screen = Screen { arrays, events: &events, board: &board, chosen, first_member: 0 };
    drawn(&screen, size).0.join("\n")
}

fn degraded() -> ControlStatus {
    let sync = SyncStatus {
        action: SyncAction::Recovery,
        done_sectors: 25,
        total_sectors: 100,
        bytes_per_s: 3 << 20,
        finish_s: Some(7),
        ..SyncStatus::default()
    };
    served("home", Status { degraded: 1, sync, ..Status::blank() })
}

/// Returns a machine with more of everything than fits on a small terminal: a failed array of many
/// members, others that are well, and fast work.
fn crowd() -> (Vec<ControlStatus>, VecDeque<String>, Board) {
    let mut members: Vec<MemberStatus> = (0..20)
        .map(|number| {
            MemberStatus::new(MemberId(number), format!("/dev/m{number}"), MemberState::InSync)
        })
        .collect();
    for (member, role) in members.iter_mut().zip(braid_array::Role::all(20)) {
        member.role = Some(role);
    }
    members[17].role = None;
    members[17].state = MemberState::Faulty;
    members[17].errors = 12;
    members[17].device = format!("/dev/disk/by-path/{}-m17", "pci-0000".repeat(20));
    let ControlStatus { array, .. } = degraded();
    let sync = SyncStatus { bytes_per_s: 1999 << 20, finish_s: Some(7000), ..array.sync };
    let state = ArrayState::Failed;
    let array = Status { state, members, sync, degraded: 3, ..array };
    let mut board = Board::default();
    let asked = |count| {
        let figures = Figures { requests: reads(count), ..Figures::default() };
        ControlStatus { figures: Some(figures), ..served("broken", array.clone()) }
    };
    for step in 0..100 {
        board.look(step * STEP_S * 1000, &[asked(step * STEP_S * 2_000_000)], BTreeSet::new());
    }
    let others = (0..9).map(|number| served(&format!("other{number}"), Status::blank()));
    let arrays = std::iter::once(asked(0)).chain(others).collect();
    let events = (0..10).map(|number| format!("12:00:{number:02} Rebuild20 broken")).collect();
    (arrays, events, board)
}

#[test]
fn an_array_is_shown_with_its_activity() {
    let text = screen(&[degraded(), served("other", Status::blank())], 0, (100, 30));
    for shown in [
        "Braid: 1 of 2 well",
        "home",
        "other",
        "degraded",
        "recovery 25.0%, 3.0 MiB/s, 7 s left",
        "Members of home",
        "Fail home /dev/sdb",
    ] {
        assert!(text.contains(shown), "no {shown} in\n{text}");
    }
    let text = screen(&[degraded(), served("other", Status::blank())], 1, (100, 30));
    assert!(text.contains("Members of other") && text.contains("no background work"), "{text}");
    let ended_unix_s = 1_800_000_000;
    let action = SyncAction::Check;
    let last = LastScrub { action, ended_unix_s, mismatch_sectors: 48, complete: true };
    let checked = ControlStatus { last_scrub: Some(last), ..served("other", Status::blank()) };
    let text = screen(&[checked], 0, SMALL);
    assert!(text.contains("\nlast check "), "{text}");
    assert!(text.contains(": 48 sectors differ; next: braid repair other\n"), "{text}");
    let none = screen(&[], 0, SMALL);
    assert!(!none.contains(" of ") && none.contains("no arrays are running"));
}

#[test]
fn requests_of_users_are_shown() {
    let asked = |count| {
        let figures = Figures { requests: reads(count), ..Figures::default() };
        ControlStatus { figures: Some(figures), ..degraded() }
    };
    let mut board = Board::default();
    board.look(60_000, &[asked(10)], BTreeSet::new());
    board.look(61_000, &[asked(2010)], BTreeSet::new());
    let arrays = [asked(2010)];
    let events = VecDeque::new();
    let screen =
        Screen { arrays: &arrays, events: &events, board: &board, chosen: 0, first_member: 0 };
    let text = drawn(&screen, (120, 40)).0.join("\n");
    for shown in ["2000/s, 1.00 ms each", "write", "0 waiting, 99 % within 1.02 ms"] {
        assert!(text.contains(shown), "no {shown} in\n{text}");
    }
}

#[test]
fn a_small_screen_has_a_part_of_everything_and_says_how_much_more_there_is() {
    let (arrays, events, board) = crowd();
    let screen =
        Screen { arrays: &arrays, events: &events, board: &board, chosen: 0, first_member: 0 };
    let (lines, _) = drawn(&screen, SMALL);
    let text = lines.join("\n");
    let line = |at: usize, start: &str, end: &str| {
        let line = &lines[at];
        assert!(line.starts_with(start) && line.ends_with(end), "{at}: {line:?} in\n{text}");
    };
    line(0, "Braid: 9 of 10 well─", "─6 more");
    line(1, "Array", "Size");
    line(2, "broken", "MiB");
    line(5, "other2", "MiB");
    line(6, "Members of broken─", "─15 more");
    line(7, "  -  faulty     …", "pci-0000-m17, 12 errors");
    line(8, "  0  in-sync    /dev/m0", "m0");
    line(11, "  3  in-sync    /dev/m3", "m3");
    line(12, "Users: 0 waiting, 99 % within 1.02 ms─", "─");
    line(13, "read  1953.13 MiB/s, 2000000/s, 1.00 ms each", "each");
    line(14, "write 0.00 MiB/s", "each");
    line(15, "", "");
    assert!(lines[15].contains("recovery 25.0%, 1999.0 MiB/s, 116 min left"), "{text}");
    line(16, "Events─", "─8 more");
    line(18, "12:00:01 Rebuild20 broken", "broken");
    line(19, "Users: 0 to 1953.13 MiB/s, 20 min─", "─");
    assert!(lines[19].contains("  Background: 0 to 1999.00 MiB/s, 20 min─"), "{text}");
    line(22, "█", "█");
    line(23, "q ends it; up and down choose an array; PgUp and PgDn scroll", "members");
}

#[test]
fn lists_scroll() {
    let (mut arrays, events, board) = crowd();
    let screen =
        Screen { arrays: &arrays, events: &events, board: &board, chosen: 0, first_member: 8 };
    let (lines, first) = drawn(&screen, SMALL);
    assert!(lines[6].ends_with("─8 above, 7 more"), "{}", lines[6]);
    assert!(lines[7].ends_with("/dev/m7"), "the faulty one came before: {}", lines[7]);
    assert_eq!(first, 8);
    let (lines, first) = drawn(&Screen { first_member: 99, ..screen }, SMALL);
    assert!(lines[6].ends_with("─15 above") && lines[11].ends_with("/dev/m19"), "{}", lines[11]);
    assert_eq!(first, 15, "no further than to the last");
    arrays.rotate_left(2);
    let screen =
        Screen { arrays: &arrays, events: &events, board: &board, chosen: 8, first_member: 0 };
    let (lines, _) = drawn(&screen, SMALL);
    assert!(lines[0].ends_with("─5 above, 1 more") && lines[5].starts_with("broken"), "{lines:?}");
}

#[test]
fn on_a_large_screen_all_is_seen_and_plots_take_what_is_left() {
    let (arrays, mut events, board) = crowd();
    events.truncate(4);
    let screen =
        Screen { arrays: &arrays[..3], events: &events, board: &board, chosen: 0, first_member: 0 };
    let (lines, _) = drawn(&screen, LARGE);
    let text = lines.join("\n");
    assert!(!text.contains(" more") && !text.contains(" above"), "{text}");
    let find = |start: &str| lines.iter().position(|line| line.starts_with(start)).expect(start);
    let parts = ["Braid", "Members", "Users: 0 waiting", "Events", "Users: 0 to", "q ends it"];
    assert_eq!(parts.map(find), [0, 5, 26, 30, 35, 42], "{text}");
    let calm = Board::default();
    let screen = Screen { board: &calm, ..screen };
    let (lines, _) = drawn(&screen, LARGE);
    assert!(!lines.iter().any(|line| line.contains("0 to")), "nothing has moved: {lines:?}");
}

#[test]
fn rows_go_first_to_what_is_needed() {
    let all = [12, 21, 4, 11, u16::MAX];
    assert_eq!(heights(23, all), LEAST);
    assert_eq!(heights(42, all), [12, 19, 4, 3, 4]);
    assert_eq!(heights(60, all), [12, 21, 4, 11, 12]);
    assert_eq!(heights(9, all), [6, 3, 0, 0, 0]);
    assert_eq!(heights(23, [3, 4, 4, u16::MAX, 0]), [3, 4, 4, 12, 0]);
}

#[test]
fn a_small_terminal_is_no_trouble() {
    for size in [(1, 1), (20, 5), (40, 12), (300, 2)] {
        screen(&[degraded()], 0, size);
    }
}
