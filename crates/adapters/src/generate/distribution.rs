//! Distributions to draw flow sizes, lifetimes and ranks from.
//!
//! Two table formats of published traffic studies are read as they are:
//!
//! - *CDF text*: a value and a probability on each line, between blanks or commas, the
//!   probabilities to 1 or to 100. Between two lines values are equally likely (linear
//!   interpolation, as the tools that these tables come with do).
//! - *Mixtures* in JSON (Jurkiewicz, Rzym, Borylo, "Flow length and size distributions in campus
//!   Internet traffic", Computer Communications 167, 2021):
//!   `"mix": [[weight, "lognorm", [shape, loc, scale]], …]`, with SciPy's names and parameters.
//!
//! ```text
//!   0     0        a draw of 0.075 lies half way between the first two lines: 5000
//!   10000 0.15
//!   20000 0.2
//! ```
//!
//! Both describe continuous values. A flow has whole packets and bytes, so users of a draw round
//! up: a study's "flows of at most n packets" then has the distribution's value at n.
//!
//! Not here: which quantity is drawn ([`super::profile::Life`]).

use super::profile::ProfileError;
use super::random::Random;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

/// A distribution, as written in a profile.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Always this value.
    Fixed(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Pareto: the chance of more than x is (least / x) to the power of the shape. Below a shape of
    /// 1 the mean is infinite.
    Pareto {
        /// The tail's exponent.
        shape: f64,
        /// The smallest value.
        least: f64,
    },
    /// Equally likely between the two.
    Uniform(f64, f64),
    /// Points of a CDF: value and probability to 1, both rising.
    Cdf(Vec<(f64, f64)>),
    /// A file with a table: `*.json` holds a mixture, any other a CDF.
    File(String),
}

/// A distribution ready to draw from.
#[derive(Clone, Debug)]
pub enum Sampler {
    /// One value.
    Fixed(f64),
    /// By mean.
    Exponential(f64),
    /// Shape and smallest value.
    Pareto(f64, f64),
    /// From, to.
    Uniform(f64, f64),
    /// Values and cumulative probabilities from 0 to 1.
    Cdf(Vec<(f64, f64)>),
    /// Cumulative weights and components.
    Mixture(Vec<(f64, Component)>),
}

/// A component of a mixture.
#[derive(Clone, Copy, Debug)]
pub enum Component {
    /// From, width.
    Uniform(f64, f64),
    /// Deviation of the logarithm, shift, median.
    Lognormal(f64, f64, f64),
}

impl Distribution {
    /// Reads tables and checks parameters. `at` is the setting's path, for complaints.
    pub fn compile(&self, at: &str) -> Result<Sampler, ProfileError> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let sampler = match self {
            Distribution::Fixed(value) if positive(*value) => Sampler::Fixed(*value),
            Distribution::Exponential(mean) if positive(*mean) => Sampler::Exponential(*mean),
            Distribution::Pareto { shape, least } if positive(*shape) && positive(*least) => {
                Sampler::Pareto(*shape, *least)
            }
            Distribution::Uniform(from, to) if *from >= 0.0 && to >= from && to.is_finite() => {
                Sampler::Uniform(*from, *to)
            }
            Distribution::Cdf(points) => return cdf(at, points.clone()),
            Distribution::File(path) => return read(at, Path::new(path)),
            _ => {
                return Err(ProfileError::new(
                    at,
                    "its parameters make no distribution",
                    "write finite numbers above zero; a uniform one from small to large",
                ));
            }
        };
        Ok(sampler)
    }
}

fn read(at: &str, path: &Path) -> Result<Sampler, ProfileError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ProfileError::new(
            at,
            format!("{} cannot be read ({error})", path.display()),
            "name a file with a CDF (value and probability on each line) or a mixture (*.json)",
        )
    })?;
    if path.extension().is_some_and(|e| e == "json") {
        mixture(at, &text)
    } else {
        cdf_text(at, &text)
    }
}

/// Reads a CDF text: see the module's page.
pub fn cdf_text(at: &str, text: &str) -> Result<Sampler, ProfileError> {
    let mut points = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split([' ', '\t', ',']).filter(|w| !w.is_empty());
        let Some(value) = words.next() else { continue };
        if value.starts_with('#') {
            continue;
        }
        // A third column would be something else's format.
        let pair = (value.parse(), words.next().map(str::parse), words.next());
        let (Ok(value), Some(Ok(chance)), None) = pair else {
            return Err(ProfileError::new(
                at,
                format!(
                    "line {} of the table is not a value and a probability",
                    number + 1
                ),
                "write two numbers on each line, like `10000 0.15`",
            ));
        };
        points.push((value, chance));
    }
    cdf(at, points)
}

fn cdf(at: &str, mut points: Vec<(f64, f64)>) -> Result<Sampler, ProfileError> {
    let whole = points.last().map_or(0.0, |p| p.1);
    let rising = points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1);
    let first = points.first().map_or(0.0, |p| p.0.min(p.1));
    let complete = (whole - 1.0).abs() < 1e-6 || (whole - 100.0).abs() < 1e-4;
    if !rising || !complete || first < 0.0 || points.iter().any(|p| !p.0.is_finite()) {
        return Err(ProfileError::new(
            at,
            "the table is no CDF",
            "let values and probabilities rise from 0 or more, the last probability being 1 (or 100)",
        ));
    }
    points.iter_mut().for_each(|p| p.1 /= whole);
    Ok(Sampler::Cdf(points))
}

#[derive(Deserialize)]
struct MixtureFile {
    mix: Vec<(f64, String, Vec<f64>)>,
}

/// Reads a mixture: see the module's page.
pub fn mixture(at: &str, text: &str) -> Result<Sampler, ProfileError> {
    let refuse = |problem: String| {
        ProfileError::new(
            at,
            problem,
            "write {\"mix\": [[weight, \"lognorm\", [shape, 0, scale]], [weight, \"uniform\", [from, width]]]}",
        )
    };
    let file: MixtureFile = serde_json::from_str(text).map_err(|e| refuse(format!("no mixture ({e})")))?;
    let whole: f64 = file.mix.iter().map(|c| c.0).sum();
    let mut below = 0.0;
    let mut components = Vec::new();
    for (weight, name, parameters) in &file.mix {
        let component = match (name.as_str(), &parameters[..]) {
            ("uniform", &[from, width]) if width >= 0.0 => Component::Uniform(from, width),
            ("lognorm", &[shape, shift, scale]) if shape > 0.0 && scale > 0.0 => {
                Component::Lognormal(shape, shift, scale)
            }
            _ => return Err(refuse(format!("`{name}` with {parameters:?} is not known here"))),
        };
        if weight.is_nan() || *weight < 0.0 {
            return Err(refuse(format!("a weight of {weight}")));
        }
        below += weight / whole;
        components.push((below, component));
    }
    if !below.is_finite() || components.is_empty() {
        return Err(refuse("no weights".to_string()));
    }
    Ok(Sampler::Mixture(components))
}

impl Sampler {
    /// Draws a value.
    pub fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Sampler::Fixed(value) => *value,
            Sampler::Exponential(mean) => mean * random.exponential(),
            Sampler::Pareto(shape, least) => least * random.unit_above_zero().powf(-1.0 / shape),
            Sampler::Uniform(from, to) => from + (to - from) * random.unit(),
            Sampler::Cdf(points) => invert(points, random.unit_above_zero()),
            Sampler::Mixture(components) => {
                let u = random.unit();
                let index = components.partition_point(|c| c.0 <= u).min(components.len() - 1);
                match components[index].1 {
                    Component::Uniform(from, width) => from + width * random.unit_above_zero(),
                    Component::Lognormal(shape, shift, scale) => {
                        shift + scale * (shape * random.normal()).exp()
                    }
                }
            }
        }
    }

    /// Draws a whole number of packets or bytes: rounded up, at least 1.
    pub fn draw_whole(&self, random: &mut Random) -> u64 {
        // More than this outlives any run; the bound keeps sums of it in range.
        self.draw(random).ceil().clamp(1.0, 1e15) as u64
    }
}

fn invert(points: &[(f64, f64)], u: f64) -> f64 {
    let behind = points.partition_point(|p| p.1 < u).min(points.len() - 1);
    let (value, chance) = points[behind];
    let Some((before, below)) = behind.checked_sub(1).map(|i| points[i]) else {
        return value;
    };
    if chance <= below {
        return value;
    }
    before + (value - before) * (u - below) / (chance - below)
}

/// Draws indices in proportion to weights, in constant time (Walker's alias method as Vose builds
/// it, 1991).
pub struct Alias {
    entries: Vec<(u32, u32)>,
}

impl Alias {
    /// A table over as many indices as there are weights; at least one must be above zero.
    pub fn new(weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights.iter().map(|w| w / sum * weights.len() as f64).collect();
        let mut entries = vec![(u32::MAX, 0u32); weights.len()];
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|i| scaled[*i] < 1.0);
        while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
            entries[less] = ((scaled[less] * f64::from(u32::MAX)) as u32, more as u32);
            scaled[more] -= 1.0 - scaled[less];
            if scaled[more] < 1.0 {
                small.push(more)
            } else {
                large.push(more)
            }
        }
        // Each remaining share is 1 but for rounding, and always stands for itself.
        for index in small.into_iter().chain(large) {
            entries[index] = (u32::MAX, index as u32);
        }
        Alias { entries }
    }

    /// The table of Zipf's law: index i has weight 1 / (i + 1)^s.
    pub fn zipf(count: u32, s: f64) -> Self {
        let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-s)).collect();
        Alias::new(&weights)
    }

    /// Draws an index.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        let bits = random.bits();
        let index = (((bits >> 32) * self.entries.len() as u64) >> 32) as usize;
        let (threshold, other) = self.entries[index];
        if bits as u32 <= threshold {
            index as u32
        } else {
            other
        }
    }
}
