//! The paper's Table 1 on simulated actors, and the harder variants:
//! `bench_resilience [topologies=FILE] [repeats=10] [seed=N]`. Without a file, systems are generated.
#![allow(clippy::print_stdout, reason = "it is a program")]

use faultscope_search::resilience::bench::{Strategy, TABLE_1, Variant, rows};
use faultscope_search::resilience::simulate::System;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let seed: u64 = get("seed").unwrap_or("1").parse()?;
    let repeats: u64 = get("repeats").unwrap_or("10").parse()?;
    let systems = match get("topologies") {
        Some(file) => System::read(&std::fs::read_to_string(file)?)?,
        None => System::ten(seed),
    };
    println!("perturbations     variant         strategy                   mean median  most  right | paper");
    rows(&systems, repeats, seed, |row| {
        let paper = TABLE_1.get(row.system).filter(|_| row.variant == Variant::Paper);
        let paper = paper.and_then(|paper| match row.strategy {
            Strategy::RtR => Some(paper.rt_r),
            Strategy::RtDd => Some(paper.rt_dd),
            Strategy::RtDdO => Some(paper.rt_dd_o),
            Strategy::Default => None,
        });
        println!(
            "{:5} {:10} {:15} {:24} {:6.1} {:6.1} {:5} {:5.0}% | {}",
            row.perturbations,
            row.kind,
            row.variant,
            row.strategy,
            row.mean,
            row.median,
            row.most,
            100.0 * row.right,
            paper.map_or(String::new(), |mean| mean.to_string()),
        );
    });
    Ok(())
}
