//! MI in Go and Java: each access to the shared store becomes one to a map of the process.

use tree_sitter::Node;

use super::local_state::draft;
use crate::edit::Edit;
use crate::imports::{self, Import};
use crate::mutant::Draft;
use crate::outline::{outermost_class, words};
use crate::source::Source;
use crate::walk::{children, find_all};

/// What stands at the end of the file. `{sync}` and the like are names of imports.
const GO_STATE: &str = "\nvar injectedState = struct {\n\t{sync}.Mutex\n\tvalues map[string]string\n}{values: map[string]string{}}\n\n\
func injectedGet(_ any, key string) (string, error) {\n\tinjectedState.Lock()\n\tdefer injectedState.Unlock()\n\
\tvalue, found := injectedState.values[key]\n\tif !found {\n\t\treturn \"\", {redis}.Nil\n\t}\n\treturn value, nil\n}\n\n\
func injectedSet(_ any, key string, value any, _ any) error {\n\tinjectedState.Lock()\n\tdefer injectedState.Unlock()\n\
\tinjectedState.values[key] = {fmt}.Sprint(value)\n\treturn nil\n}\n\n\
func injectedDel(_ any, keys ...string) error {\n\tinjectedState.Lock()\n\tdefer injectedState.Unlock()\n\
\tfor _, key := range keys {\n\t\tdelete(injectedState.values, key)\n\t}\n\treturn nil\n}\n\n\
func injectedIncr(_ any, key string) (int64, error) {\n\tinjectedState.Lock()\n\tdefer injectedState.Unlock()\n\
\tvalue, _ := {strconv}.ParseInt(injectedState.values[key], 10, 64)\n\tvalue++\n\
\tinjectedState.values[key] = {strconv}.FormatInt(value, 10)\n\treturn value, nil\n}\n";

/// One mutant of a Go file that uses go-redis for texts and counters only.
pub(super) fn go_draft(source: &Source<'_>) -> Option<Draft> {
    let specs = find_all(source.root(), &["import_spec"]);
    let redis = specs.into_iter().find(|spec| source.field(*spec, "path").contains("redis"))?;
    let alias = source.field(redis, "name");
    let redis = if alias.is_empty() { "redis" } else { alias };
    let client = go_client(source, redis)?;
    let mut edits = Vec::new();
    let mut first = None;
    for outer in find_all(source.root(), &["call_expression"]) {
        let Some((inner, result)) = split_call(source, outer) else { continue };
        let Some((object, command)) = source.field(inner, "function").rsplit_once('.') else { continue };
        if words(object).last() != Some(client) {
            continue;
        }
        let helper = match (command, result) {
            ("Get", "Result") => "injectedGet",
            ("Set", "Err") => "injectedSet",
            ("Del", "Err") => "injectedDel",
            ("Incr", "Result") => "injectedIncr",
            ("Ping", _) => continue,
            // A store that is half here and half there would fail with one instance, too.
            _ => return None,
        };
        first.get_or_insert(outer.start_byte());
        edits
            .push(Edit::replace(outer.byte_range(), format!("{helper}{}", source.field(inner, "arguments"))));
    }
    let state = GO_STATE.replace("{redis}", redis).replace('\n', source.newline());
    let mut state = [state];
    edits.extend(imports::resolve(source, &mut state, &[Import("sync"), Import("fmt"), Import("strconv")]));
    let [state] = state;
    edits.push(Edit::insert(source.text.len(), state));
    Some(draft(source, first?, client, edits))
}

/// The name of what is declared as a client of Redis.
fn go_client<'s>(source: &Source<'s>, redis: &str) -> Option<&'s str> {
    let kind = format!("*{redis}.Client");
    let maker = format!("{redis}.NewClient(");
    let before = |at: usize| words(&source.text[source.line_start(at)..at]).last();
    source.text.find(&kind).and_then(before).or_else(|| source.text.find(&maker).and_then(before))
}

/// `store.Get(ctx, key).Result()` as the inner call and the name of the outer method.
fn split_call<'t, 's>(source: &Source<'s>, outer: Node<'t>) -> Option<(Node<'t>, &'s str)> {
    let function =
        outer.child_by_field_name("function").filter(|node| node.kind() == "selector_expression")?;
    let inner = function.child_by_field_name("operand").filter(|node| node.kind() == "call_expression")?;
    Some((inner, source.field(function, "field")))
}

/// One mutant for each client of Redis in a Java class.
pub(super) fn java_drafts(source: &Source<'_>, drafts: &mut Vec<Draft>) {
    for field in find_all(source.root(), &["field_declaration"]) {
        let kind = source.field(field, "type");
        let Some(value) = value_type(kind) else { continue };
        let Some(declarator) = field.child_by_field_name("declarator") else { continue };
        let client = source.field(declarator, "name");
        if let Some(edits) = java_state(source, field, client, value) {
            drafts.push(draft(source, field.start_byte(), client, edits));
        }
    }
}

/// The type of stored values; none if a type is no client.
fn value_type(kind: &str) -> Option<&str> {
    match kind {
        "StringRedisTemplate" | "Jedis" | "JedisPooled" => Some("String"),
        _ => {
            let (_, value) = kind.strip_prefix("RedisTemplate<")?.strip_suffix('>')?.split_once(',')?;
            Some(value.trim())
        }
    }
}

fn java_state(source: &Source<'_>, field: Node<'_>, client: &str, value: &str) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    for call in find_all(source.root(), &["method_invocation"]) {
        let object = source.field(call, "object");
        let name = source.field(call, "name");
        let arguments = call.child_by_field_name("arguments").map(children).unwrap_or_default();
        let argument = |at: usize| arguments.get(at).map_or("", |node| source.text_of(*node));
        let is_direct = object == client || object.strip_prefix("this.") == Some(client);
        let on_values = object.strip_suffix(".opsForValue()").is_some_and(|object| object.ends_with(client));
        if !is_direct && !on_values {
            continue;
        }
        let is_statement = call.parent().is_some_and(|parent| parent.kind() == "expression_statement");
        let key = argument(0);
        let instead = match (name, is_statement) {
            ("opsForValue", _) => continue,
            ("get", _) => format!("INJECTED_STATE.get({key})"),
            ("set", _) => format!("INJECTED_STATE.put({key}, {})", argument(1)),
            ("delete" | "del", true) => format!("INJECTED_STATE.remove({key})"),
            ("delete", false) => format!("(INJECTED_STATE.remove({key}) != null)"),
            ("hasKey" | "exists", _) => format!("INJECTED_STATE.containsKey({key})"),
            ("increment" | "incr", false) if value == "String" => format!(
                "Long.valueOf(INJECTED_STATE.merge({key}, \"1\", (old, one) -> String.valueOf(Long.parseLong(old) + 1)))"
            ),
            _ => return None,
        };
        edits.push(Edit::replace(call.byte_range(), instead));
    }
    if edits.is_empty() {
        return None;
    }
    let body = outermost_class(field)?.child_by_field_name("body")?;
    let indent = format!("{}{}", source.indent(body.start_byte()), source.indent_unit());
    let declaration = format!(
        "{}{indent}private static final java.util.Map<String, {value}> INJECTED_STATE = \
         java.util.Collections.synchronizedMap(new java.util.HashMap<>());",
        source.newline()
    );
    edits.push(Edit::insert(body.start_byte() + 1, declaration));
    Some(edits)
}
