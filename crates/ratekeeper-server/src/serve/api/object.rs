//! Objects that are read as objects alone.
//!
//! What serde derives also takes a list of the fields in their order. That order is
//! nobody's contract: `[["user:42", "100/60s"]]` must not charge anybody.

/// Reads each of these types, which derive it for `remote = "Self"`, from an object.
macro_rules! only_objects {
    ($($name:ident),+ $(,)?) => { $(
        impl<'de: 'a, 'a> serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members<'a>(std::marker::PhantomData<$name<'a>>);
                impl<'de: 'a, 'a> serde::de::Visitor<'de> for Members<'a> {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    #[inline]
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                        // The derived function, not this one: it comes before that of the trait.
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(members))
                    }
                }
                deserializer.deserialize_map(Members(std::marker::PhantomData))
            }
        }
    )+ };
}

pub(super) use only_objects;
