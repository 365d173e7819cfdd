//! The page that `terrace run --report FILE.html` writes: what the run's report says, and two pictures of it over time, in one file that
//! needs nothing else.
//!
//! ```text
//!   terrace run ─▶ standard input: report, its text, phases, moments ─▶ sentences, pictures (SVG), tables, the report's JSON
//! ```

use crate::plot::{TERRACE, with_font};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_tool::failure::{Failure, Result};

#[derive(Deserialize)]
struct Page {
    report: serde_json::Value,
    text: String,
    phases: Phases,
    moments: Vec<Moment>,
}

#[derive(Deserialize, Clone, Copy)]
struct Phases {
    program_from_s: f64,
    program_to_s: f64,
    flushed_s: f64,
}

#[derive(Deserialize, Clone, Copy)]
struct Moment {
    t_s: f64,
    written_tiers_bytes: u64,
    written_root_bytes: u64,
    flushed_bytes: u64,
    held_bytes: u64,
    unflushed_bytes: u64,
}

const SIZE: (u32, u32) = (1000, 300);
const FLUSHED: RGBColor = RGBColor(0x2c, 0x8a, 0x4b);
const ROOT: RGBColor = RGBColor(0x8a, 0x8f, 0x98);
const HELD: RGBColor = RGBColor(0xd9, 0x8c, 0x21);

/// From standard input.
pub fn write(file: &Path) -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::new(format!("can't read the run: {error}")))?;
    let page: Page = serde_json::from_str(&text)
        .map_err(|error| Failure::invalid(format!("this is no run of `terrace run --report FILE.html`: {error}")))?;
    std::fs::write(file, html(&page)?).map_err(|error| Failure::io("write", file, error))
}

fn html(page: &Page) -> Result<String> {
    let command = page.report["command"].as_array().into_iter().flatten();
    let command: Vec<&str> = command.filter_map(|word| word.as_str()).collect();
    let title = escaped(&command.join(" "));
    let said: Vec<&str> = page.text.lines().filter_map(|line| line.strip_prefix("terrace: ")).collect();
    let tables: Vec<&str> = page.text.lines().filter(|line| !line.starts_with("terrace: ")).collect();
    // What was gained and what would gain more stands first.
    let is_gain = |line: &&&str| line.contains("gain") || line.starts_with("hint: ");
    let gain: String = said.iter().filter(is_gain).map(|line| paragraph("gain", line)).collect();
    let others: String = said.iter().filter(|line| !is_gain(line)).map(|line| paragraph("", line)).collect();
    let pictures = match page.moments.len() {
        0 | 1 => paragraph("", "The run was too short to be looked at more than once."),
        _ => format!(
            "<h2>Bytes</h2>\n{}\n<h2>Bytes per second</h2>\n{}",
            picture(page, "since the run's start", &sums(page))?,
            picture(page, "over the time between two looks", &rates(page))?
        ),
    };
    // A report may have anything in its names.
    let json = serde_json::to_string_pretty(&page.report).expect("it was read as JSON").replace('<', "\\u003c");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1><code>{title}</code></h1>\n{gain}{others}{pictures}\n\
         <h2>Tiers</h2>\n<pre>{}</pre>\n<details><summary>The report as JSON</summary><pre id=\"shown\"></pre></details>\n\
         <script type=\"application/json\" id=\"report\">{json}</script>\n\
         <script>document.getElementById('shown').textContent = document.getElementById('report').textContent</script>\n</body></html>\n",
        escaped(&tables.join("\n"))
    ))
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1c1f23}\
h1{font-size:1.2rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:1.5rem 0 .3rem}.gain{font-size:1.1rem;font-weight:600}\
pre{overflow-x:auto;background:#f5f6f7;padding:.7rem;font-size:.85rem}svg{max-width:100%;height:auto}";

fn paragraph(class: &str, text: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name, its colour, and a value for each time.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

fn sums(page: &Page) -> Vec<Line> {
    let line = |of: fn(&Moment) -> u64| page.moments.iter().map(|moment| (moment.t_s, of(moment) as f64)).collect();
    vec![
        ("written to tiers", TERRACE, line(|moment| moment.written_tiers_bytes)),
        ("written to the root", ROOT, line(|moment| moment.written_root_bytes)),
        ("flushed", FLUSHED, line(|moment| moment.flushed_bytes)),
        ("held in tiers", HELD, line(|moment| moment.held_bytes)),
        ("not durable yet", RED, line(|moment| moment.unflushed_bytes)),
    ]
}

fn rates(page: &Page) -> Vec<Line> {
    let line = |of: fn(&Moment) -> u64| {
        let pairs = page.moments.windows(2);
        // A level between two looks.
        let steps = pairs.flat_map(|pair| {
            let seconds = (pair[1].t_s - pair[0].t_s).max(1e-3);
            let rate = of(&pair[1]).saturating_sub(of(&pair[0])) as f64 / seconds;
            [(pair[0].t_s, rate), (pair[1].t_s, rate)]
        });
        steps.collect()
    };
    vec![
        ("written to tiers", TERRACE, line(|moment| moment.written_tiers_bytes)),
        ("written to the root", ROOT, line(|moment| moment.written_root_bytes)),
        ("flushed", FLUSHED, line(|moment| moment.flushed_bytes)),
    ]
}

fn picture(page: &Page, of: &str, lines: &[Line]) -> Result<String> {
    with_font()?;
    let mut drawn = String::new();
    let area = SVGBackend::with_string(&mut drawn, SIZE).into_drawing_area();
    chart(area, page.phases, of, lines).map_err(|error| Failure::new(format!("the run can't be drawn: {error}")))?;
    Ok(drawn)
}

fn chart(
    area: DrawingArea<SVGBackend, Shift>,
    phases: Phases,
    of: &str,
    lines: &[Line],
) -> std::result::Result<(), String> {
    let text = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    area.fill(&WHITE).map_err(text)?;
    let values = || lines.iter().flat_map(|(_, _, values)| values);
    let highest = values().fold(1.0, |highest: f64, (_, value)| highest.max(*value)) * 1.3;
    let last_s = values().fold(phases.flushed_s, |last: f64, (t_s, _)| last.max(*t_s)).max(1e-3);
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..last_s, 0.0..highest)
        .map_err(text)?;
    // The program, and the wait for what was left.
    for (from, to, colour) in [
        (phases.program_from_s, phases.program_to_s, TERRACE.mix(0.06)),
        (phases.program_to_s, phases.flushed_s, RED.mix(0.08)),
    ] {
        chart.draw_series([Rectangle::new([(from, 0.0), (to, highest)], colour.filled())]).map_err(text)?;
    }
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_label_formatter(&|seconds| show_seconds(*seconds))
        .y_label_formatter(&|bytes| show_bytes(*bytes as u64))
        .x_desc(format!("{of}; blue: the program, red: the wait for the final flush"))
        .label_style(("sans-serif", 13))
        .draw()
        .map_err(text)?;
    for (name, colour, values) in lines.iter().filter(|(_, _, values)| values.iter().any(|(_, value)| *value > 0.0)) {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(values.iter().copied(), colour.stroke_width(2)))
            .map_err(text)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .draw()
        .map_err(text)?;
    area.present().map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_was_gained_first_and_nothing_in_it_is_taken_for_markup() {
        let moment = |t_s, written: u64| Moment {
            t_s,
            written_tiers_bytes: written,
            written_root_bytes: 0,
            flushed_bytes: written / 2,
            held_bytes: written,
            unflushed_bytes: written / 2,
        };
        let page = Page {
            report: serde_json::json!({ "command": ["sh", "-c", "</script><b>"] }),
            text: "terrace: the program ran\n  tier  files\nterrace: gained up to 3 s\n".into(),
            phases: Phases { program_from_s: 0.1, program_to_s: 2.0, flushed_s: 2.5 },
            moments: vec![moment(0.0, 0), moment(1.0, 1 << 20), moment(2.5, 1 << 21)],
        };
        let html = html(&page).unwrap();
        assert!(html.find("gained up to 3 s").unwrap() < html.find("the program ran").unwrap(), "{html}");
        assert_eq!((html.matches("<svg").count(), html.contains("<b>")), (2, false), "{html}");
        assert!(html.contains("flushed") && html.contains("&lt;/script&gt;"), "{html}");
        let rates = rates(&page);
        assert_eq!(rates[0].2[0], (0.0, (1 << 20) as f64));
    }
}
