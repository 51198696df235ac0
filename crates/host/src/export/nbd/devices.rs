//! Devices from which clients of a socket may choose: the array, or parts of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::Request;

use crate::engine::array_size::ArraySize;

/// An array or a part of it, as clients see it.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Its name.
    pub(super) name: String,
    /// Clients that name none get it.
    pub(super) by_default: bool,
    /// Lies on another device, and so is not the default by itself.
    pub(super) lies_on_another: bool,
    /// Start in the array.
    pub(super) offset_bytes: u64,
    /// Its size, as clients that have it know it.
    pub(super) size_bytes: u64,
    /// The array to whose end it reaches, if it does: the next client gets a larger one when that
    /// has grown.
    pub(super) up_to: Option<ArraySize>,
    /// Refuses writes.
    pub(super) read_only: bool,
    /// Offsets and lengths must be multiples of this.
    pub(super) min_block_bytes: u32,
    /// Block size that clients should prefer.
    pub(super) preferred_block_bytes: u32,
    /// Largest piece in which a read is answered: a read that must not be fragmented (DF) can be
    /// no longer.
    pub(super) piece_bytes: u32,
}

impl Device {
    /// Creates a device from the start of an array, with requests in multiples of `block_bytes`.
    pub(crate) fn new(name: String, size_bytes: u64, block_bytes: u32, read_only: bool) -> Self {
        Self {
            name,
            by_default: false,
            lies_on_another: false,
            offset_bytes: 0,
            size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
            up_to: None,
            read_only,
            min_block_bytes: block_bytes,
            preferred_block_bytes: block_bytes.max(4096),
            piece_bytes: Request::MAX_BYTES,
        }
    }

    /// Returns the same device from another offset on, which must be a multiple of the block size.
    pub(crate) fn at(self, offset_bytes: u64) -> Self {
        Self { offset_bytes, ..self }
    }

    /// Returns the same device, which reaches to the end of this array, also when that has grown.
    pub(crate) fn reaching_to(self, array: ArraySize) -> Self {
        Self { up_to: Some(array), ..self }
    }

    /// Returns the device as a client gets it that chooses it now.
    fn now(&self) -> Self {
        let array = self.up_to.as_ref().map(|array| array.in_blocks(self.min_block_bytes));
        let size_bytes = array.map_or(self.size_bytes, |end| end.saturating_sub(self.offset_bytes));
        Self { size_bytes, ..self.clone() }
    }

    /// Returns the device as a client has it that was told of another size.
    pub(super) fn of_size(&self, size_bytes: u64) -> Self {
        Self { size_bytes: self.size_bytes.min(size_bytes), ..self.clone() }
    }

    /// A partition or volume that lies on this one, from a byte of it on, which is a multiple of
    /// the block size.
    pub(crate) fn part(&self, name: String, offset_bytes: u64, size_bytes: u64) -> Self {
        Self {
            name,
            by_default: false,
            lies_on_another: true,
            offset_bytes: self.offset_bytes + offset_bytes,
            size_bytes: size_bytes - size_bytes % u64::from(self.min_block_bytes),
            up_to: None,
            ..self.clone()
        }
    }

    /// Returns the name by which clients choose it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes it the device of clients that name none.
    pub(crate) fn by_default(self) -> Self {
        Self { by_default: true, ..self }
    }
}

/// The devices of a socket. Devices may come and go while clients are connected; a client keeps the
/// device that it has chosen, in the size that it was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketDevices(Arc<Mutex<Vec<Arc<Device>>>>);

impl From<Device> for SocketDevices {
    fn from(device: Device) -> Self {
        Self(Arc::new(Mutex::new(vec![Arc::new(device)])))
    }
}

impl SocketDevices {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Device>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a device. No other may have its name.
    pub(crate) fn add(&self, device: Arc<Device>) {
        self.list().push(device);
    }

    /// Clients can choose it no more.
    pub(crate) fn remove(&self, device: &Arc<Device>) {
        self.list().retain(|known| !Arc::ptr_eq(known, device));
    }

    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// All there are now.
    pub(super) fn all(&self) -> Vec<Arc<Device>> {
        self.list().clone()
    }

    /// The device of a name, as it is now. Without a name it is the one there is, or that is meant
    /// by default.
    pub(super) fn find(&self, name: &[u8]) -> Option<Arc<Device>> {
        let list = self.list();
        let own = list.iter().filter(|device| !device.lies_on_another).count();
        let is_meant = |device: &&Arc<Device>| match name {
            b"" => device.by_default || own == 1 && !device.lies_on_another,
            _ => device.name.as_bytes() == name,
        };
        list.iter().find(is_meant).map(|device| Arc::new(device.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_nothing_gets_what_can_be_meant() {
        let device = |name: &str| Device::new(name.into(), 1 << 20, 512, false);
        let devices = SocketDevices::from(device("a"));
        let found = |name: &str| devices.find(name.as_bytes()).map(|found| found.name.clone());
        assert_eq!(found("").as_deref(), Some("a"));
        devices.add(Arc::new(device("a").part("a.parts/p1".into(), 4096, 8193)));
        assert_eq!(found("").as_deref(), Some("a"), "not what lies on it");
        let part = devices.find(b"a.parts/p1").expect("it is there");
        assert_eq!((part.offset_bytes, part.size_bytes), (4096, 8192));
        let second = Arc::new(device("b"));
        devices.add(Arc::clone(&second));
        assert_eq!(found(""), None, "either of two could be meant");
        assert_eq!(found("b").as_deref(), Some("b"));
        devices.add(Arc::new(device("whole").by_default()));
        assert_eq!(found("").as_deref(), Some("whole"));
        devices.remove(&second);
        assert_eq!(found("b"), None);
        assert_eq!(devices.all().len(), 3);
    }
}
