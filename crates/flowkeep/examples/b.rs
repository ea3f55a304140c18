fn main() {
    let s = std::env::args().nth(1).unwrap();
    let mut o = flowkeep::bench::Options::default();
    if let Some(f) = std::env::args().nth(2) {
        o.flows = f.split(',').map(|x| x.parse().unwrap()).collect();
    }
    if let Some(r) = std::env::args().nth(3) {
        o.runs = r.parse().unwrap();
    }
    print!("{}", flowkeep::bench::run(&s, &o).unwrap().table());
}
