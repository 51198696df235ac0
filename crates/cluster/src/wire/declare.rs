//! From a list of messages their type, and their encoding.

macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        /// A message. Requests carry a tag of the sender's choice, and their answers carry it back.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        impl Message {
            /// The first byte of each message that there is.
            pub const KINDS: &[u8] = &[$($number,)*];

            pub(super) fn put(&self, out: &mut Vec<u8>, epoch: Epoch) {
                match self {
                    $(Self::$name { $($field,)* } => {
                        let kind: u8 = $number;
                        kind.put(out);
                        epoch.put(out);
                        $($field.put(out);)*
                    })*
                }
            }

            pub(super) fn get(kind: u8, input: &mut &[u8]) -> Result<Self, WireError> {
                match kind {
                    $($number => Ok(Self::$name { $($field: Field::get(input)?,)* }),)*
                    other => Err(WireError::Kind(other)),
                }
            }
        }
    };
}
pub(super) use messages;
