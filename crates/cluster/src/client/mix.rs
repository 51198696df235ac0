//! Who builds the parities of a full slice-set, the nodes or this client, when several clients
//! share the nodes. A client alone is bound by its own link, and node-made parity lets it send data
//! only. Many clients are bound by the nodes' links, and client-made parity puts fewer bytes on
//! them. In between a mix is better than both.
//!
//! Each client finds its share alone: while credits come back and there is nothing left that it has
//! yet to send, the nodes are the bottleneck, and it makes more parities itself; while its own link
//! still has things to send, fewer.

/// How much one look changes the share.
const STEP: f32 = 1.0 / 64.0;

/// Which slice-sets the client makes the parities of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mix {
    /// None.
    Nodes,
    /// All that are whole.
    Client,
    /// A share of those that are whole.
    Share {
        /// 0 to 1.
        share: f32,
        /// What the share has added up to since the client's last.
        owed: f32,
    },
}

impl Mix {
    /// A credit came back while more was waiting to be written.
    pub(super) fn credit(&mut self, own_link_is_idle: bool) {
        if let Self::Share { share, .. } = self {
            let step = if own_link_is_idle { STEP } else { -STEP };
            *share = (*share + step).clamp(0.0, 1.0);
        }
    }

    /// Does the client make the parities of the next whole slice-set?
    pub(super) fn client_makes_next(&mut self) -> bool {
        match self {
            Self::Nodes => false,
            Self::Client => true,
            Self::Share { share, owed } => {
                *owed += *share;
                let makes = *owed >= 1.0;
                if makes {
                    *owed -= 1.0;
                }
                makes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_the_bottleneck() {
        let mut mix = Mix::Share { share: 0.0, owed: 0.0 };
        assert!((0..100).all(|_| !mix.client_makes_next()));
        (0..32).for_each(|_| mix.credit(true));
        let made = (0..100).filter(|_| mix.client_makes_next()).count();
        assert_eq!(made, 50);
        (0..200).for_each(|_| mix.credit(true));
        assert!((0..100).all(|_| mix.client_makes_next()));
        (0..200).for_each(|_| mix.credit(false));
        assert!((0..100).filter(|_| mix.client_makes_next()).count() <= 1);
    }
}
