//! Conversion of trees into transfers.

use braid_array::Role;
use std::collections::BTreeMap;

use super::{Endpoint, Input, Schedule, Transfer};
use braid_array::code::Terms;
use braid_array::code::{Cell, Content, StripeCode};

/// The parent of every node of a tree but the root, which is the parity's node.
pub(crate) type Tree = BTreeMap<Role, Role>;

/// Builds the schedule in which the client sends the data and the nodes build the parities, along
/// one tree for each equation.
pub(crate) fn from_trees(code: &StripeCode, trees: &[Tree]) -> Schedule {
    let homes: Vec<Role> = code.data().iter().map(|cell| cell.node).collect();
    to_homes(code, &homes, trees.iter().map(Some))
}

/// Builds the same schedule when the client sends data blocks to these nodes, by index. An equation
/// without a tree is not summed.
pub(super) fn to_homes<'a>(
    code: &StripeCode,
    homes: &[Role],
    trees: impl ExactSizeIterator<Item = Option<&'a Tree>>,
) -> Schedule {
    assert_eq!(trees.len(), code.equations().len(), "a tree for each equation");
    let mut transfers = from_client(code);
    for (transfer, &home) in transfers.iter_mut().zip(homes) {
        transfer.to = home;
    }
    let mut builder = Builder { code, homes, transfers, sent_raw: BTreeMap::new() };
    let sum = |(number, tree): (usize, Option<&Tree>)| {
        tree.map(|tree| builder.tree(number, tree)).unwrap_or_default()
    };
    let sums = trees.enumerate().map(sum).collect();
    Schedule { nodes: code.nodes(), transfers: builder.transfers, sums }
}

/// Builds the schedule in which the client sends everything.
pub(super) fn from_client_only(code: &StripeCode) -> Schedule {
    let mut transfers = from_client(code);
    let mut sums = Vec::new();
    for equation in code.equations() {
        sums.push(vec![Input { transfer: transfers.len(), coef: 1 }]);
        transfers.push(sent_by_client(code, equation.parity));
    }
    Schedule { nodes: code.nodes(), transfers, sums }
}

fn from_client(code: &StripeCode) -> Vec<Transfer> {
    code.data().iter().map(|&cell| sent_by_client(code, cell)).collect()
}

fn sent_by_client(code: &StripeCode, cell: Cell) -> Transfer {
    let terms = code.terms(cell);
    Transfer { stage: 0, from: Endpoint::Client, to: cell.node, inputs: Vec::new(), terms }
}

struct Builder<'a> {
    code: &'a StripeCode,
    /// By data index: the node that the client sends it to.
    homes: &'a [Role],
    transfers: Vec<Transfer>,
    /// Data index, from, to: the transfer of the block itself.
    sent_raw: BTreeMap<(u32, Role, Role), usize>,
}

/// One tree while it is turned into transfers.
struct Branches {
    /// Data index and coefficient of the blocks that a node adds.
    own: BTreeMap<Role, Vec<(u32, u8)>>,
    children: BTreeMap<Role, Vec<Role>>,
    /// By data index.
    coefs: BTreeMap<u32, u8>,
}

impl Builder<'_> {
    fn tree(&mut self, number: usize, tree: &Tree) -> Vec<Input> {
        let equation = &self.code.equations()[number];
        let mut branches =
            Branches { own: BTreeMap::new(), children: BTreeMap::new(), coefs: BTreeMap::new() };
        for term in &equation.terms {
            if let Content::Data(index) = self.code.content(term.cell) {
                let home = self.homes[index as usize];
                branches.own.entry(home).or_default().push((index, term.coef));
                branches.coefs.insert(index, term.coef);
            }
        }
        for (&child, &parent) in tree {
            branches.children.entry(parent).or_default().push(child);
        }
        self.gather(&branches, equation.parity.node)
    }

    /// Returns the inputs that a node adds up for this parity.
    fn gather(&mut self, branches: &Branches, node: Role) -> Vec<Input> {
        let own = branches.own.get(&node).into_iter().flatten();
        let mut inputs: Vec<Input> =
            own.map(|&(index, coef)| Input { transfer: index as usize, coef }).collect();
        for &child in branches.children.get(&node).map_or(&[][..], Vec::as_slice) {
            let transfer = self.send(branches, child, node);
            let block = self.transfers[transfer].terms.as_block();
            let coef = block.and_then(|index| branches.coefs.get(&index)).map_or(1, |&coef| coef);
            inputs.push(Input { transfer, coef });
        }
        inputs
    }

    fn send(&mut self, branches: &Branches, from: Role, to: Role) -> usize {
        let mut inputs = self.gather(branches, from);
        let mut block = None;
        if let [only] = &mut inputs[..] {
            // A single block travels as it is; whoever adds it multiplies.
            block = self.transfers[only.transfer].terms.as_block();
            if block.is_some() {
                only.coef = 1;
            }
        }
        let next = self.transfers.len();
        if let Some(index) = block {
            let sent = *self.sent_raw.entry((index, from, to)).or_insert(next);
            if sent != next {
                return sent;
            }
        }
        let mut terms = Terms::default();
        let mut stage = 0;
        for input in &inputs {
            let source = &self.transfers[input.transfer];
            terms.add(input.coef, &source.terms);
            stage = stage.max(source.stage);
        }
        let from = Endpoint::Node(from);
        self.transfers.push(Transfer { stage: stage + 1, from, to, inputs, terms });
        next
    }
}
