//! The macros `all`, `exists`, `exists_one`, `filter` and `map`.

use serde_json::Value as Json;

use super::evaluate::{Frame, Run, Scope};
use super::node::{Each, EachKind};
use super::value::{Evaluated, Value};

impl<'e> Run<'e> {
    /// As in CEL, `all` and `exists` need not know about every element if one
    /// of them decides; the others do.
    pub(super) fn each(&self, each: &'e Each, scope: Scope<'_, 'e>) -> Evaluated<'e> {
        let range = self.value(&each.range, scope)?;
        let mut elements = Elements::of(&range).ok_or_else(|| range.operand(each.what.name()))?;
        let (mut first_fault, mut count, mut made) = (None, 0_u32, Vec::new());
        while let Some(element) = elements.next() {
            self.charge(1)?;
            let frame = Frame { value: element, outer: scope };
            let taken = match &each.test {
                Some(test) => self.truth(test, Some(&frame), each.what.name()),
                None => Ok(true),
            };
            match (each.what, taken) {
                (EachKind::All, Ok(false)) => return Ok(Value::Bool(false)),
                (EachKind::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                (EachKind::All | EachKind::Exists, Err(fault)) if !fault.is_final() => {
                    first_fault = first_fault.or(Some(fault));
                }
                (_, Err(fault)) => return Err(fault),
                (EachKind::All, Ok(true)) | (_, Ok(false)) => {}
                (EachKind::ExistsOne, Ok(true)) => count += 1,
                (EachKind::Filter | EachKind::Map, Ok(true)) => made.push(match &each.made {
                    Some(made) => self.value(made, Some(&frame))?,
                    None => frame.value,
                }),
            }
        }
        match (each.what, first_fault) {
            (_, Some(fault)) => Err(fault),
            (EachKind::All, None) => Ok(Value::Bool(true)),
            (EachKind::Exists, None) => Ok(Value::Bool(false)),
            (EachKind::ExistsOne, None) => Ok(Value::Bool(count == 1)),
            (EachKind::Filter | EachKind::Map, None) => Ok(Value::List(made.into())),
        }
    }
}

/// What a macro goes through: the elements of a list, the names in an object.
enum Elements<'v, 'e> {
    Of(&'v Value<'e>, usize),
    Names(serde_json::map::Keys<'e>),
}

impl<'v, 'e> Elements<'v, 'e> {
    fn of(range: &'v Value<'e>) -> Option<Self> {
        match range {
            Value::Json(Json::Object(members)) => Some(Elements::Names(members.keys())),
            _ => range.list_len().map(|_| Elements::Of(range, 0)),
        }
    }

    fn next(&mut self) -> Option<Value<'e>> {
        match self {
            Elements::Of(list, index) => {
                *index += 1;
                list.element(*index - 1)
            }
            Elements::Names(names) => names.next().map(|name| Value::Text(name)),
        }
    }
}
