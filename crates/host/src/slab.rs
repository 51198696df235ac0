//! A table whose elements keep their index until removed; indices are reused.

use std::ops::{Index, IndexMut};

/// The table.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts an element in and tells its index.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(value);
            return index;
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 elements")
    }

    /// Takes an element out.
    ///
    /// # Panics
    /// When there is none at this index.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let value = self.slots[index as usize].take().expect("an element at this index");
        self.free.push(index);
        value
    }

    /// An element, if there is one at this index.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    /// Number of elements.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// No element.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices in use.
    pub(crate) fn indices(&self) -> Vec<u32> {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.is_some()).map(|(i, _)| i).collect()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].as_ref().expect("an element at this index")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].as_mut().expect("an element at this index")
    }
}
