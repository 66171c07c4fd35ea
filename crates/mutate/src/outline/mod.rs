//! What operators need to know of a source: its functions, which of them answer requests, where statements can be
//! put, which fields responses have, which calls leave the service.

mod calls;
mod functions;
mod responses;
mod responses_typed;
mod route;

pub(crate) use calls::{CallStatement, awaited_calls, call_statements, is_call_out, words};
pub(crate) use functions::{Function, InsertionPoint, functions};
pub(crate) use responses::{Field, response_fields};
pub(crate) use route::outermost_class;
