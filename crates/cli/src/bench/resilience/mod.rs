//! `bench resilience`: the paper's Table 1 and Figure 9 on real actors, and the harder variants.

mod replay;
mod runner;
mod services;
mod tables;

use faultscope_model::figures::{Better, Figure, FigureTable};
use faultscope_search::resilience::bench::{
    Answer, Ask, Framework, Row, Run, Strategy, Task, Variant, cells,
};
use faultscope_search::resilience::simulate::{Mutant, System};
use runner::Runners;
use tokio::time::Instant;

use crate::bench::{BenchArgs, lower};
use crate::error::CommandError;
use crate::printer::Printer;

/// How many systems the paper's table has; a file may hold more.
const SYSTEMS: usize = 10;

/// What the whole Table 1 may take, in seconds.
const TABLE_WITHIN: f64 = 300.0;

/// What all systems are measured for.
struct Plan {
    sound: Vec<Mutant>,
    repeats: u64,
    seed: u64,
}

pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
    notes: &mut Vec<String>,
    tables: &mut Vec<FigureTable>,
) -> Result<Vec<Figure>, CommandError> {
    let systems = systems(args)?;
    let program = if args.simulated { None } else { Some(runner::find(args.actors.as_deref())?) };
    let runners = Runners::start(&systems, program, crate::campaign::interrupted()).await?;
    let from = match &args.topologies {
        Some(file) => format!("systems of {}", file.display()),
        None => format!("systems drawn from seed {}", args.seed),
    };
    notes.push(format!("{from}; defects at actors 5, 25 and 45, {} searches each", args.repeats));
    notes.push(match &runners.program {
        Some(program) => format!("real actors: {}", program.display()),
        None => "simulated actors: real ones without --simulated".into(),
    });
    let sound = systems.into_iter().map(Mutant::new).collect();
    let plan = Plan { sound, repeats: args.repeats, seed: args.seed };
    let mut figures = Vec::new();
    for framework in runners.frameworks() {
        let name = framework.map_or("simulated".to_owned(), |framework| framework.to_string());
        figures.extend(plan.of(framework, &name, &runners, printer, tables).await?);
    }
    if args.live {
        let (more, table) = services::run(args, printer).await?;
        figures.extend(more);
        tables.push(table);
    }
    Ok(figures)
}

/// The systems of a file, or drawn from the seed.
fn systems(args: &BenchArgs) -> Result<Vec<System>, CommandError> {
    let Some(file) = &args.topologies else {
        return Ok(System::ten(args.seed));
    };
    let wrong = |cause: String| {
        CommandError::usage(format!("{} holds no systems", file.display()))
            .because(cause)
            .hint("a JSON list of {\"kind\": \"dup\" or \"restart\", \"adj\": {\"0\": [1, 2], \"1\": [2]}}, 50 actors")
    };
    let mut systems = System::read(&super::debug::read(file)?).map_err(|error| wrong(error.to_string()))?;
    systems.truncate(SYSTEMS);
    if systems.is_empty() {
        return Err(wrong("it is empty".into()));
    }
    Ok(systems)
}

impl Plan {
    /// Everything on one framework.
    async fn of(
        &self,
        framework: Option<Framework>,
        name: &str,
        runners: &Runners,
        printer: &Printer,
        tables: &mut Vec<FigureTable>,
    ) -> Result<Vec<Figure>, CommandError> {
        let began = Instant::now();
        let what = format!("Table 1, {name}");
        let (rows, found) = self.rows(|v| v == Variant::Paper, framework, &what, runners, printer).await?;
        let took = began.elapsed().as_secs_f64();
        let mut figures = tables::paper(name, &rows);
        figures.push(lower(&format!("{name}: whole Table 1"), took, "s", TABLE_WITHIN));
        tables.push(tables::table_1(name, &rows));
        let harder = format!("harder variants, {name}");
        let (more, _) = self.rows(|v| v != Variant::Paper, framework, &harder, runners, printer).await?;
        figures.extend(tables::harder(name, &more));
        tables.push(tables::variants(name, &more));
        let (figure, table) = self.figure_9(framework, name, runners, printer).await?;
        figures.extend(figure);
        tables.push(table);
        if let (Some(program), Some(framework), Some((task, cause))) = (&runners.program, framework, found) {
            printer.talk(format!("replays, {name}"));
            figures.push(replay::run(program, framework, &self.sound, &task, cause).await?);
        }
        Ok(figures)
    }

    /// The rows of these variants, and a defect that the default found.
    async fn rows(
        &self,
        wanted: impl Fn(Variant) -> bool,
        framework: Option<Framework>,
        what: &str,
        runners: &Runners,
        printer: &Printer,
    ) -> Result<(Vec<Row>, Option<replay::Found>), CommandError> {
        let mut parts: Vec<(usize, Variant, Strategy, Vec<Task>)> = Vec::new();
        for (number, sound) in self.sound.iter().enumerate() {
            for (variant, strategy) in cells(sound.system().kind) {
                if wanted(variant) {
                    let tasks = Task::of_cell(number, variant, strategy, self.repeats, self.seed);
                    parts.push((number, variant, strategy, tasks));
                }
            }
        }
        let ask = |task: &Task| Ask::Search(framework.unwrap_or(Framework::Ractor), *task);
        let asks: Vec<Ask> = parts.iter().flat_map(|(.., tasks)| tasks.iter().map(ask)).collect();
        let mut runs = runners.ask(what, &asks, printer).await?.into_iter().map(searched);
        let (mut rows, mut found) = (Vec::new(), None);
        for (number, variant, strategy, tasks) in parts {
            let of_cell: Vec<Run> = runs.by_ref().take(tasks.len()).collect::<Result<_, _>>()?;
            if (variant, strategy) == (Variant::Paper, Strategy::Default) {
                let right = tasks.iter().zip(&of_cell).find(|(_, run)| run.right);
                found = right.and_then(|(task, run)| Some((*task, run.found.first()?.clone()))).or(found);
            }
            rows.push(Row::new(number, &self.sound[number], variant, strategy, &of_cell));
        }
        Ok((rows, found))
    }

    /// What one run takes, by how many perturbations it has: a system of each kind, the largest.
    async fn figure_9(
        &self,
        framework: Option<Framework>,
        name: &str,
        runners: &Runners,
        printer: &Printer,
    ) -> Result<(Vec<Figure>, FigureTable), CommandError> {
        let mut table = FigureTable {
            title: format!(
                "Figure 9, {name}: one run by its perturbations (the paper: up to 13 min for restarts)"
            ),
            head: ["kind", "perturbations", "median of 5", "longest"].map(str::to_owned).to_vec(),
            rows: Vec::new(),
        };
        let mut figures = Vec::new();
        let size = |number: usize| self.sound[number].targets.candidates.len();
        let mut largest: Vec<usize> = Vec::new();
        for (number, sound) in self.sound.iter().enumerate() {
            match largest.iter_mut().find(|other| self.sound[**other].system().kind == sound.system().kind) {
                None => largest.push(number),
                Some(other) if size(*other) < size(number) => *other = number,
                Some(_) => {}
            }
        }
        for number in largest {
            let (kind, all) = (self.sound[number].system().kind, size(number));
            printer.talk(format!("Figure 9, {name}: {kind}"));
            for count in [0, all / 4, all / 2, all * 3 / 4, all] {
                let mut times = Vec::new();
                for _ in 0..5 {
                    let ask = Ask::Time(framework.unwrap_or(Framework::Ractor), number, count);
                    match runners.ask_alone(&ask).await? {
                        Answer::Time(seconds, true) => times.push(seconds),
                        other => return Err(strange(&other)),
                    }
                }
                let middle = super::median(&mut times);
                let longest = times.last().copied().unwrap_or(f64::NAN);
                let ms = |seconds: f64| format!("{:.1} ms", seconds * 1000.0);
                table.rows.push(vec![kind.to_string(), count.to_string(), ms(middle), ms(longest)]);
                if count == all {
                    let what = format!("{name}: one run with {all} perturbations ({kind})");
                    figures.push(lower(&what, longest, "s", 1.0));
                }
            }
        }
        Ok((figures, table))
    }
}

fn searched(answer: Answer) -> Result<Run, CommandError> {
    match answer {
        Answer::Search(run) => Ok(run),
        other => Err(strange(&other)),
    }
}

fn strange(answer: &Answer) -> CommandError {
    CommandError::internal("the bench was answered something else than it asked")
        .because(format!("{answer:?}"))
}

/// Of so many, all.
fn all_of(name: &str, value: usize, wanted: usize) -> Figure {
    Figure::new(name, value as f64, &format!("of {wanted}"), Better::Higher).goal(wanted as f64)
}
