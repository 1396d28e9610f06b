//! Calls that there are in two forms: plain, and to be awaited.

/// Makes two methods of one: `name`, which waits for the answer, and `aname`, to be awaited.
///
/// What is written once: the docstring, the signature as Python has it, the arguments, and a body that
/// says where the call reaches, what it does there (a future), and what becomes of the output.
macro_rules! both_forms {
    ($class:ident: $(
        $(#[doc = $doc:literal])*
        fn $name:ident / $awaited:ident ($($signature:tt)*)
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
                let (reach, future, finish) = { $($body)* };
                $crate::awaiting::block($py, reach, future, finish)
            }

            #[doc = concat!("`", stringify!($name), "`, to be awaited.")]
            #[pyo3(signature = ($($signature)*))]
            fn $awaited<'py>(
                &$self,
                $py: Python<'py>,
                $($(#[$attribute])* $argument: $type),*
            ) -> PyResult<Bound<'py, PyAny>> {
                let (reach, future, finish) = { $($body)* };
                $crate::awaiting::awaited($py, reach, future, finish)
            }
        )+}
    };
}
