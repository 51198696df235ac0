//! One client's side of the protocol as a state machine without I/O: bytes in, answers and commands
//! out. Input may be hostile: the session never panics and never allocates by lengths that a client
//! announces.

mod commands;
mod fuzz;

use std::sync::Arc;

use rustls::ServerConfig;
use serde::{Deserialize, Serialize};

pub(super) use self::commands::{CommandKind, NbdCommand};
pub use self::fuzz::fuzz_session;
use super::devices::{Device, SocketDevices};
use crate::nbd_proto::{
    FieldReader, INIT_MAGIC, MAX_PAYLOAD_BYTES, NbdError, OPTION_HEADER_BYTES, OPTION_MAGIC,
    REQUEST_BYTES, RawRequest, command, handshake, info, option, put_all_data_status,
    put_error_chunk, put_len, put_option_reply, put_simple_reply, reply, transmission,
};

/// An option's data must fit with its header into the receive buffer; this is ample.
const MAX_OPTION_BYTES: usize = 16 << 10;
const ALLOCATION_CONTEXT: &[u8] = b"base:allocation";
const ALLOCATION_CONTEXT_ID: u32 = 1;
/// Reason for which a client is refused.
const NO_ROOM: &[u8] = b"too many clients; disconnect another one first";
const TLS_FIRST: &[u8] = b"this export is for TLS only: use nbds://";
const UNKNOWN: &[u8] = b"no export of that name; nbdinfo --list shows those there are";

/// Result of some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionStep {
    /// More input is needed.
    NeedMore,
    /// Some input was handled; there may be answers. Call again.
    Again,
    /// Carry this out and answer it.
    Command(NbdCommand),
    /// TLS comes next, and the conversation goes on within it.
    StartTls,
    /// The conversation is over. Send pending answers and close.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    ClientFlags,
    Options,
    Transmission,
    Closed,
}

/// Progress of a conversation, for the process that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionProgress {
    /// Name of the device that was chosen, and its size, as the client was told.
    device: Option<String>,
    #[serde(default)]
    size_bytes: Option<u64>,
    phase: Phase,
    skip: u64,
    no_zeroes: bool,
    structured: bool,
    allocation_context: bool,
}

/// The conversation with one client.
#[derive(Debug)]
pub(super) struct Session {
    devices: SocketDevices,
    /// The one that was chosen, once commands come.
    device: Option<Arc<Device>>,
    phase: Phase,
    /// Input to be thrown away: data of refused options and writes.
    skip: u64,
    no_zeroes: bool,
    structured: bool,
    allocation_context: bool,
    /// TLS that the client has to start before anything else, if required.
    tls: Option<Arc<ServerConfig>>,
    /// TLS was started.
    secure: bool,
    /// Set if one more client may come to commands.
    room: bool,
}

impl Session {
    /// A new conversation; its greeting goes into `out`.
    /// With `tls`, nothing is told or done before the client has asked for that.
    pub(super) fn new(
        devices: SocketDevices,
        tls: Option<Arc<ServerConfig>>,
        out: &mut Vec<u8>,
    ) -> Self {
        out.extend_from_slice(&INIT_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        out.extend_from_slice(&flags.to_be_bytes());
        Self {
            devices,
            device: None,
            phase: Phase::ClientFlags,
            skip: 0,
            no_zeroes: false,
            structured: false,
            allocation_context: false,
            tls,
            secure: false,
            room: true,
        }
    }

    /// Returns the progress; `None` where no other process can go on: the conversation is closed,
    /// or is encrypted with keys of this process.
    pub(super) fn progress(&self) -> Option<SessionProgress> {
        let Self { phase, skip, no_zeroes, structured, allocation_context, .. } = *self;
        let goes_on = phase != Phase::Closed && !self.secure;
        goes_on.then(|| SessionProgress {
            device: self.device.as_ref().map(|device| device.name.clone()),
            size_bytes: self.device.as_ref().map(|device| device.size_bytes),
            phase,
            skip,
            no_zeroes,
            structured,
            allocation_context,
        })
    }

    /// Goes on where another process has left it. `None` when its device is not there any more.
    pub(super) fn at(
        progress: SessionProgress,
        devices: SocketDevices,
        tls: Option<Arc<ServerConfig>>,
    ) -> Option<Self> {
        let SessionProgress { device, size_bytes, phase, skip, no_zeroes, .. } = progress;
        let SessionProgress { structured, allocation_context, .. } = progress;
        let device = match device {
            Some(name) => {
                let found = devices.find(name.as_bytes()).filter(|found| found.name == name)?;
                Some(size_bytes.map_or(found.clone(), |size| Arc::new(found.of_size(size))))
            }
            None if phase == Phase::Transmission => return None,
            None => None,
        };
        Some(Self {
            devices,
            device,
            phase,
            skip,
            no_zeroes,
            structured,
            allocation_context,
            tls,
            secure: false,
            room: true,
        })
    }

    /// Tells whether there is room for one more client.
    pub(super) const fn set_room(&mut self, room: bool) {
        self.room = room;
    }

    /// Replies are structured.
    pub(super) const fn structured(&self) -> bool {
        self.structured
    }

    /// Options are agreed upon, commands may come.
    pub(super) const fn transmits(&self) -> bool {
        matches!(self.phase, Phase::Transmission)
    }

    /// Returns the TLS that a client has to start, if required.
    pub(super) const fn tls(&self) -> Option<&Arc<ServerConfig>> {
        self.tls.as_ref()
    }

    /// Returns the device to which the commands go.
    pub(super) const fn chosen(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }

    fn device(&self) -> &Device {
        self.device.as_ref().expect("commands come once a device is chosen")
    }

    /// Returns its start in the array.
    pub(super) fn offset_bytes(&self) -> u64 {
        self.device().offset_bytes
    }

    /// Commands for a device come next.
    fn transmit(&mut self, device: Arc<Device>) {
        self.device = Some(device);
        self.phase = Phase::Transmission;
    }

    /// Handles input that has not been consumed yet. Returns the number of bytes consumed now and
    /// the result; appends answers to `out`.
    pub(super) fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, SessionStep) {
        if self.skip > 0 {
            let now = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            self.skip -= now as u64;
            return (now, if now == 0 { SessionStep::NeedMore } else { SessionStep::Again });
        }
        match self.phase {
            Phase::ClientFlags => self.client_flags(input),
            Phase::Options => self.option(input, out),
            Phase::Transmission => {
                let Some(bytes) = input.first_chunk() else { return (0, SessionStep::NeedMore) };
                (REQUEST_BYTES, self.request(bytes, out))
            }
            Phase::Closed => (input.len(), SessionStep::Close),
        }
    }

    fn close(&mut self) -> SessionStep {
        self.phase = Phase::Closed;
        SessionStep::Close
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, SessionStep) {
        const KNOWN: u32 = (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) as u32;
        let Some(flags) = FieldReader(input).u32() else { return (0, SessionStep::NeedMore) };
        if flags & !KNOWN != 0 {
            return (4, self.close());
        }
        self.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        self.phase = Phase::Options;
        (4, SessionStep::Again)
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, SessionStep) {
        let mut reader = FieldReader(input);
        let (Some(magic), Some(option), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return (0, SessionStep::NeedMore);
        };
        if magic != OPTION_MAGIC {
            return (input.len(), self.close());
        }
        let known = matches!(
            option,
            option::EXPORT_NAME
                | option::ABORT
                | option::LIST
                | option::INFO
                | option::GO
                | option::STRUCTURED_REPLY
                | option::LIST_META_CONTEXT
                | option::SET_META_CONTEXT
        ) || option == option::STARTTLS && self.tls.is_some();
        let len = len as usize;
        let early = self.tls.is_some()
            && !self.secure
            && !matches!(option, option::STARTTLS | option::ABORT);
        if !known || early || len > MAX_OPTION_BYTES {
            if option == option::EXPORT_NAME {
                return (OPTION_HEADER_BYTES, self.close());
            }
            let (kind, why): (u32, &[u8]) = if early {
                (reply::ERR_TLS_REQD, TLS_FIRST)
            } else if known {
                (reply::ERR_TOO_BIG, b"")
            } else {
                (reply::ERR_UNSUP, b"")
            };
            put_option_reply(out, option, kind, why);
            self.skip = len as u64;
            return (OPTION_HEADER_BYTES, SessionStep::Again);
        }
        let Some(data) = reader.0.get(..len) else { return (0, SessionStep::NeedMore) };
        (OPTION_HEADER_BYTES + len, self.known_option(option, data, out))
    }

    fn known_option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> SessionStep {
        let answered = match option {
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                put_option_reply(out, option, reply::ACK, b"");
                return self.close();
            }
            option::STARTTLS if data.is_empty() && !self.secure => {
                put_option_reply(out, option, reply::ACK, b"");
                // What was agreed upon in the clear holds no more.
                self.structured = false;
                self.allocation_context = false;
                self.secure = true;
                return SessionStep::StartTls;
            }
            option::STARTTLS => Err(reply::ERR_INVALID),
            option::LIST => self.list(data, out),
            option::INFO | option::GO => self.info(option, data, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                Ok(())
            }
            option::STRUCTURED_REPLY => Err(reply::ERR_INVALID),
            _ => self.meta_context(option, data, out),
        };
        match answered {
            Ok(()) => put_option_reply(out, option, reply::ACK, b""),
            Err(reply::ERR_POLICY) => put_option_reply(out, option, reply::ERR_POLICY, NO_ROOM),
            Err(reply::ERR_UNKNOWN) => put_option_reply(out, option, reply::ERR_UNKNOWN, UNKNOWN),
            Err(kind) => put_option_reply(out, option, kind, b""),
        }
        SessionStep::Again
    }

    fn transmission_flags(&self, device: &Device) -> u16 {
        let mut flags = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::SEND_TRIM
            | transmission::SEND_WRITE_ZEROES
            | transmission::SEND_FAST_ZERO
            | transmission::CAN_MULTI_CONN;
        if self.structured {
            flags |= transmission::SEND_DF;
        }
        if device.read_only {
            flags |= transmission::READ_ONLY;
        }
        flags
    }

    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> SessionStep {
        let device = if self.room { self.devices.find(name) } else { None };
        // This option has no way to say no.
        let Some(device) = device else { return self.close() };
        out.extend_from_slice(&device.size_bytes.to_be_bytes());
        out.extend_from_slice(&self.transmission_flags(&device).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        self.transmit(device);
        SessionStep::Again
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
        if !data.is_empty() {
            return Err(reply::ERR_INVALID);
        }
        for device in self.devices.all() {
            let mut entry = Vec::new();
            put_len(&mut entry, device.name.len());
            entry.extend_from_slice(device.name.as_bytes());
            put_option_reply(out, option::LIST, reply::SERVER, &entry);
        }
        Ok(())
    }

    fn info(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
        let mut reader = FieldReader(data);
        let name = reader.string().ok_or(reply::ERR_INVALID)?;
        let count = reader.u16().ok_or(reply::ERR_INVALID)?;
        if reader.0.len() != usize::from(count) * 2 {
            return Err(reply::ERR_INVALID);
        }
        let device = self.devices.find(name).ok_or(reply::ERR_UNKNOWN)?;
        if option == option::GO && !self.room {
            return Err(reply::ERR_POLICY);
        }
        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.extend_from_slice(&device.size_bytes.to_be_bytes());
        data.extend_from_slice(&self.transmission_flags(&device).to_be_bytes());
        put_option_reply(out, option, reply::INFO, &data);

        // The block sizes also go to those who did not ask: they had better know.
        let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
        let sizes = [device.min_block_bytes, device.preferred_block_bytes, MAX_PAYLOAD_BYTES];
        sizes.iter().for_each(|size| data.extend_from_slice(&size.to_be_bytes()));
        put_option_reply(out, option, reply::INFO, &data);

        if std::iter::from_fn(|| reader.u16()).any(|wanted| wanted == info::NAME) {
            let mut data = info::NAME.to_be_bytes().to_vec();
            data.extend_from_slice(device.name.as_bytes());
            put_option_reply(out, option, reply::INFO, &data);
        }
        if option == option::GO {
            self.transmit(device);
        }
        Ok(())
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.allocation_context = false;
        }
        let mut reader = FieldReader(data);
        let name = reader.string().ok_or(reply::ERR_INVALID)?;
        let count = reader.u32().ok_or(reply::ERR_INVALID)?;
        let mut found = count == 0 && !set;
        for _ in 0..count {
            let query = reader.string().ok_or(reply::ERR_INVALID)?;
            found |= query == ALLOCATION_CONTEXT || (query == b"base:" && !set);
        }
        if !reader.0.is_empty() || !self.structured {
            return Err(reply::ERR_INVALID);
        }
        if self.devices.find(name).is_none() {
            return Err(reply::ERR_UNKNOWN);
        }
        if found {
            let mut data = ALLOCATION_CONTEXT_ID.to_be_bytes().to_vec();
            data.extend_from_slice(ALLOCATION_CONTEXT);
            put_option_reply(out, option, reply::META_CONTEXT, &data);
            self.allocation_context |= set;
        }
        Ok(())
    }

    fn request(&mut self, bytes: &[u8; REQUEST_BYTES], out: &mut Vec<u8>) -> SessionStep {
        let Some(request) = RawRequest::parse(bytes) else { return self.close() };
        if request.kind == command::DISC {
            return self.close();
        }
        let cookie = request.cookie;
        match self.checked(self.device(), &request) {
            Ok(Some(kind)) => SessionStep::Command(NbdCommand { cookie, kind }),
            Ok(None) => {
                put_all_data_status(out, cookie, ALLOCATION_CONTEXT_ID, request.len);
                SessionStep::Again
            }
            Err((error, message)) => {
                if request.kind == command::WRITE {
                    self.skip = request.len.into();
                }
                self.refuse(cookie, error, message, out);
                SessionStep::Again
            }
        }
    }

    /// Answers a command with an error.
    pub(super) fn refuse(&self, cookie: u64, error: NbdError, message: &str, out: &mut Vec<u8>) {
        if self.structured {
            put_error_chunk(out, cookie, error, message);
        } else {
            put_simple_reply(out, cookie, Some(error));
        }
    }
}
