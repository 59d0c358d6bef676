//! Enumerations whose variants have a name in recordings and reports.

/// Declares an enumeration. The number of each variant is the BPF program's, the name the
/// recording's; its documentation is also that of the value in `docs/recording.md`.
///
/// A name that this version does not know, because a newer one added it, makes the row unreadable,
/// unless `unknown names` says what it counts as.
macro_rules! names {
    (
        $(#[doc = $about:literal])+
        pub enum $type:ident, default $default:ident $(, unknown names $other:ident)? {
            $($(#[doc = $doc:literal])+ $variant:ident = $number:literal $name:literal,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $type {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self::$default
            }
        }

        impl $type {
            /// The name that reports and the recording use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The variant of that name; `None` for a name that this version does not know.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl crate::recording::Single for $type {
            type Data = parquet::data_type::ByteArrayType;

            fn store(&self) -> parquet::data_type::ByteArray {
                crate::recording::static_text(self.name())
            }

            fn restore(stored: parquet::data_type::ByteArray) -> Option<Self> {
                let other: &[Self] = &[$(Self::$other)?];
                crate::recording::look_at_text(&stored, Self::from_name)
                    .flatten()
                    .or(other.first().copied())
            }

            #[cfg(test)]
            fn choices() -> Vec<(&'static str, &'static [&'static str])> {
                vec![$(($name, &[$($doc),+])),+]
            }
        }

        #[cfg(test)]
        impl crate::recording::MadeUp for $type {
            fn made_up(_: crate::recording::Layout) -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::Strategy;
                proptest::sample::select(vec![$(Self::$variant),+]).boxed()
            }
        }
    };
}
pub(crate) use names;
