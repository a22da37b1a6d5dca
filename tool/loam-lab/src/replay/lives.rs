//! How long blocks live, in four classes. A replay needs them to keep long-lived blocks apart from
//! the other blocks.
//!
//! ```text
//! 0  less than a sixteenth of the recording
//! 1  a sixteenth of it and more
//! 2  a quarter of it and more
//! 3  to the end: never freed, or freed in the recording's last sixty-fourth after a sixteenth
//!    of it or more
//! ```

/// How many classes there are.
pub const CLASSES: usize = 4;

/// The length of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// Its first event, in nanoseconds.
    pub first: u64,
    /// Its last one.
    pub last: u64,
}

impl Clock {
    /// The class of a block that ended at `end`; `None`: it never ended.
    pub fn class(&self, born: u64, end: Option<u64>) -> u8 {
        let Some(end) = end else { return 3 };
        let whole = self.last.saturating_sub(self.first);
        let (life, rest) = (end.saturating_sub(born), self.last.saturating_sub(end));
        match life.saturating_mul(16) >= whole.max(1) {
            false => 0,
            true if rest.saturating_mul(64) <= whole => 3,
            true if life.saturating_mul(4) >= whole => 2,
            true => 1,
        }
    }

    /// The class in words, to follow "blocks that live".
    pub fn words(class: u8) -> &'static str {
        match class {
            1 => "for a sixteenth of the recording and more",
            2 => "for a quarter of the recording and more",
            _ => "to the end of the recording",
        }
    }
}

/// The classes of a process's blocks, in the order in which they were handed out. A resized block
/// remains the same block.
#[derive(Debug, Clone, Default)]
pub struct Lives {
    classes: Vec<u8>,
    count: usize,
}

impl Lives {
    /// Adds the next block and returns its place. Its class is 0 until it is set.
    pub fn push(&mut self) -> usize {
        if self.count % 4 == 0 {
            self.classes.push(0);
        }
        self.count += 1;
        self.count - 1
    }

    /// Sets the class of a block.
    pub fn set(&mut self, block: usize, class: u8) {
        if let Some(four) = self.classes.get_mut(block / 4) {
            let shift = block % 4 * 2;
            *four = *four & !(3 << shift) | (class & 3) << shift;
        }
    }

    /// The class of a block.
    pub fn class(&self, block: usize) -> u8 {
        let four = self.classes.get(block / 4).copied().unwrap_or(0);
        four >> (block % 4 * 2) & 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_share_of_the_recording() {
        let clock = Clock {
            first: 1_000,
            last: 65_000,
        };
        assert_eq!(clock.class(1_000, Some(2_000)), 0);
        assert_eq!(clock.class(1_000, Some(5_000)), 1);
        assert_eq!(clock.class(1_000, Some(17_000)), 2);
        assert_eq!(clock.class(1_000, Some(64_500)), 3);
        // A block that was young when the program ended.
        assert_eq!(clock.class(64_000, Some(64_500)), 0);
        assert_eq!(clock.class(64_000, None), 3);
    }

    #[test]
    fn classes_are_kept_by_number() {
        let mut lives = Lives::default();
        for block in 0..9 {
            assert_eq!(lives.push(), block);
            lives.set(block, (block % 4) as u8);
        }
        lives.set(4, 3);
        let classes: Vec<u8> = (0..9).map(|block| lives.class(block)).collect();
        assert_eq!(classes, [0, 1, 2, 3, 3, 1, 2, 3, 0]);
    }
}
