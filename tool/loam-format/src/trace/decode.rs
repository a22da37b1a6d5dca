//! Makes events of columns. No number is used before it is checked.

use thiserror::Error;

use super::columns::{
    ALLOCATE, BEGINS, DETAIL, DROPPED, ENDS, EXEC, EXISTING, FLAG, FORK, FREE, FROM, IN_PLACE,
    KIND, TO, TRIM,
};
use super::event::{AllocFamily, Event, FreeFamily, Record};
use super::predict::Predictor;
use super::varint::{unzigzag, Input};

/// Why the payload of a chunk is invalid, although its checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A column ends before its events do.
    #[error("a column ends before its events do")]
    Short,
    /// A number has more than 64 bits.
    #[error("a number has more than 64 bits")]
    Wide,
    /// An operation that is not declared.
    #[error("operation {0:#04x} is not one of this format's version")]
    Operation(u8),
    /// A block's number points before the chunk, or a stack of freed blocks is empty.
    #[error("an event names a block that the chunk does not have")]
    NoSuchBlock,
    /// A column has more bytes than the events need.
    #[error("a column has more than its events need")]
    Long,
}

/// The predictor and the blocks of a chunk. They are kept from chunk to chunk, so that their memory
/// is used again.
#[derive(Debug, Default)]
pub struct Decoder {
    predictor: Predictor,
    /// Address and bytes of the blocks of this chunk, by number.
    blocks: Vec<(u64, u64)>,
    /// Resizes that have begun, as thread and address.
    resizing: Vec<(u32, u64)>,
}

/// The state of reading a chunk.
#[derive(Debug)]
struct Columns<'a> {
    operation: Input<'a>,
    thread: Input<'a>,
    time: Input<'a>,
    size: Input<'a>,
    alignment: Input<'a>,
    touched: Input<'a>,
    extra: Input<'a>,
    address: Input<'a>,
    freed: Input<'a>,
}

impl Columns<'_> {
    fn are_empty(&self) -> bool {
        [
            &self.operation,
            &self.thread,
            &self.time,
            &self.size,
            &self.alignment,
            &self.touched,
            &self.extra,
            &self.address,
            &self.freed,
        ]
        .into_iter()
        .all(Input::is_empty)
    }
}

impl Decoder {
    /// Appends the events of a chunk to `out`. Returns how many events of the stream came before
    /// the chunk. `unit` is the header's, in nanoseconds. After an error, `out` holds the events
    /// that were read before it.
    pub fn decode(
        &mut self,
        payload: &[u8],
        rows: u32,
        unit: u64,
        out: &mut Vec<Record>,
    ) -> Result<u64, DecodeError> {
        self.predictor.begin_chunk();
        self.blocks.clear();
        self.resizing.clear();
        let mut input = Input::new(payload);
        let number = input.number()?;
        let mut time = input.number()?;
        let mut columns = Columns {
            operation: input.counted()?,
            thread: input.counted()?,
            time: input.counted()?,
            size: input.counted()?,
            alignment: input.counted()?,
            touched: input.counted()?,
            extra: input.counted()?,
            address: input.counted()?,
            freed: input.counted()?,
        };
        let (mut thread, mut left) = (0, 0u64);
        let mut missed = 0u64;
        for _ in 0..rows {
            time = time.wrapping_add(columns.time.number()?);
            while left == 0 {
                thread = columns.thread.number()? as u32;
                left = columns.thread.number()?;
            }
            left -= 1;
            if let Some(event) = self.event(&mut columns, thread, &mut missed)? {
                out.push(Record {
                    time: time.wrapping_mul(unit),
                    thread,
                    event,
                });
            }
        }
        if left != 0 || !columns.are_empty() {
            return Err(DecodeError::Long);
        }
        Ok(number)
    }

    /// None: the event belongs to a later version and is skipped.
    fn event(
        &mut self,
        columns: &mut Columns<'_>,
        thread: u32,
        missed: &mut u64,
    ) -> Result<Option<Event>, DecodeError> {
        let operation = columns.operation.byte()?;
        let (detail, flag) = (operation & DETAIL, operation & FLAG != 0);
        let unknown = DecodeError::Operation(operation);
        let event = match operation & KIND {
            ALLOCATE => {
                let family = AllocFamily::ALL.get(usize::from(detail));
                let family = *family.ok_or(unknown)?;
                let alignment = if family.is_aligned() {
                    alignment(&mut columns.alignment)?
                } else {
                    0
                };
                let (address, size) = self.block(columns, thread, flag)?;
                Event::Allocate {
                    family,
                    address,
                    size,
                    alignment,
                }
            }
            FREE => {
                let family = FreeFamily::ALL.get(usize::from(detail));
                let family = *family.ok_or(unknown)?;
                let (address, own) = self.freed(columns, thread, missed)?;
                let size = if family.is_sized() {
                    own.wrapping_add(unzigzag(columns.extra.number()?) as u64)
                } else {
                    0
                };
                Event::Free {
                    family,
                    address,
                    size,
                    touched: touched(columns, flag)?,
                }
            }
            FROM => {
                let (address, _) = self.freed(columns, thread, missed)?;
                self.resizing.retain(|(resizing, _)| *resizing != thread);
                self.resizing.push((thread, address));
                Event::ResizeFrom {
                    address,
                    touched: touched(columns, flag)?,
                }
            }
            TO => {
                let from = self.resizing.iter().position(|(from, _)| *from == thread);
                let from = from.map(|at| self.resizing.swap_remove(at).1);
                let (address, size) = if detail == IN_PLACE {
                    let block = (
                        from.ok_or(DecodeError::NoSuchBlock)?,
                        columns.size.number()?,
                    );
                    self.blocks.push(block);
                    block
                } else {
                    self.block(columns, thread, flag)?
                };
                Event::ResizeTo { address, size }
            }
            EXISTING => {
                let (address, size) = self.block(columns, thread, flag)?;
                Event::Existing { address, size }
            }
            BEGINS => Event::ThreadBegins,
            ENDS => Event::ThreadEnds,
            _ => match detail {
                FORK => Event::Fork {
                    child: columns.extra.number()? as u32,
                },
                EXEC => Event::Exec,
                DROPPED => Event::Dropped {
                    count: columns.extra.number()?,
                },
                // For all further events, the flag says whether an extra follows.
                _ => {
                    let extra = flag.then(|| columns.extra.number()).transpose()?;
                    return Ok(match detail {
                        TRIM => Some(Event::Trim {
                            keep: extra.unwrap_or(0),
                        }),
                        _ => None,
                    });
                }
            },
        };
        Ok(Some(event))
    }

    fn block(
        &mut self,
        columns: &mut Columns<'_>,
        thread: u32,
        failed: bool,
    ) -> Result<(u64, u64), DecodeError> {
        let size = columns.size.number()?;
        if failed {
            return Ok((0, size));
        }
        let code = columns.address.number()?;
        let absolute = || columns.address.number();
        let address = self.predictor.decode(thread, size, code, absolute)?;
        self.blocks.push((address, size));
        Ok((address, size))
    }

    /// The freed block and its bytes; 0 bytes if they are not known.
    fn freed(
        &mut self,
        columns: &mut Columns<'_>,
        thread: u32,
        missed: &mut u64,
    ) -> Result<(u64, u64), DecodeError> {
        let distance = columns.freed.number()?;
        if distance == 0 {
            *missed = missed.wrapping_add(unzigzag(columns.freed.number()?) as u64);
            self.predictor.freed_unknown(thread, *missed);
            return Ok((*missed, 0));
        }
        let number = (self.blocks.len() as u64).checked_sub(distance);
        let (address, size) = self.blocks[number.ok_or(DecodeError::NoSuchBlock)? as usize];
        self.predictor.freed(thread, size, address);
        Ok((address, size))
    }
}

fn alignment(column: &mut Input<'_>) -> Result<u64, DecodeError> {
    match column.number()? {
        0 => column.number(),
        shift @ 1..=64 => Ok(1 << (shift - 1)),
        _ => Err(DecodeError::Wide),
    }
}

fn touched(columns: &mut Columns<'_>, known: bool) -> Result<Option<u64>, DecodeError> {
    known.then(|| columns.touched.number()).transpose()
}
