//! What the wrapper and the guardian say to each other: one JSON object a packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// From the wrapper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The lock is held: start the command.
    Start(Start),
    /// The lock is held until this moment, by the host's boot clock.
    Deadline(u64),
    /// Somebody sent the wrapper this signal.
    Signal {
        signal: i32,
        /// The terminal sent it to the whole foreground group.
        by_terminal: bool,
    },
    /// The lock is lost: stop the command, within this time.
    Lost { grace_ns: u64 },
    /// The wrapper was continued.
    Continue,
}

/// How to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) deadline: u64,
    pub(crate) kill_after_ns: u64,
    /// What to set in the command's environment, and what to remove.
    pub(crate) env: Vec<(String, Option<String>)>,
}

/// From the guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Started {
        pid: i32,
    },
    /// The command could not be executed.
    Failed {
        errno: i32,
    },
    /// The deadline had passed before the command could be started; nothing was.
    TooLate,
    /// The command was stopped, as by Ctrl-Z; with its own group, the wrapper's has to stop too.
    Stopped {
        own_group: bool,
    },
    /// It is being stopped for this reason.
    Stopping(Why),
    /// The command has ended; if it was stopped, all its descendants too.
    Ended {
        end: End,
        why: Option<Why>,
    },
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Code(u8),
    Signal(i32),
}

/// Why the guardian stopped the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    Lost,
    MaxHold,
    /// It did not end within `--kill-after` of a TERM that was sent to the wrapper.
    Impatient,
}

/// Sends one message, and a descriptor with it.
pub(super) fn send(socket: &OwnedFd, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket.as_fd(), &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives one message; `None` at the end.
pub(super) fn recv<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    loop {
        match recv_once(socket) {
            // The other side ended with messages unread. The kernel says so once, and before it gives what that side had sent.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
            other => return other,
        }
    }
}

fn recv_once<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    // Asked for first, because a buffer for the largest of all would cost more than the rest of the conversation.
    let peek = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let (_, length) = rustix::net::recv(socket, &mut [0u8; 0][..], peek)?;
    let mut bytes = vec![0u8; length];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        flags,
    )?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if got.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..got.bytes])?;
    Ok(Some((message, fd)))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn what_was_sent_last_is_heard_though_the_sender_ended_with_messages_unread() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(&ours, &Order::Continue, None).unwrap();
        let end = Report::Ended {
            end: End::Code(3),
            why: Some(Why::Lost),
        };
        send(&theirs, &end, None).unwrap();
        drop(theirs);
        let (heard, _) = recv::<Report>(&ours).unwrap().unwrap();
        assert!(matches!(
            heard,
            Report::Ended {
                end: End::Code(3),
                why: Some(Why::Lost)
            }
        ));
        assert!(recv::<Report>(&ours).unwrap().is_none());
    }
}
