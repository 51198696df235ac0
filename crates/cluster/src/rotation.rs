//! Who plays which role in a stripe.

/// How the nodes of a code trade places from stripe to stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// Not at all: only the encoder moves.
    #[default]
    Fixed,
    /// By one node with every stripe.
    ByStripe,
}

impl Rotation {
    /// The node that plays `role` of a code over `nodes` nodes.
    #[must_use]
    pub fn node(self, role: u16, stripe: u64, nodes: u16) -> u16 {
        let shift = self.shift(stripe, nodes);
        ((u32::from(role) + u32::from(shift)) % u32::from(nodes)) as u16
    }

    /// The role that `node` plays.
    #[must_use]
    pub fn role(self, node: u16, stripe: u64, nodes: u16) -> u16 {
        let shift = self.shift(stripe, nodes);
        ((u32::from(node) + u32::from(nodes - shift)) % u32::from(nodes)) as u16
    }

    /// The role that encodes this stripe. Where roles move with every stripe, the encoder moves
    /// with every round of them: with the same period one node would encode for ever.
    #[must_use]
    pub fn encoder(self, stripe: u64, nodes: u16) -> u16 {
        let nodes = u64::from(nodes);
        let turn = match self {
            Self::Fixed => stripe,
            Self::ByStripe => stripe / nodes,
        };
        (turn % nodes) as u16
    }

    fn shift(self, stripe: u64, nodes: u16) -> u16 {
        match self {
            Self::Fixed => 0,
            Self::ByStripe => (stripe % u64::from(nodes)) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_plays_every_role_and_encodes_as_often_as_the_others() {
        for rotation in [Rotation::Fixed, Rotation::ByStripe] {
            let mut encoded = [0; 5];
            for stripe in 0..25 {
                let mut seen = [false; 5];
                for role in 0..5 {
                    let node = rotation.node(role, stripe, 5);
                    assert_eq!(rotation.role(node, stripe, 5), role);
                    seen[usize::from(node)] = true;
                }
                assert_eq!(seen, [true; 5]);
                let encoder = rotation.encoder(stripe, 5);
                encoded[usize::from(rotation.node(encoder, stripe, 5))] += 1;
            }
            assert_eq!(encoded, [5; 5], "{rotation:?}");
        }
        assert_eq!(Rotation::ByStripe.node(4, 1, 5), 0);
    }
}
