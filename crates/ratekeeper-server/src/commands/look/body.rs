//! A request, or a key alone, from the command line as the HTTP API reads it.

use serde_json::{Map, Value as Json, json};

use crate::cli::look::ExplainOptions;
use crate::commands::check::body_of;
use crate::failure::Failure;

pub(super) fn of(options: &ExplainOptions) -> Result<Json, Failure> {
    let request = &options.request;
    if let Some(key) = options.key.as_ref().filter(|_| request.is_unsaid()) {
        return Ok(json!({ "service": request.service, "key": key, "cost": options.cost }));
    }
    let mut body = json!({
        "service": request.service, "method": request.method(), "path": request.path(),
        "route": request.route, "key": options.key, "cost": options.cost,
        "client": request.peer.map(|peer| peer.to_string()),
    });
    body["headers"] = fields("--header", ':', &request.header, |value| json!(value.trim()))?;
    body["identity"] = fields("--claim", '=', &request.claim, claim)?;
    if let Some(text) = &request.body {
        let bytes = body_of(text)?;
        body["body"] = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::new(format!("--body: got no JSON that can be read: {error}")))?;
    }
    Ok(body)
}

/// Names and values; of several with one name, all of them.
fn fields(flag: &str, between: char, said: &[String], value: fn(&str) -> Json) -> Result<Json, Failure> {
    let mut fields: Map<String, Json> = Map::new();
    for text in said {
        let (name, own) = text.split_once(between).ok_or_else(|| {
            Failure::new(format!("{flag}: got `{text}`; expected a name, `{between}` and a value"))
        })?;
        let (name, own) = (name.trim().to_owned(), value(own));
        match fields.get_mut(&name) {
            Some(Json::Array(all)) => all.push(own),
            Some(one) => *one = json!([one.take(), own]),
            None => {
                fields.insert(name, own);
            }
        }
    }
    Ok(Json::Object(fields))
}

/// Numbers and truth values as JSON has them, everything else a text.
fn claim(value: &str) -> Json {
    match serde_json::from_str(value) {
        Ok(Json::Bool(truth)) => json!(truth),
        Ok(Json::Number(number)) => Json::Number(number),
        _ => json!(value),
    }
}
