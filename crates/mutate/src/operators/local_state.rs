//! MI: state that instances share in Redis is kept in the memory of one of them; MEPFL, section 4.1.
//!
//! With one instance the service works as before. With several, each has a state of its own.

use tree_sitter::Node;

use super::local_state_typed::{go_draft, java_drafts};
use crate::edit::Edit;
use crate::language::Language;
use crate::mutant::{Draft, Scope};
use crate::operator::Operator;
use crate::outline::words;
use crate::source::Source;
use crate::walk::{ancestor, find_all};

/// What makes a client, in Python and in JavaScript.
const PYTHON_CLIENTS: [&str; 7] = [
    "redis.Redis",
    "redis.StrictRedis",
    "redis.from_url",
    "redis.Redis.from_url",
    "Redis",
    "StrictRedis",
    "aioredis.from_url",
];
const SCRIPT_CLIENTS: [&str; 5] = ["redis.createClient", "createClient", "Redis", "IORedis", "ioredis"];

/// Commands that a dictionary can answer, as clients name them, and methods that need none.
const SUPPORTED: [&str; 20] = [
    "get",
    "set",
    "setex",
    "setEx",
    "delete",
    "del",
    "exists",
    "incr",
    "decr",
    "expire",
    "ping",
    "connect",
    "on",
    "quit",
    "close",
    "disconnect",
    "aclose",
    "once",
    "end",
    "duplicate",
];

pub(super) fn drafts(source: &Source<'_>, drafts: &mut Vec<Draft>) {
    match source.language {
        Language::Go => drafts.extend(go_draft(source)),
        Language::Java => java_drafts(source, drafts),
        Language::Rust | Language::Yaml => {}
        _ => dynamic_drafts(source, drafts),
    }
}

pub(super) fn draft(source: &Source<'_>, at: usize, client: &str, edits: Vec<Edit>) -> Draft {
    Draft {
        operator: Operator::LocalState,
        variant: None,
        at,
        within: client.to_owned(),
        service: None,
        anchor: source.text[at..].lines().next().unwrap_or_default().to_owned(),
        scope: Scope::Responding,
        edits,
    }
}

/// Replaces the client by an object with the same methods.
fn dynamic_drafts(source: &Source<'_>, drafts: &mut Vec<Draft>) {
    for call in find_all(source.root(), &["call", "call_expression", "new_expression"]) {
        let callee = match call.kind() {
            "new_expression" => source.field(call, "constructor"),
            _ => source.field(call, "function"),
        };
        let makers: &[&str] =
            if source.language == Language::Python { &PYTHON_CLIENTS } else { &SCRIPT_CLIENTS };
        let Some(client) = assigned_name(source, call).filter(|_| makers.contains(&callee)) else { continue };
        if !uses_supported_only(source, client) {
            continue;
        }
        let edits = match source.language {
            Language::Python => python_state(source, call),
            _ => Some(vec![Edit::replace(call.byte_range(), script_state(source, call))]),
        };
        drafts.extend(edits.map(|edits| draft(source, call.start_byte(), client, edits)));
    }
}

/// The variable or field that a value is assigned to.
fn assigned_name<'s>(source: &Source<'s>, value: Node<'_>) -> Option<&'s str> {
    let parent = value.parent()?;
    let target = match parent.kind() {
        "assignment" | "assignment_expression" => parent.child_by_field_name("left")?,
        "variable_declarator" => parent.child_by_field_name("name")?,
        _ => return None,
    };
    words(source.text_of(target)).last()
}

fn uses_supported_only(source: &Source<'_>, client: &str) -> bool {
    let accesses = find_all(source.root(), &["attribute", "member_expression"]).into_iter();
    let methods = accesses.filter_map(|access| {
        let object = access.child_by_field_name("object").map(|node| source.text_of(node))?;
        let method =
            access.child_by_field_name("attribute").or_else(|| access.child_by_field_name("property"))?;
        (words(object).last() == Some(client) && !object.contains('(')).then(|| source.text_of(method))
    });
    let used: Vec<&str> = methods.collect();
    let keeps_state = used.iter().any(|method| method.starts_with("get") || method.starts_with("set"));
    keeps_state && used.iter().all(|method| SUPPORTED.contains(method))
}

fn python_state(source: &Source<'_>, call: Node<'_>) -> Option<Vec<Edit>> {
    let statement = ancestor(call, &["expression_statement"])?;
    let at = statement.start_byte();
    if !source.starts_line(at) {
        return None;
    }
    let decodes = source.text_of(call).contains("decode_responses=True");
    let encode =
        if decodes { "str(value)" } else { "value if isinstance(value, bytes) else str(value).encode()" };
    let is_async = source.text.contains("redis.asyncio") || source.text.contains("aioredis");
    let define = if is_async { "async def" } else { "def" };
    let text = format!(
        "class InjectedState:\n\
         >def __init__(self):\n>>self.values = {{}}\n\n\
         >{define} get(self, key):\n>>return self.values.get(str(key))\n\n\
         >{define} set(self, key, value, *rest, **options):\n>>self.values[str(key)] = {encode}\n>>return True\n\n\
         >{define} setex(self, key, seconds, value):\n>>self.values[str(key)] = {encode}\n>>return True\n\n\
         >{define} delete(self, *keys):\n>>return sum(self.values.pop(str(key), None) is not None for key in keys)\n\n\
         >{define} exists(self, *keys):\n>>return sum(str(key) in self.values for key in keys)\n\n\
         >{define} incr(self, key, amount=1):\n>>value = int(self.values.get(str(key), 0)) + amount\n\
         >>self.values[str(key)] = {encode}\n>>return value\n\n\
         >{define} decr(self, key, amount=1):\n>>value = int(self.values.get(str(key), 0)) - amount\n\
         >>self.values[str(key)] = {encode}\n>>return value\n\n\
         >{define} expire(self, key, seconds):\n>>return str(key) in self.values\n\n\
         >{define} ping(self):\n>>return True\n\n"
    );
    let class = indent_lines(&text.replace('>', source.indent_unit()), source, at);
    Some(vec![
        Edit::insert(source.line_start(at), class),
        Edit::replace(call.byte_range(), "InjectedState()"),
    ])
}

/// Indents lines as the line of a place is, and ends them as this file does.
fn indent_lines(text: &str, source: &Source<'_>, at: usize) -> String {
    let indent = source.indent(at);
    let line = |line: &str| match line.is_empty() {
        true => source.newline().to_owned(),
        false => format!("{indent}{line}{}", source.newline()),
    };
    text.lines().map(line).collect()
}

fn script_state(source: &Source<'_>, call: Node<'_>) -> String {
    let (any, cast) = if source.language == Language::JavaScript { ("", "") } else { (": any", " as any") };
    let rest = if any.is_empty() { "...rest" } else { "...rest: any[]" };
    let text = format!(
        "new (class InjectedState {{\n\
         >values = new Map();\n\
         >reply(value{any}, rest{any}) {{\n\
         >>const done = rest[rest.length - 1];\n\
         >>if (typeof done === \"function\") process.nextTick(done, null, value);\n\
         >>return Promise.resolve(value);\n\
         >}}\n\
         >on() {{ return this; }}\n\
         >once() {{ return this; }}\n\
         >duplicate() {{ return this; }}\n\
         >connect({rest}) {{ return this.reply(undefined, rest); }}\n\
         >quit({rest}) {{ return this.reply(\"OK\", rest); }}\n\
         >end() {{}}\n\
         >disconnect({rest}) {{ return this.reply(undefined, rest); }}\n\
         >ping({rest}) {{ return this.reply(\"PONG\", rest); }}\n\
         >get(key{any}, {rest}) {{ return this.reply(this.values.get(key) ?? null, rest); }}\n\
         >set(key{any}, value{any}, {rest}) {{ this.values.set(key, String(value)); return this.reply(\"OK\", rest); }}\n\
         >setex(key{any}, seconds{any}, value{any}, {rest}) {{ return this.set(key, value, ...rest); }}\n\
         >setEx(key{any}, seconds{any}, value{any}, {rest}) {{ return this.set(key, value, ...rest); }}\n\
         >del(key{any}, {rest}) {{ return this.reply(Number(this.values.delete(key)), rest); }}\n\
         >exists(key{any}, {rest}) {{ return this.reply(Number(this.values.has(key)), rest); }}\n\
         >expire(key{any}, seconds{any}, {rest}) {{ return this.reply(Number(this.values.has(key)), rest); }}\n\
         >incr(key{any}, {rest}) {{\n\
         >>const value = Number(this.values.get(key) ?? 0) + 1;\n\
         >>this.values.set(key, String(value));\n\
         >>return this.reply(value, rest);\n\
         >}}\n\
         >decr(key{any}, {rest}) {{\n\
         >>const value = Number(this.values.get(key) ?? 0) - 1;\n\
         >>this.values.set(key, String(value));\n\
         >>return this.reply(value, rest);\n\
         >}}\n\
         }}{cast})()"
    );
    let unit = source.indent_unit();
    let lead = |line: &str| {
        let depth = line.len() - line.trim_start_matches('>').len();
        format!("{}{}", unit.repeat(depth), &line[depth..])
    };
    let between = format!("{}{}", source.newline(), source.indent(call.start_byte()));
    text.lines().map(lead).collect::<Vec<_>>().join(&between)
}
