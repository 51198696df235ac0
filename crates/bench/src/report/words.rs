//! Words that are the same in every form of the report.

use crate::machine::Machine;
use crate::model::{Gap, spread};

/// The name of the value that needs more room than the others.
pub(super) const TOOLS: &str = "Tools";

/// Name and value of what a reader has to know of the machine.
pub(super) fn about_machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let tenths = machine.memory_bytes.saturating_mul(10) >> 30;
    let mut all = vec![
        ("Processor", machine.cpu.clone()),
        ("Cores", machine.cores.to_string()),
        ("Memory", format!("{}.{} GiB", tenths / 10, tenths % 10)),
        ("Kernel", machine.kernel.clone()),
        ("Braid", machine.braid.clone()),
        ("Members", machine.storage.clone()),
        (TOOLS, machine.tools.join(" · ")),
    ];
    all.retain(|(_, value)| !value.is_empty());
    all
}

/// Explains the mark behind a number.
pub(super) fn noise() -> String {
    let percent = spread::NOISY * 100.0;
    format!(
        "A ~ after a number: its rounds lie further apart than {percent} % of their median; \
         it says little."
    )
}

/// The case and the job that were not measured.
pub(super) fn where_it_is(gap: &Gap) -> String {
    let parts: Vec<&str> =
        [&gap.case, &gap.job].into_iter().flatten().map(String::as_str).collect();
    if parts.is_empty() { "all of it".to_owned() } else { parts.join(", ") }
}
