//! scratch
use faultscope_search::simulate::{self, Durations, Oracle, simulate};
use faultscope_search::*;
use std::collections::BTreeMap;
fn log2c(n: usize, k: usize) -> f64 {
    (0..k).map(|i| ((n - i) as f64 / (k - i) as f64).log2()).sum()
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |key: &str, d: &str| {
        a.iter().find_map(|x| x.strip_prefix(&format!("{key}="))).unwrap_or(d).to_string()
    };
    let text = std::fs::read_to_string("../shared/data/dd-instances.jsonl").unwrap();
    let seed: u64 = get("seed", "0").parse().unwrap();
    let instances = if seed == 0 { simulate::read(&text).unwrap() } else { simulate::generate(seed, 20) };
    let anchor = std::fs::read_to_string("../shared/data/dd-anchor.csv").unwrap();
    let mut anc: BTreeMap<(String, usize, usize, usize, String), (f64, f64)> = BTreeMap::new();
    for l in anchor.lines().skip(1) {
        let f: Vec<&str> = l.split(',').collect();
        if f[0] == "ddminPar-fig" {
            anc.insert(
                (
                    f[1].into(),
                    f[2].parse().unwrap(),
                    f[3].parse().unwrap(),
                    f[4].parse().unwrap(),
                    f[5].into(),
                ),
                (f[7].parse().unwrap(), f[11].parse().unwrap()),
            );
        }
    }
    let g = |key: &str, d: f64| get(key, &d.to_string()).parse::<f64>().unwrap();
    let fams = get("fam", "mono,paper");
    let ps: Vec<usize> = get("p", "1,4,6,12").split(',').map(|x| x.parse().unwrap()).collect();
    let nmin: usize = get("nmin", "0").parse().unwrap();
    let nmax: usize = get("nmax", "2000").parse().unwrap();
    let kk = get("k", "1,2,4,8");
    let dur = get("d", "unit");
    let reps: u64 = get("reps", "1").parse().unwrap();
    let mut cells: BTreeMap<(String, usize, usize), Vec<&simulate::Instance>> = BTreeMap::new();
    for i in &instances {
        let f = i.family.to_string();
        if fams.split(',').any(|x| x == f)
            && i.n >= nmin
            && i.n <= nmax
            && kk.split(',').any(|k| k == i.k.to_string())
        {
            cells.entry((f, i.n, i.k)).or_default().push(i);
        }
    }
    let mut geo = (0.0, 0.0);
    let mut tot = (0.0, 0.0);
    for ((f, n, k), cell) in &cells {
        for &p in &ps {
            let (mut t, mut s, mut m, mut bad, mut tmax) = (0.0, 0.0, 0.0, 0, 0);
            let cl: u128 = 0;
            let _ = cl;
            let start = std::time::SystemTime::now();
            for i in cell {
                for rep in 0..reps {
                    let d = if dur == "unit" { Durations::Unit } else { Durations::Lognormal(i.seed + rep) };
                    let mut search = Bayes::new(
                        Problem::new(*n),
                        BayesOptions { seed: i.seed + rep, all: f == "multi", ..Default::default() },
                    );
                    let o = Oracle::new(i);
                    let run = simulate(&mut search, &o, d, p, g("cap", 400.0) as u32);
                    assert!(run.misconduct.is_none(), "{:?}", run.misconduct);
                    if !o.is_one_minimal(run.answer()) {
                        bad += 1;
                    }
                    if f == "multi" {
                        let mut c: Vec<Vec<usize>> =
                            run.standing.causes.iter().map(|c| c.core.iter().collect()).collect();
                        c.sort();
                        let mut w = i.causes.clone();
                        for x in &mut w {
                            x.sort();
                        }
                        w.sort();
                        if c != w || !run.standing.none_left {
                            bad += 1;
                        }
                    }
                    t += f64::from(run.finished);
                    s += f64::from(run.started);
                    m += run.makespan;
                    tmax = tmax.max(run.finished);
                }
            }
            let c = (cell.len() as u64 * reps) as f64;
            let us = start.elapsed().unwrap().as_secs_f64() * 1e6 / s;
            let (t, s, m) = (t / c, s / c, m / c);
            let l = log2c(*n, *k);
            let bound = if p == 1 {
                (if *k == 8 { 1.4 } else { 1.2 }) * l + (*k as f64) + 1.0
            } else {
                1.25 * l / p as f64 + 2.0
            };
            let (at, am) = anc
                .get(&(f.clone(), *n, *k, p, if dur == "unit" { "unit".into() } else { "lognormal".into() }))
                .copied()
                .unwrap_or((0.0, 0.0));
            let cap = if p == 1 || (*n <= 128 && *k <= 4) { bound } else { am * 0.5 };
            let flag =
                if dur == "unit" && f == "mono" && (if p == 1 { t } else { m }) > cap { "MISS" } else { "" };
            let flag2 = if m > 1.1 * am { "SLOW" } else { "" };
            let flag3 = if s > 1.3 * t { "WASTE" } else { "" };
            geo.0 += (am / m).ln();
            geo.1 += 1.0;
            tot.0 += s;
            tot.1 += t;
            println!(
                "{f:8}{n:5}{k:3} p{p:<3} L {l:5.1} trials {t:6.2} (max {tmax:3}) started {s:6.2} makespan {m:6.2} cap {cap:6.2} | ddminpar {at:6.1} {am:6.2} ratio {:.2} {flag} {flag2} {flag3} bad {bad} {us:.0}us",
                m / am
            );
        }
    }
    println!("geomean speedup {:.2} started/finished {:.2}", (geo.0 / geo.1 as f64).exp(), tot.0 / tot.1);
}
