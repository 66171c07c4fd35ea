//! `faultscope causal`: graphs and models of tables, and what they answer.

use std::path::Path;

use faultscope_analysis::causal::{
    Arrow, CausalError, CausalGraph, DiscoveryOptions, FitOptions, Prior, Setting, StructuralModel, Sweep,
    discover,
};
use faultscope_engine::causal::{
    DiscoveryReport, FileError, FileProblem, FitReport, Table, draw_dot, draw_svg, read_graph, read_model,
    read_priors, read_table,
};

use super::causal_args::{
    Assignment, CausalArgs, CausalCommand, DataArgs, DiscoverArgs, ExplainArgs, FitArgs, PictureArgs,
    QueryArgs,
};
use super::report::write;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render::causal as render;

/// Names of columns that a hint lists.
const LISTED: usize = 12;

pub(crate) fn run(args: &CausalArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match &args.command {
        CausalCommand::Discover(args) => run_discover(args, printer)?,
        CausalCommand::Fit(args) => run_fit(args, printer)?,
        CausalCommand::Query(args) => run_query(args, printer)?,
        CausalCommand::Explain(args) => run_explain(args, printer)?,
    }
    Ok(Exit::Done)
}

fn run_discover(args: &DiscoverArgs, printer: &Printer) -> Result<(), CommandError> {
    let (table, options) = read_data(&args.data)?;
    let discovery = discover(&table.observations, &options).map_err(|error| explain_error(error, &table))?;
    write_json(args.output.as_deref(), &discovery.graph, printer)?;
    write_pictures(&args.picture, &discovery.graph, &[], printer)?;
    let report = DiscoveryReport { skipped_rows: table.skipped_rows, discovery };
    if printer.json {
        return printer.result(&report);
    }
    render::print_discovery(&report.discovery, report.skipped_rows, printer);
    Ok(())
}

fn run_fit(args: &FitArgs, printer: &Printer) -> Result<(), CommandError> {
    let (table, options) = read_data(&args.data)?;
    let about = |error| explain_error(error, &table);
    let (graph, discovery) = match &args.graph {
        Some(file) => (read_graph(file)?, None),
        None => {
            let discovery = discover(&table.observations, &options).map_err(about)?;
            (discovery.graph.clone(), Some(discovery))
        }
    };
    let fit = FitOptions {
        cut: args.cut,
        required: options.priors,
        categories: args.categories.clone(),
        seed: args.data.seed,
    };
    let model = StructuralModel::fit(&table.observations, &graph, &fit).map_err(about)?;
    write_json(args.output.as_deref(), &model, printer)?;
    write_pictures(&args.picture, &model.graph, &model.arrows, printer)?;
    let report = FitReport::new(&model, discovery, table.skipped_rows);
    if printer.json {
        return printer.result(&report);
    }
    render::print_fit(&report, printer);
    if args.output.is_none() {
        printer.talk("--output model.json keeps the model for `faultscope causal query` and `explain`");
    }
    Ok(())
}

fn run_query(args: &QueryArgs, printer: &Printer) -> Result<(), CommandError> {
    let model = read_model(&args.model)?;
    let set = settings(&args.set);
    let Some((sweep, threshold)) = args.sweep.as_ref().zip(args.above) else {
        let is_set = |name: &&String| set.iter().any(|setting| setting.column == **name);
        let targets = match args.target.is_empty() {
            true => model.graph.nodes().iter().filter(|name| !is_set(name)).cloned().collect(),
            false => args.target.clone(),
        };
        let answer = model.intervene(&set, &targets).map_err(|error| explain_query_error(error, &model))?;
        if printer.json {
            return printer.result(&answer);
        }
        render::print_intervention(&answer, printer);
        return Ok(());
    };
    let sweep =
        Sweep { column: sweep.column.clone(), from: sweep.from, to: sweep.to, step: sweep.step, held: set };
    let about = |error| explain_query_error(error, &model);
    let answer = model.sweep(&sweep).map_err(about)?;
    let mut limits = Vec::new();
    for target in &args.target {
        let place = model.graph.position(target).map_err(about)?;
        limits.push(answer.limit(place, target, threshold));
    }
    if printer.json {
        return printer.result(&limits);
    }
    limits.iter().for_each(|limit| render::print_limit(limit, sweep.to, printer));
    Ok(())
}

fn run_explain(args: &ExplainArgs, printer: &Printer) -> Result<(), CommandError> {
    let model = read_model(&args.model)?;
    let answer = match args.from.is_empty() {
        true => model.explain(&args.target),
        false => model.explain_change(&args.target, &settings(&args.from), &settings(&args.to)),
    };
    let answer = answer.map_err(|error| explain_query_error(error, &model))?;
    write_pictures(&args.picture, &model.graph, &model.arrows, printer)?;
    if printer.json {
        return printer.result(&answer);
    }
    render::print_explanation(&answer, printer);
    Ok(())
}

/// The table, and how its graph is found.
fn read_data(args: &DataArgs) -> Result<(Table, DiscoveryOptions), CommandError> {
    let table = read_table(&args.data, &args.table_options())?;
    let mut priors: Vec<Prior> = args.priors();
    if let Some(file) = &args.prior {
        priors.extend(read_priors(file, table.observations.names())?);
    }
    let options = DiscoveryOptions { method: args.method(), priors, seed: args.seed };
    Ok((table, options))
}

fn settings(assignments: &[Assignment]) -> Vec<Setting> {
    assignments.iter().map(|Assignment(setting)| setting.clone()).collect()
}

fn write_json(
    file: Option<&Path>,
    value: &impl serde::Serialize,
    printer: &Printer,
) -> Result<(), CommandError> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string(value)
        .map_err(|error| CommandError::internal("the result cannot be written as JSON").because(error))?;
    write(file, &text)?;
    printer.talk(format!("written: {}", file.display()));
    Ok(())
}

fn write_pictures(
    args: &PictureArgs,
    graph: &CausalGraph,
    arrows: &[Arrow],
    printer: &Printer,
) -> Result<(), CommandError> {
    let files = [(&args.svg, draw_svg as fn(&CausalGraph, &[Arrow]) -> String), (&args.dot, draw_dot)];
    for (file, draw) in files {
        if let Some(file) = file {
            write(file, draw(graph, arrows))?;
            printer.talk(format!("written: {}", file.display()));
        }
    }
    Ok(())
}

fn explain_error(error: CausalError, table: &Table) -> CommandError {
    let hint = match &error {
        CausalError::UnknownColumn(_) => Some(list_columns(table.observations.names())),
        CausalError::TooFewRows { .. } => Some("choose fewer columns with --columns or --without".into()),
        CausalError::CyclicPrior(_) => {
            Some("`--no-path a->b` puts b before a; `--forbid a->b` excludes the edge only".into())
        }
        _ => None,
    };
    CommandError { hint, ..CommandError::usage(error.to_string()) }
}

fn explain_query_error(error: CausalError, model: &StructuralModel) -> CommandError {
    let hint = matches!(error, CausalError::UnknownColumn(_)).then(|| list_columns(model.graph.nodes()));
    CommandError { hint, ..CommandError::usage(error.to_string()) }
}

fn list_columns(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let listed = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { format!("columns: {listed}") } else { format!("columns: {listed} and {more} more") }
}

impl From<FileError> for CommandError {
    fn from(error: FileError) -> Self {
        let hint = match &*error.problem {
            FileProblem::MissingValue { .. } => Some("--missing skip leaves such rows out"),
            FileProblem::NotANumber { .. } => Some("--without NAME leaves a column out"),
            FileProblem::NotJson { expected: "model", .. } => {
                Some("`faultscope causal fit DATA --output model.json` writes one")
            }
            FileProblem::NotJson { .. } => {
                Some("`faultscope causal discover DATA --output graph.json` writes one")
            }
            _ => None,
        };
        let message = format!("cannot use {}", error.path.display());
        Self { hint: hint.map(str::to_owned), ..Self::usage(message).because(error.problem) }
    }
}
