//! Which functions answer requests, as the usual frameworks declare them.

use tree_sitter::Node;

use super::calls::words;
use crate::language::Language;
use crate::source::Source;
use crate::walk::{ancestor, children};

/// Methods that register a function for requests.
const ROUTERS: [&str; 14] = [
    "get",
    "post",
    "put",
    "delete",
    "patch",
    "all",
    "use",
    "route",
    "api_route",
    "websocket",
    "createServer",
    "HandleFunc",
    "Handle",
    "createContext",
];

/// Parameter types that only functions for requests have.
const REQUEST_TYPES: [&str; 12] = [
    "gin.Context",
    "echo.Context",
    "fiber.Ctx",
    "HttpExchange",
    "HttpServletRequest",
    "State<",
    "Path<",
    "Query<",
    "Json<",
    "Extension<",
    "HttpRequest",
    "Request<",
];

/// Whether a function answers requests, by its decorators, annotations, parameters or what it is passed to.
pub(super) fn is_handler(source: &Source<'_>, node: Node<'_>) -> bool {
    let parameters = source.field(node, "parameters");
    let name = source.field(node, "name");
    if REQUEST_TYPES.iter().any(|kind| parameters.contains(kind)) {
        return true;
    }
    match source.language {
        Language::Python => {
            let decorated = node.parent().filter(|parent| parent.kind() == "decorated_definition");
            let decorators = decorated.map(children).unwrap_or_default();
            decorators
                .iter()
                .filter(|node| node.kind() == "decorator")
                .any(|node| names_router(source, *node))
                || matches!(name, "do_GET" | "do_POST" | "do_PUT" | "do_DELETE" | "do_PATCH")
        }
        Language::JavaScript | Language::TypeScript | Language::Tsx | Language::Go => enclosing_call(node)
            .is_some_and(|call| {
                let callee = source.field(call, "function");
                callee.rsplit('.').next().is_some_and(|method| ROUTERS.contains(&method))
                    && callee.contains('.')
            }),
        Language::Java => {
            let annotations = node.child(0).filter(|first| first.kind() == "modifiers");
            let text = annotations.map_or("", |node| source.text_of(node));
            text.contains("Mapping")
                || ["@GET", "@POST", "@PUT", "@DELETE"].iter().any(|a| text.contains(a))
                || matches!(name, "doGet" | "doPost" | "doPut" | "doDelete")
        }
        Language::Rust => {
            let result = source.field(node, "return_type");
            ["Json<", "IntoResponse", "StatusCode", "HttpResponse", "Response", "Responder"]
                .iter()
                .any(|kind| result.contains(kind))
        }
        Language::Yaml => false,
    }
}

fn names_router(source: &Source<'_>, decorator: Node<'_>) -> bool {
    let text = source.text_of(decorator);
    let callee = text.trim_start_matches('@').split('(').next().unwrap_or_default();
    callee.contains('.') && callee.rsplit('.').next().is_some_and(|method| ROUTERS.contains(&method.trim()))
}

/// The call that a function expression is an argument of.
fn enclosing_call(node: Node<'_>) -> Option<Node<'_>> {
    let arguments = node.parent().filter(|node| matches!(node.kind(), "arguments" | "argument_list"))?;
    arguments.parent().filter(|node| node.kind() == "call_expression")
}

/// `get /todos` for a function that is passed to `app.get("/todos", ...)`.
pub(super) fn route_name(source: &Source<'_>, node: Node<'_>) -> Option<String> {
    let call = enclosing_call(node)?;
    let method = source.field(call, "function").rsplit('.').next()?;
    let first = children(call.child_by_field_name("arguments")?).into_iter().next()?;
    let text = source.text_of(first);
    match text.starts_with(['"', '\'', '`']) {
        true => Some(format!("{method} {}", text.trim_matches(['"', '\'', '`']))),
        false => Some(method.to_owned()),
    }
}

/// The parameter that a function writes its response to.
pub(super) fn find_writer(source: &Source<'_>, node: Node<'_>) -> Option<String> {
    let parameters = source.field(node, "parameters");
    match source.language {
        Language::Go => {
            let at = parameters.find("http.ResponseWriter")?;
            let before = parameters[..at].trim_end();
            before
                .rsplit(['(', ',', ' '])
                .next()
                .filter(|name| !name.is_empty() && *name != "_")
                .map(str::to_owned)
        }
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            let list = node.child_by_field_name("parameters")?;
            let second = children(list).into_iter().nth(1)?;
            let name = words(source.text_of(second)).next()?;
            matches!(name, "res" | "response" | "reply").then(|| name.to_owned())
        }
        _ => None,
    }
}

/// Whether a node stands in the class of its own file, so that static fields can be added around it.
pub(crate) fn outermost_class(node: Node<'_>) -> Option<Node<'_>> {
    const CLASSES: [&str; 2] = ["class_declaration", "record_declaration"];
    let mut outermost = None;
    let mut next = ancestor(node, &CLASSES);
    while let Some(class) = next {
        outermost = Some(class);
        next = ancestor(class, &CLASSES);
    }
    outermost.filter(|class| class.parent().is_some_and(|parent| parent.kind() == "program"))
}
