//! Nodes and clients that die in the middle of a move, while programs write.

use super::writer::Writer;
use super::{Served, degraded, in_the_middle};
use crate::support::nodes::{Node, all_in_sync, detail, members, server};
use crate::support::{Lab, until};

impl Served {
    /// Kills a node, waits until the array goes on without it, and returns its address.
    fn lose(&mut self, at: usize) -> String {
        let node = self.nodes.remove(at);
        let address = node.address.clone();
        node.kill();
        until("the loss", || degraded(&self.lab));
        address
    }

    fn bring_back(&mut self, at: usize, address: &str) {
        self.nodes.insert(at, Node::start_at(&self.lab, address, &self.stores[at]));
    }

    fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Kills the process that serves it, and has another one serve it from the nodes of these
    /// addresses, of which some may be away. Writes go on.
    fn another_client(&mut self, addresses: &[String], writer: Writer) -> Writer {
        self.server.kill().and_then(|()| self.server.wait()).expect("an end");
        let all: String = addresses.iter().map(|address| format!(" node://{address}")).collect();
        self.server = server(&self.lab, &all);
        self.goes_on(writer)
    }

    /// The array has another client.
    fn goes_on(&mut self, writer: Writer) -> Writer {
        self.lab.ok("limit x --max 1M", &[]);
        let next = writer.cut_off(&self.lab, &mut self.content);
        self.compare("by another client");
        self.write(next)
    }

    fn write(&self, first: usize) -> Writer {
        Writer::begin(&self.lab, self.content.len(), first)
    }

    /// Has all move, and looks at it.
    fn ends_well(&mut self, writer: Writer) {
        let nodes = self.nodes.len();
        self.lab.ok("limit x --max none", &[]);
        self.all_moved("x.2", nodes);
        writer.until_round();
        writer.end(&mut self.content);
        self.compare("all has moved");
        self.lab.ok("check x --wait", &[]);
        assert_eq!(detail(&self.lab, "x")["mismatches"], 0);
    }
}

/// A node of both arrays dies and comes back; then the client dies.
#[test]
fn level_4_moves_to_one_more_node_while_a_node_and_the_client_die() {
    let shape = "-l 4 --chunk 64K --consistency-policy journal --journal-size 16M";
    let mut served = Served::over(shape, 3, 16);
    let writer = served.write(0);
    served.grow();
    in_the_middle(&served.lab, "a window");
    let address = served.lose(0);
    writer.until_round();
    served.bring_back(0, &address);
    all_in_sync(&served.lab);
    // On a slow machine all may have moved by now.
    until("both arrays are whole", || !degraded(&served.lab));
    let writer = served.another_client(&served.addresses(), writer);
    served.ends_well(writer);
}

/// Two nodes of both arrays die, and the client before the second one is back.
#[test]
fn level_6_moves_to_one_more_node_while_two_nodes_and_the_client_die() {
    let shape = "-l 6 --layout left-symmetric --chunk 64K --journal-size 16M";
    let mut served = Served::over(shape, 4, 16);
    let addresses = served.addresses();
    let writer = served.write(0);
    served.grow();
    in_the_middle(&served.lab, "a window");
    served.lose(0);
    served.lose(1);
    writer.until_round();
    // A start takes a majority of four.
    served.bring_back(0, &addresses[0]);
    let writer = served.another_client(&addresses, writer);
    served.bring_back(2, &addresses[2]);
    all_in_sync(&served.lab);
    served.ends_well(writer);
}

/// The new node dies and comes back; then a client on another machine takes the array over.
#[test]
fn level_10_moves_to_one_more_node_while_that_dies_and_the_client_is_replaced() {
    let mut served = Served::over("-l 10 --layout n2 --chunk 64K", 3, 16);
    let writer = served.write(0);
    served.grow();
    in_the_middle(&served.lab, "a window");
    let address = served.lose(3);
    writer.until_round();
    served.bring_back(3, &address);
    all_in_sync(&served.lab);
    let other = Lab::new();
    let all = members(&served.nodes, "");
    other.ok(&format!("assemble x{all} --take-over --export nbd:unix:x.sock"), &[]);
    assert_eq!(served.server.wait().expect("an end").code(), Some(1));
    // The nodes have their stores there.
    let _first = std::mem::replace(&mut served.lab, other);
    let writer = served.goes_on(writer);
    served.ends_well(writer);
    served.lab.ok("stop x", &[]);
}
