//! The response to a denied request, as documents describe it.

use ratekeeper_http::{HttpOptions, field};
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::schema::{Array, ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, Response, ResponseBuilder};

pub(super) fn too_many_requests(options: &HttpOptions) -> Response {
    let mut response = ResponseBuilder::new()
        .description("Too many requests: a limit has no room for this one.")
        .content(options.content_type(), ContentBuilder::new().schema(Some(body(options))).build())
        .header("Retry-After", integer("Seconds until the same request passes; absent if it never does."));
    for name in options.field_names() {
        let (spelled, header) = told(name);
        response = response.header(spelled, header);
    }
    response.build()
}

/// A field about limits as documents spell and explain it.
fn told(name: &'static str) -> (String, Header) {
    let header = match name {
        field::RATELIMIT_POLICY => text("The limits that were checked: `\"requests\";q=100;w=60`."),
        field::RATELIMIT => text("What is left of each, and for how long: `\"requests\";r=0;t=45`."),
        _ if name.ends_with("-limit") => integer("Units in a window of the last limit."),
        _ if name.ends_with("-remaining") => integer("Units that are left of it."),
        _ => integer("When it is full again."),
    };
    let words = name.split('-').map(|word| match word {
        "ratelimit" => "RateLimit".to_owned(),
        _ => word[..1].to_uppercase() + &word[1..],
    });
    (words.collect::<Vec<_>>().join("-"), header)
}

fn body(options: &HttpOptions) -> ObjectBuilder {
    let string = || ObjectBuilder::new().schema_type(Type::String);
    let detail = ObjectBuilder::new().schema_type(Type::Object);
    let detail = detail.property("detail", string()).required("detail");
    if options.content_type() != "application/problem+json" {
        return detail;
    }
    let all = detail
        .property("type", string())
        .property("title", string())
        .property("status", ObjectBuilder::new().schema_type(Type::Integer))
        .property("violated-policies", Array::new(string()));
    ["type", "title", "status", "violated-policies"].into_iter().fold(all, ObjectBuilder::required)
}

fn text(description: &str) -> Header {
    of(Type::String, description)
}

fn integer(description: &str) -> Header {
    of(Type::Integer, description)
}

fn of(kind: Type, description: &str) -> Header {
    let schema = ObjectBuilder::new().schema_type(kind);
    HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()
}
