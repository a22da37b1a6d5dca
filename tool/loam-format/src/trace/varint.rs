//! Numbers with as few bytes as possible: seven bits in each byte, the lowest first (LEB128).

use super::decode::DecodeError;

/// Appends `value`.
#[inline(always)]
pub fn put(out: &mut Vec<u8>, value: u64) {
    if value < 1 << 7 {
        out.push(value as u8);
    } else if value < 1 << 14 {
        let both = value & 0x7f | 0x80 | value << 1 & 0x7f00;
        out.extend_from_slice(&(both as u16).to_le_bytes());
    } else {
        put_long(out, value);
    }
}

#[inline(never)]
fn put_long(out: &mut Vec<u8>, mut value: u64) {
    if value < 1 << 21 {
        let low = value & 0x7f | value << 1 & 0x7f00 | 0x8080;
        out.extend_from_slice(&[low as u8, (low >> 8) as u8, (value >> 14) as u8]);
        return;
    }
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Turns small numbers of either sign into small numbers without a sign: 0, -1, 1, -2, ...
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of `zigzag`.
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads numbers from bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.bytes.split_first().ok_or(DecodeError::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Wide);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Wide)
    }

    /// Reads a number of bytes, and returns those bytes.
    pub fn counted(&mut self) -> Result<Input<'a>, DecodeError> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_too_long| DecodeError::Short)?;
        if length > self.bytes.len() {
            return Err(DecodeError::Short);
        }
        let (part, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Ok(Input { bytes: part })
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        let numbers = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1, u64::MAX - power]
        });
        for number in numbers {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut input = Input::new(&bytes);
            assert_eq!(input.number().unwrap(), number);
            assert!(input.is_empty());
            assert_eq!(zigzag(unzigzag(number)), number);
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert!(matches!(
            Input::new(&bytes).number(),
            Err(DecodeError::Wide)
        ));
        assert!(matches!(
            Input::new(&[0x80]).number(),
            Err(DecodeError::Short)
        ));
        assert!(matches!(
            Input::new(&[5, 1]).counted(),
            Err(DecodeError::Short)
        ));
    }
}
