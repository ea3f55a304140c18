//! Draws follow the distributions asked for, and generated flows the published ones.

use super::*;

#[test]
fn alias_draws_in_proportion() {
    let weights = [0.0, 1.0, 5.0, 0.5, 3.5];
    let alias = Alias::new(&weights);
    let mut random = Random::new(3);
    let mut counts = [0.0; 5];
    (0..100_000).for_each(|_| counts[alias.draw(&mut random) as usize] += 1.0);
    for (count, weight) in counts.iter().zip(weights) {
        assert!(
            (count - weight * 10_000.0).abs() <= 4.0 * f64::sqrt(weight * 10_000.0),
            "{counts:?}"
        );
    }
}

/// Share of draws at or below each point, in percent.
fn shares(sampler: &Sampler, points: &[f64]) -> Vec<f64> {
    let mut random = Random::new(11);
    let mut counts = vec![0.0; points.len()];
    let draws = 400_000;
    for _ in 0..draws {
        let value = sampler.draw_whole(&mut random) as f64;
        for (count, point) in counts.iter_mut().zip(points) {
            *count += f64::from(u8::from(value <= *point));
        }
    }
    counts.iter().map(|c| 100.0 * c / f64::from(draws)).collect()
}

fn assert_within(shares: &[f64], expected: &[f64], points: f64, what: &str) {
    for (share, expected) in shares.iter().zip(expected) {
        assert!(
            (share - expected).abs() < points,
            "{what}: {share} instead of {expected}"
        );
    }
}

#[test]
fn distributions_have_their_quantiles() {
    let compile = |d: Distribution| d.compile("life").unwrap();
    let exponential = compile(Distribution::Exponential(1000.0));
    assert_within(
        &shares(&exponential, &[693.0, 2303.0]),
        &[50.0, 90.0],
        0.3,
        "exponential",
    );
    let pareto = compile(Distribution::Pareto {
        shape: 1.5,
        least: 1000.0,
    });
    assert_within(&shares(&pareto, &[1587.0, 4642.0]), &[50.0, 90.0], 0.3, "Pareto");
    let uniform = compile(Distribution::Uniform(1000.0, 3000.0));
    assert_within(
        &shares(&uniform, &[1500.0, 3000.0]),
        &[25.0, 100.0],
        0.3,
        "uniform",
    );
    let table = cdf_text(
        "life",
        "# value, percent\n0 0\n\n10000, 15\n20000\t20\n20000 60\n30000 100\n",
    )
    .unwrap();
    assert_within(
        &shares(&table, &[5000.0, 10_000.0, 19_999.0, 20_000.0, 25_000.0]),
        &[7.5, 15.0, 20.0, 60.0, 80.0],
        0.3,
        "CDF",
    );
    let mixed = r#"{"sum": 9, "mix": [[0.5, "uniform", [0, 2]], [0.5, "lognorm", [1.0, 0, 100.0]]]}"#;
    let mixed = mixture("life", mixed).unwrap();
    assert_within(
        &shares(&mixed, &[1.0, 2.0, 100.0]),
        &[25.0, 50.0, 75.0],
        0.3,
        "mixture",
    );
}

#[test]
fn published_tables_are_reproduced() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    let mut tables = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let name = path.display().to_string();
        let sampler = Distribution::File(name.clone()).compile("life").unwrap();
        // The expectation is read apart from the code under test: the first two numbers of each
        // line.
        let mut expected: BTreeMap<u64, f64> = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let numbers: Vec<f64> = line.split_whitespace().map(|w| w.parse().unwrap()).collect();
            let _ = expected.insert(numbers[0] as u64, numbers[1]);
        }
        let whole = expected.values().copied().fold(0.0, f64::max);
        // A flow has at least one byte or packet, so what lies at 0 cannot be asked for.
        expected.remove(&0);
        let points: Vec<f64> = expected.keys().map(|v| *v as f64).collect();
        let percent: Vec<f64> = expected.values().map(|p| 100.0 * p / whole).collect();
        assert_within(&shares(&sampler, &points), &percent, 0.5, &name);
        tables += 1;
    }
    assert!(tables > 0);
}

/// The normal distribution (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn normal_cdf(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - normal_cdf(-x);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * x);
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    1.0 - (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * poly
}

/// The value of a file's mixture at a point, in percent.
fn mixture_cdf(text: &str, x: f64) -> f64 {
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let (mut sum, mut whole) = (0.0, 0.0);
    for component in file["mix"].as_array().unwrap() {
        let number = |v: &serde_json::Value| v.as_f64().unwrap();
        let (weight, p) = (number(&component[0]), &component[2]);
        let below = match component[1].as_str().unwrap() {
            "uniform" => ((x - number(&p[0])) / number(&p[1])).clamp(0.0, 1.0),
            _ => normal_cdf(((x - number(&p[1])) / number(&p[2])).ln() / number(&p[0])),
        };
        sum += weight * below;
        whole += weight;
    }
    100.0 * sum / whole
}

#[test]
fn the_campus_network_is_reproduced() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    // README of the data: flows of at most so many packets or bytes, in percent, over all traffic.
    let published: [(&str, &[(f64, f64)]); 2] = [
        (
            "length",
            &[
                (1.0, 47.8326),
                (2.0, 65.3421),
                (4.0, 74.8933),
                (8.0, 84.1319),
                (10.0, 86.5086),
                (100.0, 97.3478),
                (1000.0, 99.4544),
                (10_000.0, 99.8922),
            ],
        ),
        (
            "size",
            &[
                (64.0, 4.3082),
                (128.0, 32.3376),
                (256.0, 56.8711),
                (512.0, 71.1101),
                (1024.0, 79.0397),
                (1500.0, 82.6085),
                (4096.0, 89.7285),
                (10_000.0, 94.0991),
                (100_000.0, 98.4030),
            ],
        ),
    ];
    for (quantity, points) in published {
        let at: Vec<f64> = points.iter().map(|p| p.0).collect();
        let mut all = vec![0.0; at.len()];
        for (protocol, share) in [("tcp", 53.85), ("udp", 43.09)] {
            let path = folder.join(format!("agh_2015/{protocol}_{quantity}_flows.json"));
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.display().to_string();
            let got = shares(&Distribution::File(name.clone()).compile("life").unwrap(), &at);
            let expected: Vec<f64> = at.iter().map(|x| mixture_cdf(&text, *x)).collect();
            assert_within(&got, &expected, 0.5, &name);
            for (sum, got) in all.iter_mut().zip(&got) {
                *sum += got * share / (53.85 + 43.09);
            }
        }
        // The study's mixtures are themselves up to 1.5 points away from its summary (which also
        // counts the 3 % of flows that are neither TCP nor UDP): draws from them cannot be nearer.
        let expected: Vec<f64> = points.iter().map(|p| p.1).collect();
        assert_within(&all, &expected, 1.6, quantity);
    }
}

#[test]
fn generated_flows_have_the_campus_lengths() {
    let Some(folder) = shared_data("flow-size") else {
        return;
    };
    let file = folder
        .join("agh_2015/udp_length_flows.json")
        .display()
        .to_string();
    let text = std::fs::read_to_string(&file).unwrap();
    let class = Class {
        tcp: 0.0,
        life: Life::Packets(Distribution::File(file)),
        ..Class::default()
    };
    let profile = Profile {
        flows: 400,
        shares_of: SharesOf::NewFlows,
        // Each flow's packets all at once in virtual time, so that long ones do not crowd the run's
        // end.
        rate: Rate::PerFlow(1e6),
        ..limited(600_000)
    };
    let mut lengths: HashMap<FlowKey, u64> = HashMap::new();
    let packets = seen(&with_class(profile, class));
    let mut begun = Vec::new();
    for packet in &packets {
        let length = lengths.entry(packet.key).or_insert(0);
        if *length == 0 {
            begun.push(packet.key);
        }
        *length += 1;
    }
    // Flows from the run's first third have ended by its end, but for giants.
    begun.truncate(begun.len() / 3);
    assert!(begun.len() > 10_000, "{}", begun.len());
    for at in [1, 2, 4, 8, 100] {
        let got = begun.iter().filter(|k| lengths[k] <= at).count() as f64 / begun.len() as f64 * 100.0;
        let expected = mixture_cdf(&text, at as f64);
        assert!(
            (got - expected).abs() < 1.5,
            "at most {at} packets: {got} instead of {expected}"
        );
    }
}
