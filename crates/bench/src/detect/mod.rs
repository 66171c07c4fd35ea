//! `bench detect`: detectors on labelled series, scored by the rules of the Numenta Anomaly Benchmark.

mod corpus;
mod score;

use faultscope_analysis::detect::{
    Adaptive, AdaptiveOptions, Detector, EXPLORING_RISK, FixedThreshold, MeanShift, Monitor, MonitorOptions,
    Reading, SigmaLimit,
};

use crate::args::DetectArgs;
use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::random::Random;
use crate::report::Table;
use crate::usage;
use corpus::{LabelledSeries, read_corpus};
use score::{Profile, Tally};

/// Points above the paper's sigma limit.
const GOAL_ABOVE: f64 = 35.0;
/// Points on the whole benchmark, and the windows that tell that it is the whole.
const GOAL_WHOLE: f64 = 45.0;
const WHOLE: usize = 116;
/// Values per second and core.
const GOAL_SPEED: f64 = 200_000.0;
/// Values for measuring the speed.
const SPEED_VALUES: usize = 400_000;
/// The seed that chose the half of the shared files on which constants were tuned.
const TUNING_SEED: u64 = 1;

/// A detector with one setting for all series.
struct Contender {
    name: &'static str,
    build: fn() -> Monitor,
}

const EXPLORING: usize = 0;
const SIGMA_GROUPED: usize = 2;

/// The detectors that are compared; the paper's sigma limit as it is, and with the same grouping as ours.
const CONTENDERS: [Contender; 4] = [
    Contender { name: "adaptive, with new patterns", build: || adaptive(Some(EXPLORING_RISK)) },
    Contender { name: "adaptive, as `watch` uses it", build: || adaptive(None) },
    Contender {
        name: "sigma limit 5, window 50, one alarm per incident",
        build: || sigma(MonitorOptions::default()),
    },
    Contender {
        name: "sigma limit 5, window 50, every signal",
        build: || sigma(MonitorOptions { quiet_values: 0, quiet_us: 0 }),
    },
];

fn adaptive(pattern_risk: Option<f64>) -> Monitor {
    let options = AdaptiveOptions { pattern_risk, ..AdaptiveOptions::default() };
    Monitor::new(Detector::Adaptive(Box::new(Adaptive::new(options))), MonitorOptions::default())
}

fn sigma(options: MonitorOptions) -> Monitor {
    Monitor::new(Detector::SigmaLimit(SigmaLimit::new(5.0, 50, 1_000_000)), options)
}

pub(crate) fn run(args: &DetectArgs, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    if let Some(folder) = &args.data {
        let corpus = read_corpus(folder)?;
        host.talk(format!("{} labelled series", corpus.len()));
        score_corpus(&corpus, &mut measured);
    } else {
        measured.notes.push("no labelled series: --data FOLDER".to_owned());
    }
    measured.figures.extend(measure_speed(seed));
    Ok(measured)
}

fn score_corpus(corpus: &[LabelledSeries], measured: &mut Measured) {
    let alarms: Vec<Vec<Vec<usize>>> = CONTENDERS
        .iter()
        .map(|contender| corpus.iter().map(|series| find_alarms(contender, series)).collect())
        .collect();
    let total =
        |contender: usize, profile: Profile, is_in: &dyn Fn(usize) -> bool| {
            let chosen = corpus.iter().zip(&alarms[contender]).enumerate().filter(|(place, _)| is_in(*place));
            Tally::total(chosen.map(|(_, (series, alarms))| {
                Tally::score(profile, series.values.len(), &series.windows, alarms)
            }))
        };
    let standard = |contender, is_in: &dyn Fn(usize) -> bool| total(contender, Profile::STANDARD, is_in);
    let all = |_: usize| true;
    let (ours, paper) = (standard(EXPLORING, &all), standard(SIGMA_GROUPED, &all));
    let (Some(our_score), Some(paper_score)) = (ours.normalised(), paper.normalised()) else {
        measured.notes.push("no series has a labelled anomaly, so there is no score".to_owned());
        return;
    };
    let detail = format!("{} of {} anomalies, {} false alarms", ours.found, ours.windows, ours.false_alarms);
    let figure = Figure::higher("NAB standard profile", our_score, "points").detail(detail);
    measured.figures.push(if ours.windows == WHOLE { figure.goal(GOAL_WHOLE) } else { figure });
    measured.figures.push(
        Figure::higher("above the paper's sigma limit", our_score - paper_score, "points")
            .goal(GOAL_ABOVE)
            .peer("sigma limit", paper_score),
    );
    let tuned = Random::new(TUNING_SEED).choose(corpus.len() / 2, corpus.len());
    let halves: [(&str, &dyn Fn(usize) -> bool); 2] = [
        ("half for tuning", &|place| tuned.contains(&place)),
        ("other half", &|place| !tuned.contains(&place)),
    ];
    for (name, is_in) in halves {
        if let (Some(ours), Some(paper)) =
            (standard(EXPLORING, is_in).normalised(), standard(SIGMA_GROUPED, is_in).normalised())
        {
            measured.figures.push(Figure::higher(name, ours, "points").peer("sigma limit", paper));
        }
    }
    measured.notes.push(format!("halves are drawn from the seed {TUNING_SEED}; see the table of series"));
    let mut table =
        Table::new("Detectors", ["detector", "profile", "points", "found", "false alarms", "precision"]);
    for (place, contender) in CONTENDERS.iter().enumerate() {
        for profile in Profile::ALL {
            let tally = total(place, profile, &all);
            table.rows.push(vec![
                contender.name.to_owned(),
                profile.name.to_owned(),
                tally.normalised().map_or_else(String::new, |points| format!("{points:.1}")),
                format!("{} of {}", tally.found, tally.windows),
                tally.false_alarms.to_string(),
                tally.precision().map_or_else(String::new, |share| format!("{share:.2}")),
            ]);
        }
    }
    measured.tables.push(table);
    let head = [
        "series",
        "half",
        "values",
        "anomalies",
        "found",
        "false alarms",
        "sigma limit found",
        "false alarms",
    ];
    let mut table = Table::new("Series, standard profile", head);
    for (place, series) in corpus.iter().enumerate() {
        let (ours, paper) =
            (standard(EXPLORING, &|at| at == place), standard(SIGMA_GROUPED, &|at| at == place));
        table.rows.push(vec![
            series.name.clone(),
            if tuned.contains(&place) { "tuning" } else { "other" }.to_owned(),
            series.values.len().to_string(),
            ours.windows.to_string(),
            ours.found.to_string(),
            ours.false_alarms.to_string(),
            paper.found.to_string(),
            paper.false_alarms.to_string(),
        ]);
    }
    measured.tables.push(table);
}

fn find_alarms(contender: &Contender, series: &LabelledSeries) -> Vec<usize> {
    let mut monitor = (contender.build)();
    let readings = series.values.iter().map(|(at_us, value)| Reading { at_us: *at_us, value: *value });
    let alarms = readings.enumerate().filter_map(|(place, reading)| monitor.observe(reading).map(|_| place));
    alarms.collect()
}

/// Values per second of CPU time, for each detector on a noisy season.
fn measure_speed(seed: u64) -> Vec<Figure> {
    let mut random = Random::new(seed);
    let season = |place: usize| (place as f64 / 500.0).sin();
    let values: Vec<f64> = (0..SPEED_VALUES).map(|place| 10.0 + season(place) + random.normal()).collect();
    type Make = fn() -> Monitor;
    let detectors: [(&str, Make); 5] = [
        ("adaptive", || adaptive(None)),
        ("adaptive, with new patterns", || adaptive(Some(EXPLORING_RISK))),
        ("sigma limit", || sigma(MonitorOptions::default())),
        ("fixed threshold", || {
            let detector = Detector::FixedThreshold(FixedThreshold::new(12.0, 5, 1_000_000));
            Monitor::new(detector, MonitorOptions::default())
        }),
        ("mean shift", || {
            Monitor::new(Detector::MeanShift(MeanShift::new(1.0, 1000)), MonitorOptions::default())
        }),
    ];
    let measure = |(name, build): &(&str, fn() -> Monitor)| {
        let mut monitor = build();
        let begin = usage::own_thread();
        let mut alarms = 0_usize;
        for (place, value) in values.iter().enumerate() {
            let reading = Reading { at_us: 1_000_000 * place as u64, value: *value };
            alarms += usize::from(monitor.observe(reading).is_some());
        }
        let spent = usage::own_thread().saturating_sub(begin).as_secs_f64().max(1e-6);
        Figure::higher(format!("{name}: values"), SPEED_VALUES as f64 / spent, "1/CPU s")
            .goal(GOAL_SPEED)
            .detail(format!("{alarms} alarms"))
    };
    detectors.iter().map(measure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use score::Window;

    #[test]
    fn a_corpus_is_scored_and_compared() {
        let values = |at: u64| if (700..720).contains(&at) { 50.0 } else { 10.0 + (at % 7) as f64 };
        let series = |name: &str| LabelledSeries {
            name: name.to_owned(),
            values: (0..1000).map(|at| (at * 300_000_000, values(at))).collect(),
            windows: vec![Window { first: 690, last: 790 }],
        };
        let mut measured = Measured::default();
        score_corpus(&[series("a"), series("b")], &mut measured);
        let score = &measured.figures[0];
        assert!(score.measured.unwrap() > 90.0, "{score:?}");
        assert_eq!(measured.tables[1].rows.len(), 2);
        assert_eq!(measured.tables[0].rows.len(), CONTENDERS.len() * Profile::ALL.len());
    }

    #[test]
    fn without_anomalies_there_is_a_note_instead_of_a_score() {
        let series = LabelledSeries { name: "a".into(), values: vec![(0, 1.0); 10], windows: vec![] };
        let mut measured = Measured::default();
        score_corpus(&[series], &mut measured);
        assert!(measured.figures.is_empty() && measured.notes[0].contains("no score"));
    }
}
