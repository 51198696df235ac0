//! Content of the screen. No I/O.

use std::collections::VecDeque;

use braid_array::SECTOR_BYTES;
use braid_array::status::{MemberState, MemberStatus};
use braid_host::control::wire::ControlStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Gauge, Paragraph, Row, Sparkline, Table};

use crate::cmd::monitor::board::{Board, STEP_S};
use crate::cmd::monitor::health::{Health, Summary};
use crate::cmd::monitor::seen::within;
use crate::failure::one_line;
use crate::output::json::{member_word, state_words};
use crate::output::{human, last_scrub, shape, work};

/// Rows that each part gets first, if it wants them: arrays, members, activity, events, plots. With
/// the line of keys they are 24, the height of the smallest usual terminal.
const LEAST: [u16; 5] = [6, 6, 4, 3, 4];

/// All of it.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    pub(super) arrays: &'a [ControlStatus],
    /// The latest first.
    pub(super) events: &'a VecDeque<String>,
    pub(super) board: &'a Board,
    /// Index of the array shown in full.
    pub(super) chosen: usize,
    /// Index of the first member to show, where they do not all fit.
    pub(super) first_member: usize,
}

impl Screen<'_> {
    /// Draws the screen, and returns the index of the first member shown.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) -> usize {
        let chosen = self.arrays.get(self.chosen);
        let width = usize::from(frame.area().width);
        let members = chosen.map_or_else(Vec::new, |array| member_lines(array, width));
        let plots = chosen.map_or_else(Vec::new, |array| self.plots(array));
        let events: Vec<_> = self.events.iter().map(|event| Line::from(one_line(event))).collect();
        // Rows below titles and the heads of columns.
        let some = |rows: usize, head| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(head);
        let wanted = [
            some(self.arrays.len().max(1), 2),
            if chosen.is_some() { some(members.len(), 1) } else { 0 },
            if chosen.is_some() { 4 } else { 0 },
            if plots.is_empty() { u16::MAX } else { some(events.len().max(1), 1) },
            if plots.is_empty() { 0 } else { u16::MAX },
        ];
        let [a, b, c, d, e] = heights(frame.area().height.saturating_sub(1), wanted);
        let parts = [a, b, c, d, e, 1].map(Constraint::Length);
        let [arrays_at, members_at, activity_at, events_at, plots_at, keys_at] =
            Layout::vertical(parts).areas(frame.area());
        self.draw_arrays(frame, arrays_at);
        let mut first_member = 0;
        if let Some(array) = chosen {
            let title = format!("Members of {}", one_line(&array.name));
            first_member = draw_lines(frame, members_at, title, &members, self.first_member);
            self.draw_activity(frame, activity_at, array);
            draw_plots(frame, plots_at, &plots);
        }
        draw_lines(frame, events_at, "Events".to_owned(), &events, 0);
        let help = "q ends it; up and down choose an array; PgUp and PgDn scroll its members";
        frame.render_widget(Paragraph::new(help), keys_at);
        first_member
    }

    fn draw_arrays(&self, frame: &mut Frame<'_>, area: Rect) {
        let Summary { well, all, .. } = Summary::of(self.arrays, self.board.silent());
        let count = if all > 0 { format!(": {well} of {all} well") } else { String::new() };
        let mut title = format!("Braid{count}");
        let silent: Vec<String> = self.board.silent().iter().map(|name| one_line(name)).collect();
        if !silent.is_empty() {
            title = format!("{title}, no answer from {}", silent.join(", "));
        }
        if self.arrays.is_empty() {
            let none = Paragraph::new("no arrays are running").block(section(title, ""));
            frame.render_widget(none, area);
            return;
        }
        let fit = usize::from(area.height.saturating_sub(2));
        let first = (self.chosen + 1).saturating_sub(fit);
        let rows = self.arrays.iter().enumerate().skip(first).take(fit);
        let rows = rows.map(|(at, array)| array_row(array, at == self.chosen));
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(6),
            Constraint::Fill(3),
            Constraint::Length(7),
            Constraint::Length(10),
        ];
        let head = Row::new(["Array", "Level", "State", "Members", "Size"]);
        let block = section(title, &hidden(first, fit, self.arrays.len()));
        frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
    }

    /// Draws the requests of the array's users, and its background work.
    fn draw_activity(&self, frame: &mut Frame<'_>, area: Rect, array: &ControlStatus) {
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
        let [users, background] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
        frame.render_widget(Paragraph::new(lines).block(section(title, "")), users);
        let sync = &array.array.sync;
        match work::in_words(&array.array) {
            None => {
                let last = last_scrub::words(array);
                let last = last.map(|(what, said)| format!("last {what} {said}"));
                let text = last.unwrap_or_else(|| "no background work".to_owned());
                frame.render_widget(Paragraph::new(one_line(&text)), background);
            }
            Some(words) => {
                let done = sync.done_sectors as f64 / sync.total_sectors.max(1) as f64;
                let gauge = Gauge::default().ratio(done.clamp(0.0, 1.0)).label(words);
                frame.render_widget(gauge.gauge_style(Color::Blue), background);
            }
        }
    }

    /// Returns the speeds of the last day that were ever more than 0, with their names.
    fn plots(&self, array: &ControlStatus) -> Vec<(&'static str, Vec<u64>)> {
        let mut plots = vec![
            ("Users", self.board.users_speeds(&array.name)),
            ("Background", self.board.speeds(&array.name)),
        ];
        plots.retain(|(_, speeds)| speeds.iter().any(|speed| *speed > 0));
        plots
    }
}

/// Distributes rows: to each part first what it needs least, then in turn what it wants.
fn heights(mut left: u16, wanted: [u16; 5]) -> [u16; 5] {
    let mut given = [0; 5];
    for most in [LEAST, wanted] {
        for ((rows, wanted), most) in given.iter_mut().zip(wanted).zip(most) {
            let more = wanted.min(most).saturating_sub(*rows).min(left);
            *rows += more;
            left -= more;
        }
    }
    given
}

/// A line with a title, and another one at its right end.
fn section(title: String, right: &str) -> Block<'static> {
    let right = Line::from(right.to_owned()).right_aligned();
    Block::new().borders(Borders::TOP).title(title.bold()).title(right)
}

/// `1 above, 2 more`: how many rows of a list are not shown.
fn hidden(first: usize, fit: usize, all: usize) -> String {
    let below = all.saturating_sub(first + fit);
    let above = (first > 0).then(|| format!("{first} above"));
    let below = (below > 0).then(|| format!("{below} more"));
    above.into_iter().chain(below).collect::<Vec<_>>().join(", ")
}

/// Draws the lines that fit, from this one on or an earlier one, and returns the first.
fn draw_lines(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    lines: &[Line<'static>],
    first: usize,
) -> usize {
    let fit = usize::from(area.height.saturating_sub(1));
    let first = first.min(lines.len().saturating_sub(fit));
    let seen: Vec<_> = lines.iter().skip(first).take(fit).cloned().collect();
    let block = section(title, &hidden(first, fit, lines.len()));
    frame.render_widget(Paragraph::new(seen).block(block), area);
    first
}

/// Draws side by side the latest part of each plot that fits.
fn draw_plots(frame: &mut Frame<'_>, area: Rect, plots: &[(&str, Vec<u64>)]) {
    let areas = Layout::horizontal(vec![Constraint::Fill(1); plots.len()]).spacing(2).split(area);
    for ((name, speeds), area) in plots.iter().zip(areas.iter()) {
        let fit = usize::from(area.width).min(speeds.len());
        let speeds = &speeds[speeds.len() - fit..];
        let most = speeds.iter().copied().max().unwrap_or(0);
        let minutes = (fit as u64 * STEP_S).div_ceil(60);
        let title = format!("{name}: 0 to {}/s, {minutes} min", human::size_binary(most));
        let line = Sparkline::default().data(speeds).max(most.max(1)).style(Color::Blue);
        frame.render_widget(line.block(section(title, "")), *area);
    }
}

/// Microseconds as milliseconds.
fn millis(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

fn array_row(array: &ControlStatus, is_chosen: bool) -> Row<'static> {
    let status = &array.array;
    let whole = status.superblock.raid_disks;
    let row = Row::new([
        one_line(&array.name),
        shape::level_name(status.superblock.level),
        state_words(status).join(", "),
        format!("{}/{whole}", whole.saturating_sub(status.degraded.into())),
        human::size_binary(status.array_sectors * SECTOR_BYTES),
    ]);
    let style = Style::new().fg(match Health::of(status) {
        Health::Failed => Color::Red,
        Health::Degraded => Color::Yellow,
        Health::Busy => Color::Blue,
        Health::Well => Color::Reset,
    });
    row.style(if is_chosen { style.add_modifier(Modifier::REVERSED) } else { style })
}

/// Returns a line for each member, those in trouble first, also of arrays within the array.
fn member_lines(array: &ControlStatus, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (name, status) in within(&array.name, &array.array) {
        if name != array.name {
            lines.push(Line::from(one_line(&name)).style(Modifier::BOLD));
        }
        let mut members: Vec<&MemberStatus> = status.members.iter().collect();
        members.sort_by_key(|member| {
            let is_calm = !matches!(member.state, MemberState::Faulty | MemberState::Rebuilding);
            (is_calm, member.role.is_none(), member.role, member.number)
        });
        lines.extend(members.into_iter().map(|member| member_line(member, width)));
    }
    lines
}

fn member_line(member: &MemberStatus, width: usize) -> Line<'static> {
    let role = member.role.map_or_else(|| "-".to_owned(), |role| role.to_string());
    let role = format!("{role:>3}  ");
    let state = format!("{:<11}", member_word(member.state));
    let errors =
        if member.errors > 0 { format!(", {} errors", member.errors) } else { String::new() };
    let slow = member.slow_ms.map_or_else(String::new, |ms| format!(", slow: {ms} ms"));
    let left = width.saturating_sub(role.len() + state.len() + errors.len() + slow.len());
    let device = end_of(&one_line(&member.device), left);
    Line::from(vec![
        Span::raw(role),
        Span::styled(state, Style::new().fg(member_colour(member.state))),
        Span::raw(format!("{device}{errors}{slow}")),
    ])
}

/// Returns the end of a text that is too long for so many columns, with a mark.
fn end_of(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let tail = text.chars().skip(length + 1 - columns.max(1));
    std::iter::once('…').chain(tail).collect()
}

const fn member_colour(state: MemberState) -> Color {
    match state {
        MemberState::InSync => Color::Green,
        MemberState::Rebuilding => Color::Blue,
        MemberState::Spare | MemberState::Journal => Color::Gray,
        MemberState::Faulty => Color::Red,
    }
}

#[cfg(test)]
mod tests;
