//! Calls, read member by member.
//!
//! Each call is a struct of its own, made of parts that several calls share. serde's `flatten` would
//! copy every member before it reads it, and would lose the texts that are borrowed; so the parts
//! read their members themselves. What may be left out may also be `null`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::problem::Problem;

macro_rules! all_members {
    ($($name:ident)+) => {
        /// Every member of any call.
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(field_identifier)]
        #[allow(non_camel_case_types, reason = "these are their names")]
        pub(super) enum Member { $($name),+ }

        impl Member {
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),+];
        }
    };
}

all_members! {
    charges on_outage
    service method path route query headers client identity body body_unreadable key cost
    id keep_seconds hold_seconds actual decision units
    checks
}

impl Member {
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A call, or a part of one.
pub(super) trait Members<'de>: Default {
    /// The bits of its members.
    const TAKES: u32;

    /// Reads the value of one of them.
    fn read<A: MapAccess<'de>>(&mut self, member: Member, members: &mut A) -> Result<(), A::Error>;
}

/// The names of members with these bits.
pub(super) fn names(takes: u32) -> Vec<&'static str> {
    let all = Member::NAMES.iter().enumerate();
    all.filter(|(index, _)| takes & (1 << index) != 0).map(|(_, name)| *name).collect()
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
            /// The first that it has.
            #[allow(dead_code, reason = "not every call asks")]
            pub(super) fn first(&self) -> Option<&'static str> {
                $(if self.$field.is_some() {
                    return Some(stringify!($field));
                })+
                None
            }
        }

        impl<$life> Members<$life> for $name<$life> {
            const TAKES: u32 = $(Member::$field.bit())|+;

            #[inline]
            fn read<A: MapAccess<$life>>(&mut self, member: Member, members: &mut A) -> Result<(), A::Error> {
                match member {
                    $(Member::$field => self.$field = members.next_value()?,)+
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
            const TAKES: u32 = $(<$type>::TAKES)|+;

            #[inline]
            fn read<A: MapAccess<$life>>(&mut self, member: Member, members: &mut A) -> Result<(), A::Error> {
                $(if <$type>::TAKES & member.bit() != 0 {
                    return self.$part.read(member, members);
                })+
                Ok(())
            }
        }
    )+ };
}

pub(super) use {members, parts};

/// A call, unless it has a member that only other calls have.
#[derive(Debug)]
pub(super) struct Placed<T>(Result<T, Member>);

impl<'de, T: Members<'de>> Placed<T> {
    pub(super) fn into_call(self) -> Result<T, Problem> {
        self.0.map_err(Self::misplaced)
    }

    #[cold]
    fn misplaced(member: Member) -> Problem {
        let expected = format!("one of {}", names(T::TAKES).join(", "));
        Problem::got(member.name(), "a member of another call", expected)
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
        let (mut call, mut known, mut misplaced) = (T::default(), 0, None);
        while let Some(member) = members.next_key::<Member>()? {
            if known & member.bit() != 0 {
                return Err(A::Error::duplicate_field(member.name()));
            }
            known |= member.bit();
            if T::TAKES & member.bit() != 0 {
                call.read(member, &mut members)?;
            } else if members.next_value::<Option<IgnoredAny>>()?.is_some() {
                misplaced = misplaced.or(Some(member));
            }
        }
        Ok(Placed(misplaced.map_or(Ok(call), Err)))
    }
}
