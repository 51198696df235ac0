//! Content of the screen. No I/O.

use std::collections::VecDeque;

use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_host::control::wire::ControlStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, List, Paragraph, Row, Sparkline, Table};

use crate::cmd::monitor::board::Board;
use crate::cmd::monitor::seen::within;
use crate::failure::one_line;
use crate::output::json::{member_word, state_words};
use crate::output::{human, shape};

/// All of it.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    pub(super) arrays: &'a [ControlStatus],
    /// The latest first.
    pub(super) events: &'a VecDeque<String>,
    pub(super) board: &'a Board,
    /// Index of the array shown in full.
    pub(super) chosen: usize,
}

impl Screen<'_> {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let arrays = u16::try_from(self.arrays.len()).unwrap_or(u16::MAX).saturating_add(3);
        let parts = [
            Constraint::Max(arrays),
            Constraint::Min(5),
            Constraint::Length(4),
            Constraint::Length(5),
            Constraint::Max(8),
            Constraint::Length(1),
        ];
        let [top, members, io, work, events, keys] = Layout::vertical(parts).areas(frame.area());
        self.draw_arrays(frame, top);
        if let Some(array) = self.arrays.get(self.chosen) {
            draw_members(frame, members, array);
            self.draw_io(frame, io, array);
            self.draw_work(frame, work, array);
        } else {
            let none = Paragraph::new("no arrays are running").block(Block::bordered());
            frame.render_widget(none, members);
        }
        let lines = self.events.iter().map(|event| one_line(event));
        let list = List::new(lines).block(Block::bordered().title("Events"));
        frame.render_widget(list, events);
        // A text alone would not mind that there is no room for it.
        let help = Paragraph::new("q ends it, up and down choose an array");
        frame.render_widget(help, keys);
    }

    fn draw_arrays(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.arrays.iter().enumerate().map(|(at, array)| {
            let status = &array.array;
            let silent = self.board.silent().contains(&array.name);
            let words = state_words(status);
            let state = if silent { "no answer".to_owned() } else { words.join(", ") };
            let whole = status.superblock.raid_disks;
            let cells = [
                one_line(&array.name),
                shape::level_name(status.superblock.level),
                state,
                format!("{}/{whole}", whole.saturating_sub(status.degraded.into())),
                human::size_binary(status.array_sectors * SECTOR_BYTES),
            ];
            let style = Style::new().fg(array_colour(status));
            let row = Row::new(cells).style(style);
            if at == self.chosen { row.style(style.add_modifier(Modifier::REVERSED)) } else { row }
        });
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(6),
            Constraint::Fill(3),
            Constraint::Length(7),
            Constraint::Length(10),
        ];
        let head = Row::new(["Array", "Level", "State", "Members", "Size"]);
        let table = Table::new(rows, widths).header(head).block(Block::bordered().title("Braid"));
        frame.render_widget(table, area);
    }

    /// Draws the requests of the array's users.
    fn draw_io(&self, frame: &mut Frame<'_>, area: Rect, array: &ControlStatus) {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        let rates = self.board.rates(&array.name);
        let line = |what, bytes, count, us| {
            let speed = human::size_binary(bytes);
            Line::from(format!("{what} {speed}/s, {count}/s, {} ms each", millis(us)))
        };
        let lines = vec![
            line("read ", rates.read_bytes_s, rates.reads_s, rates.read_us),
            line("write", rates.write_bytes_s, rates.writes_s, rates.write_us),
        ];
        let waiting = array.figures.as_ref().map_or(0, |figures| figures.requests.in_flight);
        let slow = millis(rates.slow_us);
        let title = format!("Users: {waiting} waiting, 99 % within {slow} ms");
        let block = Block::bordered().title(title);
        frame.render_widget(Paragraph::new(lines).block(block), left);
        draw_day(frame, right, &self.board.users_speeds(&array.name), "Their speed, of a day");
    }

    fn draw_work(&self, frame: &mut Frame<'_>, area: Rect, array: &ControlStatus) {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        let sync = &array.array.sync;
        let block = Block::bordered().title("Background work");
        if sync.action == SyncAction::Idle {
            frame.render_widget(Paragraph::new("none").block(block), left);
        } else {
            let done = sync.done_sectors as f64 / sync.total_sectors.max(1) as f64;
            let speed = human::size_binary(sync.bytes_per_s);
            let eta = sync.finish_s.map_or_else(String::new, |s| format!(", {s} s left"));
            let percent = (done * 100.0).floor();
            let label = format!("{} {percent} %, {speed}/s{eta}", sync.action.name());
            let gauge = Gauge::default().block(block).ratio(done.clamp(0.0, 1.0)).label(label);
            frame.render_widget(gauge.gauge_style(Color::Blue), left);
        }
        draw_day(frame, right, &self.board.speeds(&array.name), "Its speed, of a day");
    }
}

/// Microseconds as milliseconds.
fn millis(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

/// The latest of the last day that fit.
fn draw_day(frame: &mut Frame<'_>, area: Rect, speeds: &[u64], title: &str) {
    let fit = usize::from(area.width.saturating_sub(2)).min(speeds.len());
    let speeds = &speeds[speeds.len() - fit..];
    let line = Sparkline::default().data(speeds).style(Color::Blue);
    frame.render_widget(line.block(Block::bordered().title(title)), area);
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, array: &ControlStatus) {
    let mut lines = Vec::new();
    for (name, status) in within(&array.name, &array.array) {
        if name != array.name {
            lines.push(Line::from(one_line(&name)).style(Modifier::BOLD));
        }
        lines.extend(status.members.iter().map(member_line));
    }
    let title = format!("Members of {}", one_line(&array.name));
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn member_line(member: &MemberStatus) -> Line<'static> {
    let role = member.role.map_or_else(|| "-".to_owned(), |role| role.to_string());
    let errors =
        if member.errors > 0 { format!(", {} errors", member.errors) } else { String::new() };
    let slow = member.slow_ms.map_or_else(String::new, |ms| format!(", slow: {ms} ms"));
    let state = format!("{:<11}", member_word(member.state));
    Line::from(vec![
        Span::raw(format!("{role:>3}  ")),
        Span::styled(state, Style::new().fg(member_colour(member.state))),
        Span::raw(format!("{}{errors}{slow}", one_line(&member.device))),
    ])
}

const fn member_colour(state: MemberState) -> Color {
    match state {
        MemberState::InSync => Color::Green,
        MemberState::Rebuilding => Color::Blue,
        MemberState::Spare | MemberState::Journal => Color::Gray,
        MemberState::Faulty => Color::Red,
    }
}

fn array_colour(status: &Status) -> Color {
    let words = state_words(status);
    if words.contains(&"failed") {
        Color::Red
    } else if words.contains(&"degraded") {
        Color::Yellow
    } else {
        Color::Reset
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use braid_array::figures::Figures;
    use braid_array::status::SyncStatus;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::cmd::monitor::recent::testing::reads;
    use crate::cmd::monitor::seen::testing::served;

    fn screen(arrays: &[ControlStatus], chosen: usize, (width, height): (u16, u16)) -> String {
        let mut board = Board::default();
        board.look(60_000, arrays, BTreeSet::new());
        let events = VecDeque::from(["12:00:00 Fail home /dev/sdb".to_owned()]);
        let screen = Screen { arrays, events: &events, board: &board, chosen };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
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

    #[test]
    fn an_array_is_shown_with_what_goes_on() {
        let text = screen(&[degraded(), served("other", Status::blank())], 0, (100, 30));
        for shown in [
            "home",
            "other",
            "degraded",
            "recovery 25 %",
            "7 s left",
            "Members of home",
            "Fail home /dev/sdb",
        ] {
            assert!(text.contains(shown), "no {shown} in\n{text}");
        }
        let text = screen(&[degraded(), served("other", Status::blank())], 1, (100, 30));
        assert!(text.contains("Members of other") && text.contains("none"), "{text}");
        assert!(screen(&[], 0, (80, 24)).contains("no arrays are running"));
    }

    #[test]
    fn what_users_ask_for_is_shown() {
        let asked = |ms, count| {
            let figures = Figures { requests: reads(count), ..Figures::default() };
            (ms, ControlStatus { figures: Some(figures), ..degraded() })
        };
        let mut board = Board::default();
        let looks = [asked(60_000, 10), asked(61_000, 2010)];
        for (ms, array) in &looks {
            board.look(*ms, std::slice::from_ref(array), BTreeSet::new());
        }
        let arrays = [looks[1].1.clone()];
        let screen = Screen { arrays: &arrays, events: &VecDeque::new(), board: &board, chosen: 0 };
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        for shown in ["2000/s, 1.00 ms each", "write", "0 waiting, 99 % within 1.02 ms"] {
            assert!(text.contains(shown), "no {shown} in\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_is_no_trouble() {
        for size in [(1, 1), (20, 5), (40, 12), (300, 2)] {
            screen(&[degraded()], 0, size);
        }
    }
}
