//! Calls that there are in two forms, plain and to be awaited, and those that several classes have.

/// Makes two methods of one: `name`, which waits for the answer, and `aname`, to be awaited.
///
/// What is written once: the docstring, the signature as Python has it, the arguments, and a body that says
/// what to do, a future. It reaches as far as the class, or as is said behind the names.
macro_rules! both_forms {
    ($class:ident: $(
        $(#[doc = $doc:literal])*
        fn $name:ident / $awaited:ident $([$reach:ident])? ($($signature:tt)*)
        ($self:ident, $py:ident $(, $(#[$attribute:meta])* $argument:ident: $type:ty)* $(,)?) -> $output:ty {
            $($body:tt)*
        }
    )+) => {
        #[pymethods]
        #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
        impl $class {$(
            $(#[doc = $doc])*
            #[pyo3(signature = ($($signature)*))]
            fn $name(
                &$self,
                $py: Python<'_>,
                $($(#[$attribute])* $argument: $type),*
            ) -> PyResult<$output> {
                let future = { $($body)* };
                $crate::awaiting::block::<$output, _>($py, both_forms!(@reach $self $($reach)?), future)
            }

            #[doc = concat!("`", stringify!($name), "`, to be awaited.")]
            #[pyo3(signature = ($($signature)*))]
            fn $awaited<'py>(
                &$self,
                $py: Python<'py>,
                $($(#[$attribute])* $argument: $type),*
            ) -> PyResult<Bound<'py, PyAny>> {
                let future = { $($body)* };
                $crate::awaiting::awaited::<$output, _>($py, both_forms!(@reach $self $($reach)?), future)
            }
        )+}
    };
    (@reach $self:ident) => { $self.reach() };
    (@reach $self:ident $reach:ident) => { $crate::runtime::Reach::$reach };
}

/// The two forms of a check: the body says what is asked for (a `Front::Asked`). They take an id, too.
macro_rules! checks {
    ($class:ident:
        $(#[doc = $doc:literal])*
        fn $name:ident / $awaited:ident ($($signature:tt)*)
        ($self:ident, $py:ident $(, $(#[$attribute:meta])* $argument:ident: $type:ty)* $(,)?) $asked:block
    ) => {
        #[pymethods]
        #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
        impl $class {
            $(#[doc = $doc])*
            #[pyo3(signature = ($($signature)*, id = None, keep = 600.0))]
            fn $name(
                &$self,
                $py: Python<'_>,
                $($(#[$attribute])* $argument: $type,)*
                id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64,
            ) -> PyResult<$crate::decision::Decision> {
                let once = $crate::arguments::once_of(id, keep)?;
                $crate::verbs::Front::checked($self, $py, $asked, once)
            }

            #[doc = concat!("`", stringify!($name), "`, to be awaited. If whoever awaits is cancelled, the request may")]
            /// have been charged all the same.
            ///
            /// It is no coroutine: `asyncio.ensure_future`, `gather`, `wait_for` and `shield` take it; `create_task`,
            /// `asyncio.run` and anyio's `start_soon` want an `async def` that awaits it. Whoever forgets the
            /// `await` gets a TypeError from `if`.
            #[pyo3(signature = ($($signature)*, id = None, keep = 600.0))]
            fn $awaited<'py>(
                &$self,
                $py: Python<'py>,
                $($(#[$attribute])* $argument: $type,)*
                id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64,
            ) -> PyResult<Bound<'py, PyAny>> {
                let once = $crate::arguments::once_of(id, keep)?;
                $crate::verbs::Front::achecked($self, $py, $asked, once)
            }
        }
    };
}

/// The methods of a class for every verb: those that take a cost and an id, and those for what was decided before.
///
/// The class says what a call takes: an argument by place and others by keyword, each with the signature as
/// Python has it, and what it makes of them (a `Front::Asked`).
macro_rules! verbs {
    ($class:ident ($($place:tt)*) ($($keywords:tt)*)
        ($self:ident, $py:ident, $first:ident: $first_type:ty
            $(, $(#[$attribute:meta])* $argument:ident: $type:ty)* $(,)?) $asked:block
    ) => {
        checks! { $class:
            /// Judges what is asked for by every quota that applies: all of it is charged, or nothing. Cost 0
            /// only tells; one above every limit is denied. Under an id it is charged once, however often it is
            /// sent within `keep` seconds.
            fn check / acheck ($($place)*, *, $($keywords)*)
            ($self, $py, $first: $first_type $(, $(#[$attribute])* $argument: $type)*) $asked
        }

        #[pymethods]
        #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
        impl $class {
            /// The decision if it takes no I/O, else None, and nothing has happened.
            #[pyo3(signature = ($($place)*, *, $($keywords)*, id = None, keep = 600.0))]
            fn try_check(
                &$self,
                $py: Python<'_>,
                $first: $first_type,
                $($(#[$attribute])* $argument: $type,)*
                id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64,
            ) -> PyResult<Option<$crate::decision::Decision>> {
                if $self.reach() != $crate::runtime::Reach::Memory {
                    return Ok(None);
                }
                let once = $crate::arguments::once_of(id, keep)?;
                $crate::verbs::Front::checked($self, $py, $asked, once).map(Some)
            }
        }

        both_forms! { $class:
            /// What a check would meet; nothing changes. Under an id that is known, the decision that is remembered.
            fn peek / apeek ($($place)*, *, $($keywords)*, id = None, keep = 600.0)
            ($self, $py, $first: $first_type, $($(#[$attribute])* $argument: $type,)* id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64) -> $crate::decision::Decision {
                $self.ask($py, $asked)?.under($crate::arguments::once_of(id, keep)?)?.peek()
            }

            /// What a check would meet, for people: a sentence, and a line for every quota that applies.
            fn explain / aexplain ($($place)*, *, $($keywords)*, id = None, keep = 600.0)
            ($self, $py, $first: $first_type, $($(#[$attribute])* $argument: $type,)* id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64) -> String {
                $self.ask($py, $asked)?.under($crate::arguments::once_of(id, keep)?)?.explain()
            }

            /// Waits until it is allowed, at most `patience` seconds in all, the store's included, and as long as a
            /// leaky bucket asks. If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so
            /// does cancelling whoever awaits it.
            fn until_allowed / auntil_allowed [Long]
            ($($place)*, patience = 60.0, *, $($keywords)*, id = None, keep = 600.0)
            ($self, $py, $first: $first_type, #[pyo3(from_py_with = $crate::arguments::float)] patience: f64,
                $($(#[$attribute])* $argument: $type,)* id: Option<String>,
                #[pyo3(from_py_with = $crate::arguments::float)] keep: f64) -> $crate::decision::Decision {
                let patience = $crate::arguments::duration("patience", patience)?;
                $self.ask($py, $asked)?.under($crate::arguments::once_of(id, keep)?)?.until_allowed(patience)
            }

            /// Makes the charge of a reservation the actual amount.
            ///
            /// "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
            fn settle / asettle (id, actual)
            (self, py, id: String, #[pyo3(from_py_with = $crate::arguments::whole)] actual: i64) -> &'static str {
                let actual = $crate::arguments::amount("actual", actual)?;
                $crate::verbs::settle(self.engine(py)?, id, Some(actual))
            }

            /// Gives the charge of a reservation back; says the same as `settle`.
            fn cancel / acancel (id) (self, py, id: String) -> &'static str {
                $crate::verbs::settle(self.engine(py)?, id, None)
            }

            /// Gives up to `units` (None: all) of each charge of a decision back, places of concurrency too; says how many
            /// units. Together, never more than was charged. To limiters an outage is no error: what cannot be given back
            /// comes back with time.
            fn refund / arefund (decision, units = None)
            (self, py, decision: &Bound<'_, $crate::decision::Decision>,
                #[pyo3(from_py_with = $crate::arguments::whole_or_none)] units: Option<i64>) -> u64 {
                let units = $crate::arguments::units_or_all(units)?;
                $crate::verbs::refund(self.charged(py, decision.get())?, decision.get().kept(), units)
            }
        }
    };
}
