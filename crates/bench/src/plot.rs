//! A report as a picture: an SVG file with a bar for each case, those of one unit below each other.
//!
//! ```text
//!   chain, 10000 flows        ████████████|██├──┤   188.8
//!   baseline 150.2: × 1.26                ╎  the reference's median, dashed; a goal, in one piece
//! ```
//!
//! A bar is as long as the median, the line over its end goes from the smallest run to the largest.
//! Bars of one unit have one scale, which begins at 0.

use super::papers::Figures;
use super::report::Report;

/// Pixels: how wide all of it is.
const WIDTH: f64 = 1000.0;
/// Where bars begin.
const LEFT: f64 = 460.0;
/// How long the longest is.
const LONGEST: f64 = 450.0;
/// How high a row is.
const ROW: f64 = 36.0;

const STYLE: &str = "text{font:13px sans-serif}.head{font-size:16px}.grid{stroke:#ddd}.axis,.note{fill:#666;font-size:11px}\
    .axis{text-anchor:middle}.label,.note{text-anchor:end}.unit{font-weight:bold}.bar{fill:#4c78a8}\
    .runs{stroke:#222;stroke-width:1.5}.reference{stroke:#e45756;stroke-width:2;stroke-dasharray:4 2}\
    .goal{stroke:#54a24b;stroke-width:2}";

/// A row of the picture.
pub(crate) struct Bar {
    pub label: String,
    /// The text below the label: the reference of the comparison.
    pub note: String,
    pub unit: &'static str,
    pub median: f64,
    pub between: [f64; 2],
    pub reference: Option<f64>,
    pub goal: Option<f64>,
}

/// The picture of a scenario.
pub fn of(report: &Report) -> String {
    let bars = report.cases.iter().map(|case| Bar {
        label: match case.parameters.flows {
            0 => case.name.clone(),
            flows => format!("{}, {flows} flows", case.name),
        },
        note: case.reference.as_ref().map_or(String::new(), |other| {
            format!("{} {:.1}: × {:.2}", other.name, other.median, other.ratio)
        }),
        unit: case.unit,
        median: case.median,
        between: [case.min, case.max],
        reference: case.reference.as_ref().map(|other| other.median),
        goal: case.goal,
    });
    let bars: Vec<Bar> = bars.collect();
    draw(&report.command, report.machine.cpu_model.as_deref(), &bars)
}

/// The picture of the papers' figures. Theirs are words, below ours.
pub fn of_papers(figures: &Figures) -> String {
    draw("flowkeep bench papers", figures.processor(), &figures.bars())
}

/// The parts drawn so far, and where the next goes.
struct Picture {
    parts: String,
    y: f64,
}

fn draw(command: &str, processor: Option<&str>, bars: &[Bar]) -> String {
    let mut picture = Picture {
        parts: String::new(),
        y: 50.0,
    };
    let mut units: Vec<&str> = Vec::new();
    for bar in bars {
        if !units.contains(&bar.unit) {
            units.push(bar.unit);
            let of_unit: Vec<&Bar> = bars.iter().filter(|of| of.unit == bar.unit).collect();
            picture.section(bar.unit, &of_unit);
        }
    }
    let height = picture.y;
    picture.text(20.0, 26.0, "head", command);
    let words =
        "medians, from the smallest run to the largest; red: what it is compared with; green: the goal";
    let processor = processor.unwrap_or("unknown processor");
    picture.text(20.0, 46.0, "", &format!("{processor}; {words}"));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
        picture.parts
    )
}

impl Picture {
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        self.parts += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>\n");
    }

    fn line(&mut self, [x1, x2]: [f64; 2], [y1, y2]: [f64; 2], class: &str) {
        self.parts += &format!(
            "<line x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n"
        );
    }

    /// The bars of one unit, on one scale.
    fn section(&mut self, unit: &str, bars: &[&Bar]) {
        let marks = |bar: &&Bar| [Some(bar.median), Some(bar.between[1]), bar.reference, bar.goal];
        let all = bars.iter().flat_map(marks).flatten();
        let most = all
            .filter(|value| value.is_finite())
            .fold(f64::MIN_POSITIVE, f64::max);
        let (step, steps) = scale(most);
        let end = step * f64::from(steps);
        let x = |value: f64| LEFT + LONGEST * (value / end).clamp(0.0, 1.0);
        self.text(LEFT, self.y + 24.0, "unit", unit);
        self.y += 34.0;
        let bottom = self.y + ROW * bars.len() as f64;
        for value in (0..=steps).map(|number| step * f64::from(number)) {
            self.line([x(value); 2], [self.y, bottom], "grid");
            self.text(x(value), bottom + 14.0, "axis", &figure(value));
        }
        for bar in bars {
            self.bar(bar, x);
            self.y += ROW;
        }
        self.y += 26.0;
    }

    fn bar(&mut self, bar: &Bar, x: impl Fn(f64) -> f64) {
        let (y, end, [least, most]) = (self.y, x(bar.median), bar.between.map(&x));
        self.text(LEFT - 8.0, y + 15.0, "label", &bar.label);
        self.text(LEFT - 8.0, y + 29.0, "note", &bar.note);
        let width = end - LEFT;
        self.parts += &format!(
            "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"16\" class=\"bar\"/>\n",
            y + 7.0
        );
        self.line([least, most], [y + 15.0; 2], "runs");
        for end in [least, most] {
            self.line([end; 2], [y + 11.0, y + 19.0], "runs");
        }
        for (value, class) in [(bar.reference, "reference"), (bar.goal, "goal")] {
            if let Some(at) = value.map(&x) {
                self.line([at; 2], [y + 3.0, y + 27.0], class);
            }
        }
        self.text(most.max(end) + 8.0, y + 20.0, "", &figure(bar.median));
    }
}

/// The step of a scale up to a value, and how many: 1, 2 or 5 times a power of ten, at most five.
fn scale(most: f64) -> (f64, u32) {
    let least = most / 5.0;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .map(|of| of * power)
        .into_iter()
        .find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    // A value that is a step's multiple, but for the last bit, needs no further one.
    (step, (most / step - 1e-9).ceil().clamp(1.0, 5.0) as u32)
}

/// A number with three digits, or all of its whole part.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{value:.2}"),
        some if some < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_steps_and_room_for_all() {
        for (most, expected) in [
            (1.0, (0.2, 5)),
            (200.0, (50.0, 4)),
            (1244.0, (500.0, 3)),
            (99.0, (20.0, 5)),
            (0.0043, (0.001, 5)),
        ] {
            let (step, steps) = scale(most);
            assert!(
                (step - expected.0).abs() < 1e-9 && steps == expected.1,
                "{most}: {step}, {steps}"
            );
            assert!(step * f64::from(steps) >= most * (1.0 - 1e-9), "{most}");
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_figure_and_its_words_are_safe() {
        let bar = |label: &str, median: f64| Bar {
            label: label.to_owned(),
            note: String::new(),
            unit: "ns",
            median,
            between: [median, median],
            reference: Some(200.0),
            goal: None,
        };
        let drawn = draw("a & b", None, &[bar("<one>", 50.0), bar("two", 100.0)]);
        // 200, the reference, is 450 pixels.
        for part in [
            "width=\"112.5\"",
            "width=\"225.0\"",
            "x1=\"910.0\" x2=\"910.0\"",
            "&lt;one&gt;",
            "a &amp; b",
        ] {
            assert!(drawn.contains(part), "{part}\n{drawn}");
        }
        assert_eq!(drawn.matches("class=\"bar\"").count(), 2);
        assert_eq!(drawn.matches("class=\"unit\"").count(), 1);
    }
}
