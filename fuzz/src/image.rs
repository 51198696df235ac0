//! Images of disks as QEMU and VMware have them: a small qcow2 (`docs/interop/qcow2.rst` of QEMU),
//! in big-endian, and the descriptor of a VMDK, with what should not be there.

use crate::mutate::{Random, mutate};

const CLUSTER: usize = 512;

pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = if random.below(4) == 0 { descriptor() } else { qcow2() };
    mutate(random, &mut bytes, 16 << 10);
    bytes
}

fn qcow2() -> Vec<u8> {
    let mut bytes = vec![0; 8 * CLUSTER];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"QFI\xfb");
    put(4, &3_u32.to_be_bytes());
    put(20, &CLUSTER.trailing_zeros().to_be_bytes());
    // The disk's size; its first table and how many entries that has; the counts of references.
    put(24, &(64_u64 << 10).to_be_bytes());
    put(36, &2_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(48, &(2 * CLUSTER as u64).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    const USED_ONCE: u64 = 1 << 63;
    put(CLUSTER, &(USED_ONCE | (4 * CLUSTER as u64)).to_be_bytes());
    put(2 * CLUSTER, &(3 * CLUSTER as u64).to_be_bytes());
    (0..8).for_each(|cluster| put(3 * CLUSTER + 2 * cluster, &1_u16.to_be_bytes()));
    for (index, cluster) in [5, 6, 7].into_iter().enumerate() {
        put(4 * CLUSTER + 8 * index, &(USED_ONCE | (cluster * CLUSTER) as u64).to_be_bytes());
    }
    bytes
}

fn descriptor() -> Vec<u8> {
    let mut text = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n\
                    createType=\"monolithicFlat\"\nRW 128 FLAT \"image-flat\" 0\n\
                    RW 64 ZERO\nddb.virtualHWVersion = \"4\"\n"
        .as_bytes()
        .to_vec();
    text.resize(1024, 0);
    text
}
