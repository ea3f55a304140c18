//! Bytes of named bits in states: written as words, so that `flow show` has
//! `["replied", "assured"]` and no number that only this source explains.
//!
//! Theory of operation. [`marks!`](marks) makes a type of one byte. It is used like the byte: bits
//! are constants of a module (`mark::REPLIED`), which `&`, `|`, `|=` and `&=` take. Its `Debug` is
//! a list of words, the lowest bit first; a bit without a word is its number.
//!
//! Not here: the words in JSON (the tool's report).

use core::fmt;

/// Writes the set bits of a byte as a list of words.
pub(crate) fn write(bits: u8, words: &[(u8, &str)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let set = (0..8).map(|number| 1 << number).filter(|bit| bits & bit != 0);
    let mut list = f.debug_list();
    for bit in set {
        match words.iter().find(|(known, _)| *known == bit) {
            Some((_, word)) => list.entry(&format_args!("{word}")),
            None => list.entry(&bit),
        };
    }
    list.finish()
}

/// Makes a byte of named bits: `marks!(/// …, pub Marks, [(mark::REPLIED, "replied"), …])`.
macro_rules! marks {
    ($(#[$about:meta])* $seen:vis $name:ident, [$($word:expr),+ $(,)?]) => {
        $(#[$about])*
        #[derive(nf::Plain, Clone, Copy, PartialEq, Eq, Default)]
        #[repr(C)]
        $seen struct $name(u8);

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::marks::write(self.0, &[$($word),+], f)
            }
        }

        impl From<u8> for $name {
            #[inline(always)]
            fn from(bits: u8) -> Self {
                $name(bits)
            }
        }

        impl From<$name> for u8 {
            #[inline(always)]
            fn from(marks: $name) -> Self {
                marks.0
            }
        }

        impl core::ops::BitAnd<u8> for $name {
            type Output = u8;
            #[inline(always)]
            fn bitand(self, bits: u8) -> u8 {
                self.0 & bits
            }
        }

        impl core::ops::BitOr<u8> for $name {
            type Output = Self;
            #[inline(always)]
            fn bitor(self, bits: u8) -> Self {
                $name(self.0 | bits)
            }
        }

        impl core::ops::BitOrAssign<u8> for $name {
            #[inline(always)]
            fn bitor_assign(&mut self, bits: u8) {
                self.0 |= bits;
            }
        }

        impl core::ops::BitAndAssign<u8> for $name {
            #[inline(always)]
            fn bitand_assign(&mut self, bits: u8) {
                self.0 &= bits;
            }
        }
    };
}

pub(crate) use marks;

#[cfg(test)]
mod tests {
    use alloc::format;

    marks!(
        /// For the test.
        Two, [(1, "one"), (4, "four")]
    );

    #[test]
    fn bits_are_words_and_a_bit_without_one_is_its_number() {
        let said = |bits: u8| format!("{:?}", Two::from(bits));
        assert_eq!((said(0), said(5)), ("[]".into(), "[one, four]".into()));
        assert_eq!(said(2 | 4 | 128), "[2, four, 128]");
        let mut two = Two::default() | 5;
        two &= !1;
        two |= 2;
        assert_eq!((u8::from(two), two & 4, two & 1), (6, 4, 0));
    }
}
