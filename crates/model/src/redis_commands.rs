//! The names of commands in a connection to Redis, without their arguments: those may be passwords.

/// Commands of Redis and Valkey. A name that is not listed here is not shown: it may be part of an argument, or of
/// another protocol that happens to look like this one.
const COMMANDS: &str = " ACL APPEND ASKING AUTH BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS \
    BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER COMMAND CONFIG COPY DBSIZE DEBUG \
    DECR DECRBY DEL DISCARD DUMP ECHO EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME \
    FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEOSEARCH \
    GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HELLO HEXISTS HEXPIRE HGET HGETALL HINCRBY \
    HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN HSET HSETNX HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT \
    INFO KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET \
    LTRIM MEMORY MGET MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME \
    PFADD PFCOUNT PFMERGE PING PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY \
    READWRITE RENAME RENAMENX REPLCONF REPLICAOF RESET RESTORE ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN \
    SCARD SCRIPT SDIFF SDIFFSTORE SELECT SET SETBIT SETEX SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE \
    SISMEMBER SLAVEOF SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE \
    STRLEN SUBSCRIBE SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TIME TOUCH TTL TYPE UNLINK UNSUBSCRIBE \
    UNWATCH WAIT WAITAOF WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP \
    XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE ZLEXCOUNT ZMPOP \
    ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX \
    ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION \
    ZUNIONSTORE ";

/// The longest name above.
const LONGEST_NAME: usize = 16;

/// Larger numbers are no counts or lengths of Redis: a value has at most 512 MiB.
const MAX_NUMBER: u64 = 1 << 30;

/// Whether a word is the name of a command, in upper case.
pub fn is_command(word: &str) -> bool {
    // No word has a space, so a match is a whole word.
    !word.is_empty() && !word.contains(' ') && COMMANDS.contains(&format!(" {word} "))
}

/// Reads what a client sends, piece by piece. It stops at the first byte that is not RESP, and for good.
#[derive(Debug, Default)]
pub struct CommandNames {
    expected: Expected,
    /// The number that is being read.
    number: u64,
    /// Arguments of the command that have not been read, its name included.
    arguments: u64,
    /// The first argument has not been read.
    is_name: bool,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    /// `*`, at the beginning of a command.
    #[default]
    Command,
    /// The number of arguments.
    Count,
    /// `$`, at the beginning of an argument.
    Argument,
    /// The length of an argument.
    Length,
    /// Bytes of an argument.
    Bytes(u64),
    /// The end of the line behind an argument.
    LineEnd(u64),
    /// Nothing that can be read.
    Nothing,
}

impl CommandNames {
    /// Reads the next bytes; calls `found` with the name of each command.
    pub fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(&str)) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.expected {
                Expected::Nothing => return,
                Expected::Bytes(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.read_argument(&bytes[..count]);
                    let left = left - count as u64;
                    self.expected = if left > 0 { Expected::Bytes(left) } else { Expected::LineEnd(2) };
                    bytes = &bytes[count..];
                    continue;
                }
                Expected::LineEnd(left) => {
                    if byte != [b'\n', b'\r'][usize::from(left == 2)] {
                        self.expected = Expected::Nothing;
                    } else if left == 2 {
                        self.expected = Expected::LineEnd(1);
                    } else {
                        self.end_argument(&mut found);
                    }
                }
                Expected::Command => self.begin_number(byte == b'*', Expected::Count),
                Expected::Argument => self.begin_number(byte == b'$', Expected::Length),
                Expected::Count | Expected::Length => self.read_number(byte),
            }
            bytes = rest;
        }
    }

    fn begin_number(&mut self, is_marked: bool, number: Expected) {
        self.number = 0;
        self.expected = if is_marked { number } else { Expected::Nothing };
    }

    fn read_number(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' if self.number < MAX_NUMBER => {
                self.number = self.number * 10 + u64::from(byte - b'0')
            }
            b'\r' => {}
            b'\n' if self.expected == Expected::Count => {
                (self.arguments, self.is_name) = (self.number, true);
                self.name.clear();
                self.expected = if self.number == 0 { Expected::Command } else { Expected::Argument };
            }
            b'\n' if self.number == 0 => self.expected = Expected::LineEnd(2),
            b'\n' => self.expected = Expected::Bytes(self.number),
            _ => self.expected = Expected::Nothing,
        }
    }

    fn read_argument(&mut self, bytes: &[u8]) {
        if self.is_name {
            // One letter more than the longest name, so that a longer word is none.
            let room = (LONGEST_NAME + 1).saturating_sub(self.name.len());
            self.name.extend(bytes.iter().take(room).map(|byte| char::from(byte.to_ascii_uppercase())));
        }
    }

    fn end_argument(&mut self, found: &mut impl FnMut(&str)) {
        if std::mem::take(&mut self.is_name) {
            if !is_command(&self.name) {
                self.expected = Expected::Nothing;
                return;
            }
            found(&self.name);
        }
        self.arguments -= 1;
        self.expected = if self.arguments == 0 { Expected::Command } else { Expected::Argument };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut names = Vec::new();
        let mut reader = CommandNames::default();
        pieces.iter().for_each(|piece| reader.read(piece, |name| names.push(name.to_owned())));
        names
    }

    #[test]
    fn names_are_read_and_arguments_are_not() {
        let sent = b"*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(read(&[sent]), ["AUTH", "SET", "PING"]);
        for at in 0..sent.len() {
            assert_eq!(read(&[&sent[..at], &sent[at..]]), ["AUTH", "SET", "PING"], "cut at {at}");
        }
        assert!(COMMANDS.split_whitespace().all(|name| name.len() <= LONGEST_NAME && is_command(name)));
        for word in ["", " ", "GET SET", "get", "HUNTER"] {
            assert!(!is_command(word), "{word}");
        }
    }

    #[test]
    fn other_protocols_give_no_names() {
        for sent in [
            &b"*1\r\n$7\r\nhunter2\r\n*1\r\n$4\r\nPING\r\n"[..],
            b"PING\r\n",
            b"*999999999999999999999\r\n",
            b"*1\r\n$4\r\nPINGx\r\n",
            b"\0\0\0\x27\0\x03\0\0user\0app\0",
        ] {
            assert_eq!(read(&[sent]), [""; 0], "{sent:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..5)) {
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            read(&pieces);
        }
    }
}
