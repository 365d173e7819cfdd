//! The picture of a sweep: the closed form with and without the page cache as bands, the simulation as points on a line. SVG or PNG, by the file's name.
//!
//! The font is a part of the program: what a machine has installed must not decide whether a picture has letters.

use crate::answer::{Answer, Simulated};
use crate::sweep::{Point, Sweep};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use terrace_core::size::show_seconds;
use terrace_model::Times;
use terrace_tool::failure::{Failure, Result};

const SIZE: (u32, u32) = (1000, 620);
const ALONE: RGBColor = RGBColor(0x8a, 0x8f, 0x98);
pub const TERRACE: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

/// Refuses a name whose format is not known, before anything is computed.
pub fn check(file: &Path) -> Result<()> {
    match extension(file) {
        Some("png" | "svg") => Ok(()),
        _ => Err(Failure::bad_input(
            format!("--plot {}: the name does not tell a format", file.display()),
            "end it in .png or .svg",
        )),
    }
}

fn extension(file: &Path) -> Option<&str> {
    file.extension().and_then(|extension| extension.to_str())
}

pub fn draw(file: &Path, sweep: &Sweep, points: &[Point]) -> Result<()> {
    with_font()?;
    let failed = |error: String| Failure::io("draw", file, error);
    // The backends write on drop and hide why they could not: make sure of the file first.
    std::fs::File::create(file).map_err(|error| Failure::io("write", file, error))?;
    match extension(file) {
        Some("svg") => chart(SVGBackend::new(file, SIZE).into_drawing_area(), sweep, points).map_err(failed),
        _ => chart(BitMapBackend::new(file, SIZE).into_drawing_area(), sweep, points).map_err(failed),
    }
}

/// What letters are made of.
pub fn with_font() -> Result<()> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| Failure::new("the picture's font can't be read"))
}

/// A way's name, colour, bounds and simulated time.
type Series = (&'static str, RGBColor, fn(&Answer) -> Times, fn(&Simulated) -> f64);

const SERIES: [Series; 2] = [
    (
        "durable tier alone",
        ALONE,
        |answer| answer.closed_form.durable_alone,
        |simulated| simulated.durable_alone.median_s,
    ),
    ("with Terrace", TERRACE, |answer| answer.closed_form.terrace, |simulated| simulated.terrace.median_s),
];

fn chart<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    sweep: &Sweep,
    points: &[Point],
) -> std::result::Result<(), String> {
    let text = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
    area.fill(&WHITE).map_err(text)?;
    let highest_s = points
        .iter()
        .flat_map(|point| {
            SERIES.map(|(_, _, bounds, simulated)| {
                bounds(&point.answer).without_page_cache_s.max(point.answer.simulation.as_ref().map_or(0.0, simulated))
            })
        })
        .fold(0.0, f64::max)
        .max(1e-9);
    // Places, not values: a range that doubles is then even, and a list may be in any order.
    let last = (points.len().max(2) - 1) as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Predicted time over {}", sweep.name()), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(80)
        .build_cartesian_2d(-0.05 * last..1.05 * last, 0.0..highest_s * 1.08)
        .map_err(text)?;
    let label = |x: &f64| {
        let place = x.round();
        let near = (x - place).abs() < 1e-6 && place >= 0.0;
        let point = near.then(|| points.get(place as usize)).flatten();
        point.map_or(String::new(), |point| sweep.show(point.value))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(points.len().min(16) * 2 + 1)
        .x_label_formatter(&label)
        .y_label_formatter(&|seconds| show_seconds(*seconds))
        .x_desc(sweep.name())
        .y_desc("time")
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .draw()
        .map_err(text)?;
    for (name, colour, bounds, simulated) in SERIES {
        let at = |of: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
            points.iter().enumerate().map(|(place, point)| (place as f64, of(point))).collect()
        };
        let upper = at(&|point| bounds(&point.answer).without_page_cache_s);
        let mut band = upper.clone();
        band.extend(at(&|point| bounds(&point.answer).with_page_cache_s).into_iter().rev());
        chart.draw_series([Polygon::new(band, colour.mix(0.22))]).map_err(text)?;
        chart
            .draw_series(LineSeries::new(upper, colour.stroke_width(1)))
            .map_err(text)?
            .label(format!("{name}: closed form, with and without page cache"))
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.35).filled()));
        let line: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter_map(|(place, point)| Some((place as f64, simulated(point.answer.simulation.as_ref()?))))
            .collect();
        if !line.is_empty() {
            chart.draw_series(line.iter().map(|&at| Circle::new(at, 4, colour.filled()))).map_err(text)?;
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)))
                .map_err(text)?
                .label(format!("{name}: simulated"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .draw()
        .map_err(text)?;
    area.present().map_err(text)
}
