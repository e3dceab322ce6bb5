//! Enumerations whose values have names, the same in every language.

/// Defines an enumeration with `ALL` and `name`, serialized as its name. With `parsed as "kind"` its values are also read from their names and
/// displayed as them.
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl $type {
            /// Every value, in the order of this list.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name, the same in every language.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
    ($(#[$about:meta])* $type:ident, parsed as $kind:literal { $($values:tt)+ }) => {
        $crate::names::named_enum! { $(#[$about])* $type { $($values)+ } }

        impl $type {
            /// The value with this name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            /// # Errors
            /// `ErrorKind::InvalidArgument` when no value has that name.
            fn from_str(name: &str) -> Result<Self, $crate::error::Error> {
                Self::from_name(name).ok_or_else(|| {
                    let (read, known) = ($crate::error::excerpt(name), Self::ALL.map(Self::name).join(", "));
                    let message = format!(concat!($kind, " {} is not known: use one of {}"), read, known);
                    $crate::error::Error::invalid_argument(message)
                })
            }
        }
    };
}

pub use named_enum;
