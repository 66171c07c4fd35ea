//! Discovery finds what the reference package finds.

use std::path::Path;

use faultscope_analysis::causal::{DiscoveryOptions, Method, discover};

use super::data::{large_folder, read_edges, read_observations, small_folder};

fn discovered_edges(folder: &Path, set: &str, rows: usize, method: Method) -> Vec<(String, String, f64)> {
    let observations = read_observations(folder, set).head(rows);
    let options = DiscoveryOptions { method, ..DiscoveryOptions::default() };
    let graph = discover(&observations, &options).unwrap().graph;
    let name = |at: usize| graph.nodes()[at].clone();
    let mut edges: Vec<(String, String, f64)> =
        graph.edges().iter().map(|edge| (name(edge.from), name(edge.to), edge.weight)).collect();
    edges.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    edges
}

fn check_against_reference(folder: &Path, set: &str, rows: usize) {
    let found = discovered_edges(folder, set, rows, Method::DirectLingam);
    let wanted = read_edges(folder, &format!("{set}.lingam{rows}.csv"));
    let names = |edges: &[(String, String, f64)]| -> Vec<(String, String)> {
        edges.iter().map(|(from, to, _)| (from.clone(), to.clone())).collect()
    };
    assert_eq!(names(&found), names(&wanted), "{set}, {rows} rows");
    for ((from, to, found), (.., wanted)) in found.iter().zip(&wanted) {
        assert!(
            (found - wanted).abs() <= 1e-6 * wanted.abs(),
            "{set}: {from} -> {to}: {found}, not {wanted}"
        );
    }
}

#[test]
fn edges_of_small_sets_are_those_of_the_reference() {
    for set in ["lin13_s1", "lin13_s2", "lin13_s3"] {
        [500, 2000].iter().for_each(|&rows| check_against_reference(&small_folder(), set, rows));
    }
}

#[test]
fn edges_of_larger_sets_are_those_of_the_reference() {
    if let Some(folder) = large_folder() {
        for set in ["lin43_s1", "lin43_s2", "lin43_s3", "lin100_s1", "lin100_s2"] {
            [500, 2000].iter().for_each(|&rows| check_against_reference(&folder, set, rows));
        }
    }
}
