//! scratch
use faultscope_search::simulate::{self, Durations, Oracle, simulate};
use faultscope_search::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string("../shared/data/dd-instances.jsonl").unwrap();
    let i = simulate::read(&text).unwrap().into_iter().find(|i| i.id == a[1]).unwrap();
    let p: usize = a[2].parse().unwrap();
    println!("{:?}", i.causes);
    let mut search = Bayes::new(Problem::new(i.n), BayesOptions { seed: i.seed, ..Default::default() });
    let run = simulate(&mut search, &Oracle::new(&i), Durations::Unit, p, a[3].parse().unwrap());
    println!("{run:?}");
}
