//! `terrace status --watch` on a terminal: one screen, drawn anew each second until the agent ends or the user leaves.
//!
//!   status, once a second ─▶ Seen (rates of the last minutes) ─▶ draw: tiers, rates, runs, what moves, arrays, what is wrong
//!
//! What is drawn is a function of [`Seen`] alone.

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Row, Sparkline, Table};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use terrace_core::control::Status;
use terrace_core::settings::Settings;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_tool::control_client::running;
use terrace_tool::failure::{Failure, Result};

const EACH: Duration = Duration::from_secs(1);
/// Rates that are kept, one a second: as wide as terminals are.
const KEPT: usize = 240;

/// What is known at one moment.
#[derive(Default)]
struct Seen {
    status: Status,
    /// Hosts of other nodes that are registered at the root.
    nodes: Vec<String>,
    written: VecDeque<u64>,
    flushed: VecDeque<u64>,
}

impl Seen {
    /// Rates are of the time since the last look.
    fn look(&mut self, status: Status, nodes: Vec<String>) {
        let seconds = status.uptime_s - self.status.uptime_s;
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds.max(0.1)) as u64;
        // Another agent counts from nothing, and the first look has nothing before it.
        if self.status.agent_pid == status.agent_pid {
            let flushed = rate(status.counters.flushed_bytes, self.status.counters.flushed_bytes);
            keep(&mut self.written, rate(written(&status), written(&self.status)));
            keep(&mut self.flushed, flushed);
        }
        (self.status, self.nodes) = (status, nodes);
    }
}

fn keep(rates: &mut VecDeque<u64>, rate: u64) {
    rates.push_back(rate);
    if rates.len() > KEPT {
        rates.pop_front();
    }
}

/// Into files of tiers, and cells that are staged: what fills tiers.
fn written(status: &Status) -> u64 {
    status.tiers.iter().map(|tier| tier.written_bytes).sum()
}

/// Returns when the agent has ended, or the user wants no more.
pub fn watch(settings: &Settings) -> Result<()> {
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::new(format!("can't use this terminal: {error}")))?;
    let watched = watch_on(&mut terminal, settings);
    ratatui::restore();
    watched
}

fn watch_on(terminal: &mut ratatui::DefaultTerminal, settings: &Settings) -> Result<()> {
    let screen = |error: std::io::Error| Failure::new(format!("can't draw on this terminal: {error}"));
    let mut seen = Seen::default();
    loop {
        let Some((_, status)) = running(settings)? else { return Ok(()) };
        let nodes = crate::elsewhere::nodes(settings).into_iter().map(|node| node.host).collect();
        seen.look(status, nodes);
        let next = Instant::now() + EACH;
        loop {
            terminal.draw(|frame| draw(frame, &seen)).map_err(screen)?;
            let rest = next.saturating_duration_since(Instant::now());
            // A window that changes its size is drawn at once.
            if rest.is_zero() || !event::poll(rest).map_err(screen)? {
                break;
            }
            if let Event::Key(key) = event::read().map_err(screen)?
                && (matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
                    || (key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)))
            {
                return Ok(());
            }
        }
    }
}

fn draw(frame: &mut Frame<'_>, seen: &Seen) {
    let status = &seen.status;
    let wrong = wrong(status);
    let arrays = (status.containers.len() + status.forwards.len()) as u16;
    let [head, tiers, rates, counts, array_rows, runs, moving, wrong_rows, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(status.tiers.len() as u16),
        Constraint::Length(5),
        Constraint::Length(2),
        Constraint::Length(if arrays == 0 { 0 } else { (arrays + 1).min(10) }),
        Constraint::Length(status.runs.len().min(4) as u16),
        Constraint::Fill(1),
        Constraint::Length(wrong.len().min(6) as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let title =
        format!("terrace  {}  agent {}, {}", status.root.display(), status.agent_pid, show_seconds(status.uptime_s));
    frame.render_widget(Line::styled(title, bold), head);
    draw_tiers(frame, tiers, status);
    draw_rates(frame, rates, seen);
    let counters = &status.counters;
    let lines = vec![
        Line::from(format!(
            "to be flushed: {} files, {}; flushed {} ({}), evicted {}, prefetched {}, removed {}",
            status.unflushed_files,
            show_bytes(status.unflushed_bytes),
            counters.flushed_files,
            show_bytes(counters.flushed_bytes),
            counters.evicted_files,
            counters.prefetched_files,
            counters.removed_files
        )),
        Line::from(format!(
            "opens: {} in a faster tier, {} in the durable one; other nodes: {}",
            counters.opens_tier,
            counters.opens_durable,
            if seen.nodes.is_empty() { "none".into() } else { seen.nodes.join(", ") }
        )),
    ];
    frame.render_widget(Paragraph::new(lines), counts);
    draw_arrays(frame, array_rows, status);
    let line = |run: &terrace_core::control::RunStatus| {
        Line::from(format!("run {} for {}: {}", run.run, show_seconds(run.elapsed_s), run.command.join(" ")))
    };
    frame.render_widget(Paragraph::new(status.runs.iter().map(line).collect::<Vec<_>>()), runs);
    let files = status.moving.iter().take(moving.height as usize);
    let files: Vec<Line<'_>> = files.map(|path| Line::from(format!("moving: {}", path.display()))).collect();
    frame.render_widget(Paragraph::new(files), moving);
    frame.render_widget(Paragraph::new(wrong).style(Style::new().fg(Color::Red)), wrong_rows);
    frame.render_widget(Line::styled("q: quit", dim), foot);
}

fn draw_tiers(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let names = status.tiers.iter().map(|tier| tier.name.chars().count()).max().unwrap_or(0) as u16;
    for (tier, row) in status.tiers.iter().zip(area.rows()) {
        let [name, files, bar] =
            Layout::horizontal([Constraint::Length(names + 1), Constraint::Length(14), Constraint::Fill(1)]).areas(row);
        frame.render_widget(Line::from(tier.name.as_str()), name);
        frame.render_widget(Line::from(format!("{} files", tier.files)), files);
        if tier.durable {
            frame.render_widget(Line::from("durable"), bar);
            continue;
        }
        let ratio = (tier.used_bytes as f64 / tier.capacity_bytes.max(1) as f64).clamp(0.0, 1.0);
        let color = if ratio > 0.9 { Color::Yellow } else { Color::Green };
        let label = format!("{} of {}", show_bytes(tier.used_bytes), show_bytes(tier.capacity_bytes));
        frame.render_widget(Gauge::default().gauge_style(Style::new().fg(color)).ratio(ratio).label(label), bar);
    }
}

/// What programs write and what is flushed, each second, on one scale.
fn draw_rates(frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2).areas(area);
    let most = seen.written.iter().chain(&seen.flushed).copied().max().unwrap_or(0).max(1);
    for (what, rates, place, color) in
        [("written", &seen.written, left, Color::Cyan), ("flushed", &seen.flushed, right, Color::Magenta)]
    {
        let [title, chart] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(place);
        let now = rates.back().copied().unwrap_or(0);
        frame.render_widget(Line::from(format!("{what}: {}/s (most {}/s)", show_bytes(now), show_bytes(most))), title);
        let shown = rates.iter().skip(rates.len().saturating_sub(chart.width as usize)).copied();
        frame.render_widget(Sparkline::default().data(shown).max(most).style(Style::new().fg(color)), chart);
    }
}

fn draw_arrays(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let containers = status.containers.iter().map(|found| {
        let name = if found.container.is_empty() { "." } else { &found.container };
        let steps = found.steps.map_or("-".into(), |steps| steps.to_string());
        Row::new([
            name.to_owned(),
            format!("{} arrays", found.arrays),
            format!("{steps} steps"),
            show_bytes(found.staged_bytes),
        ])
    });
    let forwards = status.forwards.iter().map(|forward| {
        let name = format!("{} to {}", forward.container, forward.target);
        let rate = format!("{}/s", show_bytes(forward.bytes_s as u64));
        Row::new([name, forward.state.clone(), format!("{} behind", show_seconds(forward.lag_s)), rate])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(12), Constraint::Length(16), Constraint::Length(14)];
    let head = Row::new(["container", "", "", "staged"]).style(Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(Table::new(containers.chain(forwards), widths).header(head), area);
}

fn wrong(status: &Status) -> Vec<Line<'_>> {
    let failures =
        status.failures.iter().map(|failure| format!("failed: {}: {}", failure.path.display(), failure.reason));
    failures.chain(status.warnings.iter().map(|warning| format!("warning: {warning}"))).map(Line::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use terrace_core::control::{ContainerStatus, Counters, Failure, RunStatus, TierStatus};

    fn status(uptime_s: f64, flushed_bytes: u64) -> Status {
        let tier = |name: &str, durable| TierStatus {
            name: name.into(),
            capacity_bytes: 4096,
            used_bytes: 3072,
            files: 7,
            durable,
            ..Default::default()
        };
        Status {
            root: "/study".into(),
            agent_pid: 42,
            uptime_s,
            runs: vec![RunStatus { run: 1, pid: 43, command: vec!["make".into(), "-j4".into()], elapsed_s: 3.0 }],
            tiers: vec![tier("ram", false), tier("root", true)],
            counters: Counters { flushed_bytes, ..Default::default() },
            moving: (0..50).map(|number| format!("/study/{number}").into()).collect(),
            failures: vec![Failure { path: "/study/f".into(), reason: "no space".into() }],
            containers: vec![ContainerStatus {
                container: "wave".into(),
                arrays: 2,
                steps: Some(5),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn screen(seen: &Seen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, seen)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_shows_tiers_rates_runs_moves_and_what_is_wrong() {
        let mut seen = Seen::default();
        seen.look(status(10.0, 1 << 20), vec![]);
        seen.look(status(12.0, 5 << 20), vec!["nodeb".into()]);
        let shown = screen(&seen, 100, 30);
        for text in [
            "/study  agent 42",
            "3.0 KiB of 4.0 KiB",
            "flushed: 2.0 MiB/s",
            "other nodes: nodeb",
            "wave",
            "5 steps",
            "make -j4",
            "moving: /study/0",
            "failed: /study/f: no space",
            "q: quit",
        ] {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let mut seen = Seen::default();
        seen.look(status(10.0, 0), vec![]);
        for (width, height) in [(1, 1), (3, 40), (200, 2), (40, 12), (500, 200)] {
            screen(&seen, width, height);
        }
    }

    #[test]
    fn rates_begin_anew_with_another_agent() {
        let mut seen = Seen::default();
        seen.look(status(10.0, 1 << 30), vec![]);
        seen.look(Status { agent_pid: 50, ..status(1.0, 0) }, vec![]);
        assert!(seen.flushed.is_empty());
    }
}
