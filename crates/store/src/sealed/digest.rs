//! SipHash-2-4: a keyed digest of short texts. Nobody without the key can find out which text a digest belongs to,
//! not even by trying all short ones.

/// The digest of `first`, if any, followed by bytes.
pub(crate) fn sip_hash(key: (u64, u64), first: Option<u64>, bytes: &[u8]) -> u64 {
    let mut state = State {
        v0: key.0 ^ 0x736f_6d65_7073_6575,
        v1: key.1 ^ 0x646f_7261_6e64_6f6d,
        v2: key.0 ^ 0x6c79_6765_6e65_7261,
        v3: key.1 ^ 0x7465_6462_7974_6573,
    };
    if let Some(first) = first {
        state.absorb(first);
    }
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let length = bytes.len() + if first.is_some() { 8 } else { 0 };
    let mut last = (length as u64) << 56;
    for (index, byte) in rest.iter().enumerate() {
        last |= u64::from(*byte) << (8 * index);
    }
    state.absorb(last);
    state.v2 ^= 0xff;
    (0..4).for_each(|_| state.round());
    state.v0 ^ state.v1 ^ state.v2 ^ state.v3
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the paper of Aumasson and Bernstein.
    #[test]
    fn digests_are_those_of_siphash() {
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(sip_hash(key, None, b""), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip_hash(key, None, &text), 0xa129_ca61_49be_45e5);
        assert_eq!(sip_hash(key, Some(0x0706_0504_0302_0100), &text[8..]), 0xa129_ca61_49be_45e5);
    }
}
