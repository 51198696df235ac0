//! `braid top`: the arrays of this machine in a terminal, as they are now.

mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use braid_host::control::wire::ControlStatus;
use chrono::{DateTime, Local, Utc};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::view::Screen;
use super::ask::{Answers, Asker};
use super::board::Board;
use super::events::Watch;
use super::health::Health;
use super::seen::Seen;
use super::unreadable;
use crate::failure::{Failure, system_error};

/// Interval of refreshes.
const DELAY: Duration = Duration::from_secs(1);
/// More events fit on no screen.
const EVENTS: usize = 100;
/// Members that a key scrolls by.
const PAGE: usize = 4;

/// Shows them until a key ends it.
pub(crate) fn run(run_dir: &Path) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        let next = "run it in a terminal, or use braid status";
        return Err(Failure::refused("top", run_dir.display(), "stdout is no terminal", next));
    }
    let mut top = Top::new(run_dir);
    // What cannot be looked at is told on a terminal that is as it was.
    top.look(run_dir)?;
    let mut terminal = ratatui::init();
    let ended = top.show(run_dir, &mut terminal);
    ratatui::restore();
    ended
}

struct Top {
    asker: Asker,
    watch: Watch,
    board: Board,
    arrays: Vec<ControlStatus>,
    /// The latest first.
    events: VecDeque<String>,
    /// Name of the array that a key chose; `None`: the first one, which is the worst.
    chosen: Option<String>,
    /// Index of the first member on the screen.
    first_member: usize,
}

impl Top {
    fn new(run_dir: &Path) -> Self {
        Self {
            asker: Asker::quiet(run_dir),
            watch: Watch::default(),
            board: Board::default(),
            arrays: Vec::new(),
            events: VecDeque::new(),
            chosen: None,
            first_member: 0,
        }
    }

    fn show(
        &mut self,
        run_dir: &Path,
        terminal: &mut ratatui::DefaultTerminal,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            let next = "see what the terminal is like: echo $TERM";
            Failure::refused("top", run_dir.display(), system_error(&error), next)
        };
        let mut next_look = Instant::now() + DELAY;
        loop {
            let mut first_member = 0;
            let screen = self.screen();
            terminal.draw(|frame| first_member = screen.draw(frame)).map_err(failed)?;
            self.first_member = first_member;
            let left = next_look.saturating_duration_since(Instant::now());
            if event::poll(left).map_err(failed)? {
                let event = event::read().map_err(failed)?;
                if let Event::Key(key) = event
                    && !self.press(key)
                {
                    return Ok(());
                }
            }
            if Instant::now() >= next_look {
                self.look(run_dir)?;
                next_look = Instant::now() + DELAY;
            }
        }
    }

    fn screen(&self) -> Screen<'_> {
        Screen {
            arrays: &self.arrays,
            events: &self.events,
            board: &self.board,
            chosen: self.chosen_index(),
            first_member: self.first_member,
        }
    }

    fn chosen_index(&self) -> usize {
        let is_chosen = |array: &ControlStatus| Some(&array.name) == self.chosen.as_ref();
        self.arrays.iter().position(is_chosen).unwrap_or(0)
    }

    fn choose(&mut self, index: usize) {
        if let Some(array) = self.arrays.get(index) {
            self.chosen = Some(array.name.clone());
            self.first_member = 0;
        }
    }

    /// False when that is the end.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.chosen_index() + 1),
            KeyCode::Up | KeyCode::Char('k') => {
                self.choose(self.chosen_index().saturating_sub(1));
            }
            KeyCode::PageDown => self.first_member += PAGE,
            KeyCode::PageUp => self.first_member = self.first_member.saturating_sub(PAGE),
            _ => {}
        }
        true
    }

    fn look(&mut self, run_dir: &Path) -> Result<(), Failure> {
        let answers = self.asker.ask().map_err(|error| unreadable(run_dir, &error))?;
        self.take(answers, Utc::now());
        Ok(())
    }

    fn take(&mut self, answers: Answers, now: DateTime<Utc>) {
        let seen: Vec<Seen> = answers.arrays.iter().flat_map(Seen::all).collect();
        let alerts = self.watch.look(seen, &answers.silent);
        let time = DateTime::<Local>::from(now).format("%H:%M:%S");
        for alert in alerts {
            let member = alert.member.unwrap_or_default();
            self.events.push_front(format!(
                "{time} {} {} {member}",
                alert.event.name(),
                alert.array
            ));
        }
        self.events.truncate(EVENTS);
        let now_ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        self.board.look(now_ms, &answers.arrays, answers.silent);
        self.arrays = answers.arrays;
        self.arrays.sort_by_key(|array| Health::of(&array.array));
    }
}

#[cfg(test)]
mod tests;
