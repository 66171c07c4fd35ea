//! AI: two calls that followed one another are made at the same time. The second still uses what the first returns,
//! and finds nothing unless the first happens to be faster; MEPFL, section 4.1 and Figure 4.

use tree_sitter::Node;

use super::scope;
use crate::edit::Edit;
use crate::imports::{self, Import};
use crate::language::Language;
use crate::mutant::Draft;
use crate::operator::Operator;
use crate::outline::{CallStatement, Function, call_statements, is_call_out, words};
use crate::source::Source;
use crate::walk::{children, find_all};

pub(super) fn drafts(source: &Source<'_>, functions: &[Function<'_>], drafts: &mut Vec<Draft>) {
    // Functions of this file that call other services make their callers do so, too.
    let calls_out = |function: &&Function<'_>| is_call_out(source.text_of(function.body));
    let last_name = |function: &Function<'_>| words(&function.name).last().map(str::to_owned);
    let callers: Vec<String> = functions.iter().filter(calls_out).filter_map(last_name).collect();
    for function in functions {
        let mut push = |at: Node<'_>, variant, edits| {
            drafts.push(Draft {
                operator: Operator::ConcurrentCalls,
                variant,
                at: at.start_byte(),
                within: function.name.clone(),
                service: None,
                anchor: source.text_of(at).to_owned(),
                scope: scope(function),
                edits,
            });
        };
        if source.language == Language::Go {
            for (statement, edits) in go_pairs(source, function, &callers) {
                push(statement, Some("independent"), edits);
            }
            continue;
        }
        for group in call_statements(source, function, &callers) {
            for pair in group.windows(2) {
                let [first, second] = pair else { continue };
                if !can_overlap(source, function, first, second) {
                    continue;
                }
                let depends = first.variable.as_deref().is_some_and(|name| uses(source, second.node, name));
                if let Some(edits) = overlap(source, function, first, second, depends) {
                    push(first.node, Some(if depends { "dependent" } else { "independent" }), edits);
                }
            }
        }
    }
}

fn mentions(text: &str, name: &str) -> bool {
    words(text).any(|word| word == name)
}

/// Whether code uses a variable; its name in an address does not count.
fn uses(source: &Source<'_>, node: Node<'_>, name: &str) -> bool {
    let names = find_all(node, &["identifier", "shorthand_property_identifier"]);
    names.into_iter().any(|node| source.text_of(node) == name)
}

fn can_overlap(
    source: &Source<'_>,
    function: &Function<'_>,
    first: &CallStatement<'_>,
    second: &CallStatement<'_>,
) -> bool {
    let between = source.text.get(first.node.end_byte()..second.node.start_byte()).unwrap_or_default();
    let body = source.text_of(function.body);
    let is_clear = first.variable.as_deref().is_none_or(|name| {
        let is_global =
            [format!("global {name}"), format!("nonlocal {name}")].iter().any(|text| body.contains(text));
        !mentions(between, name) && !uses(source, first.call, name) && !is_global
    });
    is_clear
        && first.is_awaited == second.is_awaited
        && first.is_awaited == function.is_async
        && source.starts_line(first.node.start_byte())
}

fn overlap(
    source: &Source<'_>,
    function: &Function<'_>,
    first: &CallStatement<'_>,
    second: &CallStatement<'_>,
    depends: bool,
) -> Option<Vec<Edit>> {
    let (mut start, end, imports) = match source.language {
        Language::Python => python(source, first),
        Language::JavaScript | Language::TypeScript | Language::Tsx if first.is_awaited => {
            script(source, first)
        }
        Language::Java if is_final(source, function, first.call) => java(source, first, depends),
        _ => return None,
    };
    let mut edits = imports::resolve(source, &mut start, &imports);
    let between = format!("{}{}", source.newline(), source.indent(first.node.start_byte()));
    edits.push(Edit::replace(first.node.byte_range(), start.join(&between)));
    edits.push(Edit::insert(second.node.end_byte(), format!("{between}{end}")));
    Some(edits)
}

type Parts = (Vec<String>, String, Vec<Import>);

fn python(source: &Source<'_>, first: &CallStatement<'_>) -> Parts {
    let unit = source.indent_unit();
    let call = source.text_of(first.call);
    let (define, wait) = if first.is_awaited { ("async def", "await ") } else { ("def", "") };
    let mut lines = Vec::new();
    lines.extend(first.variable.as_ref().map(|name| format!("{name} = None")));
    lines.push(format!("{define} injected_call():"));
    lines.extend(first.variable.as_ref().map(|name| format!("{unit}nonlocal {name}")));
    let target = first.variable.as_ref().map_or_else(String::new, |name| format!("{name} = "));
    lines.push(format!("{unit}{target}{wait}{call}"));
    if first.is_awaited {
        lines.push("injected_task = {asyncio}.ensure_future(injected_call())".into());
        return (lines, "await injected_task".into(), vec![Import("asyncio")]);
    }
    lines.push("injected_thread = {threading}.Thread(target=injected_call)".into());
    lines.push("injected_thread.start()".into());
    (lines, "injected_thread.join()".into(), vec![Import("threading")])
}

fn script(source: &Source<'_>, first: &CallStatement<'_>) -> Parts {
    let call = source.text_of(first.call);
    let kind = if source.language == Language::JavaScript { "" } else { ": any" };
    let mut lines = Vec::new();
    lines.extend(first.variable.as_ref().map(|name| format!("let {name}{kind};")));
    let target = first.variable.as_ref().map_or_else(String::new, |name| format!("{name} = "));
    lines.push(format!("const injectedCall = (async () => {{ {target}await {call}; }})();"));
    (lines, "await injectedCall;".into(), Vec::new())
}

fn java(source: &Source<'_>, first: &CallStatement<'_>, depends: bool) -> Parts {
    const FUTURE: &str = "java.util.concurrent.CompletableFuture";
    let call = source.text_of(first.call);
    let Some(name) = &first.variable else {
        let start = format!("{FUTURE}<Void> injectedCall = {FUTURE}.runAsync(() -> {call});");
        return (vec![start], "injectedCall.join();".into(), Vec::new());
    };
    let kind = first.declared_type.as_deref().unwrap_or("var");
    let future = match kind {
        "var" => "var".to_owned(),
        _ => format!("{FUTURE}<{}>", boxed(kind)),
    };
    let start = format!("{future} injectedCall = {FUTURE}.supplyAsync(() -> {call});");
    match depends {
        true => {
            let early = format!("{kind} {name} = injectedCall.getNow(null);");
            (vec![start, early], "injectedCall.join();".into(), Vec::new())
        }
        false => (vec![start], format!("{kind} {name} = injectedCall.join();"), Vec::new()),
    }
}

fn boxed(kind: &str) -> &str {
    match kind {
        "int" => "Integer",
        "long" => "Long",
        "double" => "Double",
        "boolean" => "Boolean",
        other => other,
    }
}

/// Whether a lambda may use what a call uses: none of it is assigned a second time.
fn is_final(source: &Source<'_>, function: &Function<'_>, call: Node<'_>) -> bool {
    let assigned = find_all(function.body, &["assignment_expression", "update_expression"]);
    let targets: Vec<&str> =
        assigned.into_iter().flat_map(|node| words(source.text_of(node)).take(1)).collect();
    find_all(call, &["identifier"]).into_iter().all(|node| !targets.contains(&source.text_of(node)))
}

/// Arguments of a call that can be started on its own. Each count needs a helper of its own.
const MAX_GO_ARGUMENTS: usize = 5;

/// Pairs of calls in Go. The first is started, the second made, and then the first waited for, with its check of the
/// error. Go knows no type that could stand for a result that is not there, so the second must not use the first.
fn go_pairs<'t>(
    source: &Source<'_>,
    function: &Function<'t>,
    callers: &[String],
) -> Vec<(Node<'t>, Vec<Edit>)> {
    let mut pairs = Vec::new();
    for list in function.find_own(source, &["statement_list"]) {
        let statements = children(list);
        let calls: Vec<(usize, usize, Node<'t>)> = (0..statements.len())
            .filter_map(|at| {
                let call = go_call(source, statements[at]).filter(|call| {
                    let text = source.text_of(*call);
                    let callee = text.split('(').next().unwrap_or_default();
                    is_call_out(text)
                        || words(callee).last().is_some_and(|name| callers.iter().any(|c| c == name))
                })?;
                let checks = statements.get(at + 1).is_some_and(|next| {
                    next.kind() == "if_statement" && source.text_of(*next).starts_with("if err")
                });
                Some((at, at + usize::from(checks && declares_error(source, statements[at])), call))
            })
            .collect();
        for window in calls.windows(2) {
            let [(first, first_end, call), (second, second_end, _)] = *window else { continue };
            if first_end + 1 != second {
                continue;
            }
            let rest = source.text.get(statements[second].start_byte()..statements[second_end].end_byte());
            let range = statements[first].start_byte()..statements[first_end].end_byte();
            let Some(edits) = go_overlap(
                source,
                statements[first],
                call,
                range,
                rest.unwrap_or_default(),
                statements[second_end].end_byte(),
            ) else {
                continue;
            };
            pairs.push((statements[first], edits));
        }
    }
    pairs
}

fn declares_error(source: &Source<'_>, statement: Node<'_>) -> bool {
    words(source.field(statement, "left")).any(|name| name == "err")
}

fn go_call<'t>(source: &Source<'_>, statement: Node<'t>) -> Option<Node<'t>> {
    let call = match statement.kind() {
        "expression_statement" => children(statement).into_iter().next()?,
        "short_var_declaration" => {
            let first = words(source.field(statement, "left")).next()?;
            let call = children(statement.child_by_field_name("right")?).into_iter().next()?;
            (!matches!(first, "_" | "err")).then_some(call)?
        }
        _ => return None,
    };
    (call.kind() == "call_expression").then_some(call)
}

fn go_overlap(
    source: &Source<'_>,
    first: Node<'_>,
    call: Node<'_>,
    range: std::ops::Range<usize>,
    second: &str,
    end: usize,
) -> Option<Vec<Edit>> {
    let between = format!("{}{}", source.newline(), source.indent(first.start_byte()));
    let text = source.text_of(call);
    if first.kind() == "expression_statement" {
        let start = format!(
            "injectedCall := make(chan struct{{}}){between}go func() {{ defer close(injectedCall); {text} }}()"
        );
        return Some(vec![
            Edit::replace(range, start),
            Edit::insert(end, format!("{between}<-injectedCall")),
        ]);
    }
    let names: Vec<&str> = words(source.field(first, "left")).collect();
    let arguments = children(call.child_by_field_name("arguments")?);
    let uses_first = names.iter().any(|name| *name != "err" && mentions(second, name));
    if uses_first || arguments.len() > MAX_GO_ARGUMENTS || names.len() > 2 || text.ends_with("...)") {
        return None;
    }
    let callee = source.field(call, "function");
    let given: String = arguments.iter().map(|argument| format!(", {}", source.text_of(*argument))).collect();
    let start = format!("injectedCall := injectedStart({callee}{given})");
    // The check of the error comes along, because it belongs to the result.
    let check = source.text.get(first.end_byte()..range.end)?;
    let finish = format!("{between}{} := injectedCall(){check}", source.field(first, "left"));
    let helper = go_helper(arguments.len(), names.len(), source.newline());
    Some(vec![
        Edit::replace(range, start),
        Edit::insert(end, finish),
        Edit::insert(source.text.len(), helper),
    ])
}

/// A function that starts a call with `n_arguments` and returns what waits for its results.
fn go_helper(n_arguments: usize, n_results: usize, newline: &str) -> String {
    let list = |prefix: &str, count: usize| {
        (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(", ")
    };
    let typed = (0..n_arguments).map(|n| format!("a{n} A{n}")).collect::<Vec<_>>();
    let parameters =
        std::iter::once(format!("call func({}) ({})", list("A", n_arguments), list("R", n_results)));
    let parameters = parameters.chain(typed).collect::<Vec<_>>().join(", ");
    let types = [list("A", n_arguments), list("R", n_results)];
    let types = types.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ");
    let results = list("R", n_results);
    let values = list("r", n_results);
    let declared: String = (0..n_results).map(|n| format!("\tvar r{n} R{n}\n")).collect();
    let text = format!(
        "\nfunc injectedStart[{types} any]({parameters}) func() ({results}) {{\n{declared}\tdone := make(chan \
         struct{{}})\n\tgo func() {{\n\t\tdefer close(done)\n\t\t{values} = call({})\n\t}}()\n\treturn func() \
         ({results}) {{\n\t\t<-done\n\t\treturn {values}\n\t}}\n}}\n",
        list("a", n_arguments)
    );
    text.replace('\n', newline)
}
