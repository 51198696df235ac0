//! The words in which a measurement is asked for: as they are typed, and as they are kept.

use std::fmt;
use std::str::FromStr;

use braid_array::refusal::Refusal;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal:
     $($(#[$each:meta])* $variant:ident = $word:literal,)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, ValueEnum)]
        pub enum $name {
            $($(#[$each])* #[serde(rename = $word)] #[value(name = $word)] $variant,)+
        }

        impl $name {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As it is typed.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                Self::ALL.iter().copied().find(|word| word.name() == text).ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|word| word.name()).collect();
                    let next = format!("use one of {}", names.join(", "));
                    Refusal::new(concat!("there is no such ", $what), next)
                })
            }
        }
    };
}

words! {
    /// What clients do.
    Pattern, "pattern":
    /// Full stripes, one after the other.
    Write = "write",
    /// Long reads, one after the other.
    Read = "read",
    /// The same without one node.
    ReadOneLost = "read-1-lost",
    /// The same without two nodes.
    ReadTwoLost = "read-2-lost",
    /// Full stripes without one node.
    WriteOneLost = "write-1-lost",
    /// The same without two nodes.
    WriteTwoLost = "write-2-lost",
    /// 1M after 1M, each answered before the next.
    WriteAlone = "write-1m-alone",
    /// 4K at random places.
    Write4k = "write-4k",
    /// The same, one at a time, each durable before the next.
    Write4kDurable = "write-4k-durable",
    /// Nothing: the nodes rebuild one of them.
    Rebuild = "rebuild",
}

words! {
    /// Where nodes keep their volumes.
    Storage, "storage":
    /// In memory.
    Memory = "memory",
    /// In files.
    Disk = "disk",
}

words! {
    /// How an unclean stop is repaired.
    Policy, "policy":
    /// All parities are made anew.
    Resync = "resync",
    /// Those that a bitmap marks.
    Bitmap = "bitmap",
    /// Parts of stripes are recorded first.
    Ppl = "ppl",
    /// All is recorded first.
    Journal = "journal",
}

words! {
    /// Who makes the parities.
    WriteSchedule, "schedule":
    /// The client, which sends them as it sends data.
    Client = "client",
    /// The nodes, each parity along a chain through them.
    Chain = "chain",
    /// The nodes, with as many shared transfers as are known.
    Static = "static",
    /// One node, another one for every slice-set.
    Encoder = "encoder",
    /// The nodes, as `encoder`, or the client, whichever is less of a bottleneck at the moment.
    Mix = "mix",
}

impl Pattern {
    /// Nodes that the client does without.
    #[must_use]
    pub const fn lost(self) -> u16 {
        match self {
            Self::Write
            | Self::Read
            | Self::WriteAlone
            | Self::Write4k
            | Self::Write4kDurable
            | Self::Rebuild => 0,
            Self::ReadOneLost | Self::WriteOneLost => 1,
            Self::ReadTwoLost | Self::WriteTwoLost => 2,
        }
    }

    /// It changes what others measure later, whose members all have the same.
    #[must_use]
    pub const fn leaves_some_behind(self) -> bool {
        !self.reads() && self.lost() > 0
    }

    /// Nodes that the array has to do without.
    #[must_use]
    pub fn survived(self) -> u16 {
        self.lost().max(u16::from(self == Self::Rebuild))
    }

    /// Data go to the client.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadOneLost | Self::ReadTwoLost)
    }
}

impl From<braid_cli::WriteSchedule> for WriteSchedule {
    fn from(schedule: braid_cli::WriteSchedule) -> Self {
        use braid_cli::WriteSchedule as Typed;
        match schedule {
            Typed::Mix => Self::Mix,
            Typed::Encoder => Self::Encoder,
            Typed::Chain => Self::Chain,
            Typed::Static => Self::Static,
            Typed::Client => Self::Client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_as_they_are_typed() {
        for &pattern in Pattern::ALL {
            assert_eq!(pattern.name().parse(), Ok(pattern));
            assert_eq!(serde_json::to_value(pattern).expect("JSON"), pattern.name());
        }
        let refused = "disc".parse::<Storage>().expect_err("not one of them");
        assert_eq!(refused.next.advice, "use one of memory, disk");
        assert_eq!("encoder".parse(), Ok(WriteSchedule::Encoder));
    }
}
