//! Structural models on systems whose answers are known.

use faultscope_analysis::causal::{
    CausalError, CausalGraph, DiscoveryOptions, DropReason, Edge, FitOptions, Observations, Prior, Setting,
    Shape, StructuralModel, Sweep, discover,
};

/// Numbers from 0 to 1 that look random and are the same everywhere.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// users -> rate -> time, and users -> memory; `mood` influences nothing.
fn observe() -> (Observations, CausalGraph) {
    let mut draw = noise(17);
    let mut columns = vec![Vec::new(); 5];
    for _ in 0..400 {
        let users = (1.0 + 29.0 * draw()).round();
        let rate = 2.0 * users + draw() - 0.5;
        let time = 10.0 + 3.0 * rate + 4.0 * (draw() - 0.5);
        let memory = 50.0 + users + 2.0 * draw();
        [users, rate, time, memory, draw()]
            .into_iter()
            .zip(&mut columns)
            .for_each(|(value, column)| column.push(value));
    }
    let names: Vec<String> = ["users", "rate", "time", "memory", "mood"].map(str::to_owned).to_vec();
    let edge = |from, to| Edge { from, to, weight: 1.0 };
    let graph =
        CausalGraph::new(names.clone(), vec![edge(0, 1), edge(1, 2), edge(0, 3), edge(4, 2)]).unwrap();
    (Observations::new(names, columns).unwrap(), graph)
}

fn set(column: &str, value: f64) -> Setting {
    Setting { column: column.into(), value }
}

#[test]
fn interventions_follow_the_arrows_only() {
    let (observations, graph) = observe();
    let model = StructuralModel::fit(&observations, &graph, &FitOptions::default()).unwrap();
    let mean = |settings: &[Setting], node: &str| {
        model.intervene(settings, &[node.to_owned()]).unwrap().predictions[0].clone()
    };
    let time = mean(&[set("users", 20.0)], "time");
    assert!((time.mean - 130.0).abs() < 1.0, "{time:?}");
    assert!(time.mean_interval[0] <= time.mean && time.mean <= time.mean_interval[1]);
    assert!(time.observation_interval[1] - time.observation_interval[0] > 2.0);
    // Setting an effect leaves its cause alone.
    let [low, high] = [0.0, 500.0].map(|value| mean(&[set("time", value)], "users").mean);
    assert_eq!(low, high);
    // Setting the rate cuts it off from the users.
    assert!((mean(&[set("users", 30.0), set("rate", 10.0)], "time").mean - 40.0).abs() < 1.0);
    let beyond = model.intervene(&[set("users", 99.0)], &["time".to_owned()]).unwrap();
    assert_eq!(beyond.beyond_data, ["users"]);
    assert!(matches!(model.intervene(&[set("nobody", 1.0)], &[]), Err(CausalError::UnknownColumn(_))));
    assert!(matches!(model.intervene(&[set("users", f64::NAN)], &[]), Err(CausalError::BadQuery(_))));
}

#[test]
fn weak_arrows_are_cut_and_required_ones_stay() {
    let (observations, graph) = observe();
    let fit = |required: Vec<Prior>| {
        let options = FitOptions { cut: Some(0.1), required, ..FitOptions::default() };
        StructuralModel::fit(&observations, &graph, &options).unwrap()
    };
    let cut = fit(Vec::new());
    assert_eq!(cut.graph.edges().len(), 3);
    assert_eq!((cut.cut[0].from.as_str(), cut.cut[0].to.as_str()), ("mood", "time"));
    assert!(cut.arrows.iter().all(|arrow| arrow.share > 0.9), "{:?}", cut.arrows);
    assert!(cut.summarize().iter().all(|node| node.shape.is_none_or(|shape| shape == Shape::Linear)));
    let required = fit(vec![Prior::RequiredEdge { from: "mood".into(), to: "time".into() }]);
    assert_eq!(required.graph.edges().len(), 4);
}

#[test]
fn limits_are_where_the_mean_first_exceeds_the_threshold() {
    let (observations, graph) = observe();
    let model = StructuralModel::fit(&observations, &graph, &FitOptions::default()).unwrap();
    let sweep = Sweep { column: "users".into(), from: 1.0, to: 30.0, step: 1.0, held: Vec::new() };
    let limit = model.find_limit(&sweep, "time", 99.0).unwrap();
    assert_eq!(limit.limit, Some(15.0));
    let [low, high] = limit.interval.map(Option::unwrap);
    assert!(low <= 15.0 && high >= 15.0 && high - low <= 1.0, "{low} {high}");
    let none = model.find_limit(&sweep, "time", 500.0).unwrap();
    assert_eq!((none.limit, none.interval, none.curve.len()), (None, [None, None], 30));
    let endless = Sweep { step: 1e-9, ..sweep };
    assert!(matches!(model.find_limit(&endless, "time", 1.0), Err(CausalError::BadQuery(_))));
}

#[test]
fn models_from_outside_are_checked() {
    let (observations, graph) = observe();
    let model = StructuralModel::fit(&observations, &graph, &FitOptions::default()).unwrap();
    let text = serde_json::to_string(&model).unwrap();
    let spoil = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        serde_json::from_str::<StructuralModel>(&text.replacen(from, to, 1)).map(|model| model.check())
    };
    for (from, to) in [
        ("\"parents\":[0]", "\"parents\":[1]"),
        ("\"cause\":0", "\"cause\":7"),
        ("{\"format\":1,", "{\"format\":2,"),
        ("\"noise\":[", "\"noise\":[],\"rest\":["),
    ] {
        assert!(!matches!(spoil(from, to), Ok(Ok(()))), "{from} -> {to}");
    }
}

#[test]
fn the_order_of_columns_and_the_number_of_threads_change_nothing() {
    let (observations, _) = observe();
    let edges = |observations: &Observations| {
        let graph = discover(observations, &DiscoveryOptions::default()).unwrap().graph;
        let mut edges: Vec<(String, String, f64)> = graph
            .edges()
            .iter()
            .map(|edge| (graph.nodes()[edge.from].clone(), graph.nodes()[edge.to].clone(), edge.weight))
            .collect();
        edges.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        edges
    };
    let names: Vec<String> = observations.names().iter().rev().cloned().collect();
    let columns = observations.columns().iter().rev().cloned().collect();
    let (before, after) = (edges(&observations), edges(&Observations::new(names, columns).unwrap()));
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.0, &before.1), (&after.0, &after.1));
        assert!((before.2 - after.2).abs() < 1e-9 * before.2.abs());
    }
    let with_threads = |threads: usize| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| edges(&observations))
    };
    assert_eq!(with_threads(1), with_threads(3));
}

#[test]
fn constant_and_collinear_columns_are_reported_and_required_edges_kept() {
    let (observations, _) = observe();
    let mut names = observations.names().to_vec();
    let mut columns = observations.columns().to_vec();
    names.extend(["limit".to_owned(), "double".to_owned()]);
    columns.push(vec![512.0; 400]);
    columns.push(columns[0].iter().map(|users| 2.0 * users + 1.0).collect());
    let more = Observations::new(names, columns).unwrap();
    let priors = vec![
        Prior::Exogenous { column: "users".into() },
        Prior::RequiredEdge { from: "mood".into(), to: "memory".into() },
    ];
    let discovery = discover(&more, &DiscoveryOptions { priors, ..DiscoveryOptions::default() }).unwrap();
    let reasons: Vec<(&str, &DropReason)> =
        discovery.dropped.iter().map(|dropped| (dropped.column.as_str(), &dropped.reason)).collect();
    assert_eq!(
        reasons,
        [
            ("limit", &DropReason::Constant { value: 512.0 }),
            ("double", &DropReason::Collinear { with: vec!["users".into()] })
        ]
    );
    let place = |name: &str| discovery.graph.position(name).unwrap();
    let has = |from, to| {
        discovery.graph.edges().iter().any(|edge| (edge.from, edge.to) == (place(from), place(to)))
    };
    assert!(has("mood", "memory") && has("users", "rate") && !has("rate", "users"));
}
