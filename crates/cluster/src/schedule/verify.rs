//! A schedule carried out with symbols.

use super::{Endpoint, Input, Schedule};
use braid_array::code::StripeCode;
use braid_array::code::Terms;

/// Fault of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The schedule is one of another stripe.
    #[error("the schedule is one of another code")]
    OtherCode,
    /// A node sends a block that it has not received, or not yet.
    #[error("transfer {transfer} of the schedule needs transfer {needs}, which is not there yet")]
    NotThere {
        /// The transfer that is sent.
        transfer: usize,
        /// The transfer that it is made from.
        needs: usize,
    },
    /// A transfer does not have its declared content.
    #[error("transfer {0} of the schedule does not bring the terms it names")]
    Terms(usize),
    /// A data block does not reach its node.
    #[error("data block {0} of the schedule does not reach its node")]
    Data(usize),
    /// A parity does not come out.
    #[error("equation {0} of the schedule does not come out as the sum of its terms")]
    Parity(usize),
}

pub(super) fn verify(schedule: &Schedule, code: &StripeCode) -> Result<(), Fault> {
    let transfers = schedule.transfers();
    let data = code.data();
    if schedule.nodes() != code.nodes() || schedule.sums().len() != code.equations().len() {
        return Err(Fault::OtherCode);
    }
    for (number, transfer) in transfers.iter().enumerate() {
        let Endpoint::Node(from) = transfer.from else { continue };
        for input in &transfer.inputs {
            let there = transfers.get(input.transfer);
            if there.is_none_or(|there| there.to != from || there.stage >= transfer.stage) {
                return Err(Fault::NotThere { transfer: number, needs: input.transfer });
            }
        }
        if add_up(schedule, &transfer.inputs) != transfer.terms {
            return Err(Fault::Terms(number));
        }
    }
    for (index, cell) in data.iter().enumerate() {
        let brought = transfers.get(index);
        let arrives = brought.is_some_and(|brought| {
            brought.to == cell.node && brought.terms.as_block() == Some(index as u32)
        });
        if !arrives {
            return Err(Fault::Data(index));
        }
    }
    for (number, equation) in code.equations().iter().enumerate() {
        let inputs = &schedule.sums()[number];
        let here = |input: &Input| {
            transfers.get(input.transfer).is_some_and(|there| there.to == equation.parity.node)
        };
        if !inputs.iter().all(here) || add_up(schedule, inputs) != code.terms(equation.parity) {
            return Err(Fault::Parity(number));
        }
    }
    Ok(())
}

fn add_up(schedule: &Schedule, inputs: &[Input]) -> Terms {
    let mut sum = Terms::default();
    for input in inputs {
        sum.add(input.coef, &schedule.transfers()[input.transfer].terms);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Planner, Xor2d};
    use braid_array::Role;

    fn encoder() -> (Xor2d, Schedule) {
        let xor2d = Xor2d::new(6).expect("6 nodes");
        let schedule = xor2d.schedule(Planner::Encoder { node: Role(1) }).expect("a node of 6");
        (xor2d, schedule)
    }

    #[test]
    fn each_fault_is_found() {
        let (xor2d, good) = encoder();
        let data = xor2d.code().data().len();
        assert_eq!(good.verify(xor2d.code()), Ok(()));

        let mut early = good.clone();
        let sum = early.transfers.iter().position(|t| t.inputs.len() > 1).expect("a parity");
        early.transfers[sum].stage = 1;
        assert!(matches!(early.verify(xor2d.code()), Err(Fault::NotThere { transfer, .. })
            if transfer == sum));

        let mut elsewhere = good.clone();
        elsewhere.transfers[data].from = Endpoint::Node(Role(5));
        let fault = elsewhere.verify(xor2d.code());
        assert!(matches!(fault, Err(Fault::NotThere { transfer, .. }) if transfer == data));

        let mut short = good.clone();
        short.transfers[sum].inputs.pop();
        assert_eq!(short.verify(xor2d.code()), Err(Fault::Terms(sum)));

        let mut astray = good.clone();
        astray.transfers.swap(0, 1);
        assert!(astray.verify(xor2d.code()).is_err());

        let mut incomplete = good.clone();
        incomplete.sums[7].clear();
        assert_eq!(incomplete.verify(xor2d.code()), Err(Fault::Parity(7)));

        let other = Xor2d::new(7).expect("7 nodes");
        assert_eq!(good.verify(other.code()), Err(Fault::OtherCode));
    }
}
