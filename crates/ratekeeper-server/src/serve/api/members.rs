//! Calls, read member by member.
//!
//! Each call is a struct of its own, made of parts that several calls share. serde's `flatten` would
//! copy every member before it reads it, and would lose the texts that are borrowed; so the parts
//! read their members themselves. What may be left out may also be `null`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::call;
use super::problem::Problem;

/// The members of a call, or of a part of one.
pub(super) trait Members<'de>: Default {
    /// How many there are: fewer than bits in the mask of those that were read.
    const COUNT: usize;

    /// Their names, in their order.
    fn names() -> Vec<&'static str>;

    /// The place of a name.
    fn position(name: &str) -> Option<usize>;

    /// Reads the value of the member at a place.
    fn read<A: MapAccess<'de>>(&mut self, position: usize, members: &mut A) -> Result<(), A::Error>;
}

/// Structs of optional members.
macro_rules! members {
    ($($(#[$doc:meta])* $name:ident<$life:lifetime> { $($field:ident: $type:ty,)+ })+) => { $(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<$life> {
            $(pub(super) $field: Option<$type>,)+
        }

        impl $name<'_> {
            pub(super) const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            /// The first that was said.
            #[allow(dead_code, reason = "not every call asks")]
            pub(super) fn first(&self) -> Option<&'static str> {
                $(if self.$field.is_some() {
                    return Some(stringify!($field));
                })+
                None
            }
        }

        impl<$life> Members<$life> for $name<$life> {
            const COUNT: usize = Self::NAMES.len();

            fn names() -> Vec<&'static str> {
                Self::NAMES.to_vec()
            }

            #[inline]
            fn position(name: &str) -> Option<usize> {
                Self::NAMES.iter().position(|known| *known == name)
            }

            #[inline]
            fn read<A: MapAccess<$life>>(&mut self, position: usize, members: &mut A) -> Result<(), A::Error> {
                #[allow(non_camel_case_types, reason = "the names of the members")]
                enum At { $($field),+ }
                match position {
                    $(at if at == At::$field as usize => self.$field = members.next_value()?,)+
                    _ => {}
                }
                Ok(())
            }
        }
    )+ };
}

/// Structs of parts.
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident<$life:lifetime> { $($part:ident: $type:ty,)+ })+) => { $(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<$life> {
            $(pub(super) $part: $type,)+
        }

        impl<$life> Members<$life> for $name<$life> {
            const COUNT: usize = 0 $(+ <$type>::COUNT)+;

            fn names() -> Vec<&'static str> {
                [$(<$type>::names()),+].concat()
            }

            #[inline]
            fn position(name: &str) -> Option<usize> {
                let before = 0;
                $(if let Some(position) = <$type>::position(name) {
                    return Some(before + position);
                }
                let before = before + <$type>::COUNT;)+
                let _ = before;
                None
            }

            #[inline]
            fn read<A: MapAccess<$life>>(&mut self, position: usize, members: &mut A) -> Result<(), A::Error> {
                $(if position < <$type>::COUNT {
                    return self.$part.read(position, members);
                }
                let position = position - <$type>::COUNT;)+
                let _ = position;
                Ok(())
            }
        }
    )+ };
}

pub(super) use {members, parts};

/// A call, unless it has a member that only other calls have. In a batch that is the problem of one
/// check, and the others are decided.
#[derive(Debug)]
pub(super) struct Placed<T>(Result<T, &'static str>);

impl<'de, T: Members<'de>> Placed<T> {
    pub(super) fn into_call(self) -> Result<T, Problem> {
        self.0.map_err(Self::misplaced)
    }

    pub(super) fn call(&self) -> Result<&T, Problem> {
        self.0.as_ref().map_err(|name| Self::misplaced(name))
    }

    #[cold]
    fn misplaced(name: &str) -> Problem {
        Problem::got(name, "a member of another call", listed(&T::names()))
    }
}

impl<'de, T: Members<'de>> Deserialize<'de> for Placed<T> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Call(PhantomData))
    }
}

struct Call<T>(PhantomData<T>);

impl<'de, T: Members<'de>> Visitor<'de> for Call<T> {
    type Value = Placed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        const { assert!(T::COUNT <= u32::BITS as usize, "a bit for each") };
        let (mut call, mut known, mut misplaced) = (T::default(), 0_u32, None);
        while let Some(name) = members.next_key_seed(Name::<T>(PhantomData))? {
            match name {
                Found::Here(position) => {
                    let bit = 1 << position;
                    if known & bit != 0 {
                        return Err(twice::<T, A::Error>(position));
                    }
                    known |= bit;
                    call.read(position, &mut members)?;
                }
                Found::Elsewhere(name) => {
                    if members.next_value::<Option<IgnoredAny>>()?.is_some() {
                        misplaced = misplaced.or(Some(name));
                    }
                }
            }
        }
        Ok(Placed(misplaced.map_or(Ok(call), Err)))
    }
}

/// Where a name belongs.
enum Found {
    Here(usize),
    Elsewhere(&'static str),
}

struct Name<T>(PhantomData<T>);

impl<'de, T: Members<'de>> DeserializeSeed<'de> for Name<T> {
    type Value = Found;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, T: Members<'de>> Visitor<'de> for Name<T> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<Found, E> {
        match T::position(name) {
            Some(position) => Ok(Found::Here(position)),
            None => elsewhere::<T, E>(name),
        }
    }
}

#[cold]
fn elsewhere<'de, T: Members<'de>, E: Error>(name: &str) -> Result<Found, E> {
    let known = call::PARTS.iter().copied().flatten().find(|known| **known == name);
    let unknown = || E::custom(format_args!("unknown field; expected {}", listed(&T::names())));
    known.map(|known| Found::Elsewhere(known)).ok_or_else(unknown)
}

#[cold]
fn twice<'de, T: Members<'de>, E: Error>(position: usize) -> E {
    E::duplicate_field(T::names().get(position).copied().unwrap_or_default())
}

/// `a, b or c`.
fn listed(names: &[&str]) -> String {
    match names {
        [others @ .., before, last] => {
            let others: String = others.iter().map(|name| format!("{name}, ")).collect();
            format!("{others}{before} or {last}")
        }
        names => names.concat(),
    }
}
