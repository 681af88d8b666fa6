//! Whether this process is a fork of the one that made a client, asked at each use without a system call.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that parent and child of a fork never share: a client remembers its process by it.
pub(crate) fn process() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let Some(mark) = mark() else {
        return u64::from(std::process::id());
    };
    match mark.load(Ordering::Relaxed) {
        0 => {
            // A fork copies `NEXT`, which is above every number that the parent has used by then.
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
            let set = mark.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
            set.map_or_else(|others| others, |_| fresh)
        }
        number => number,
    }
}

/// A word that is 0 in a new process, whichever call made it; `None` where the kernel cannot do that.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn mark() -> Option<&'static AtomicU64> {
    use std::ptr;
    use std::sync::atomic::AtomicPtr;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    static UNSUPPORTED: AtomicU64 = AtomicU64::new(0);
    // Not a lock: a fork while another thread holds one would leave it locked in the child for ever.
    static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

    let unsupported = ptr::from_ref(&UNSUPPORTED).cast_mut();
    let mut mark = MARK.load(Ordering::Acquire);
    if mark.is_null() {
        let len = rustix::param::page_size();
        // SAFETY: a new anonymous mapping, page-aligned, zeroed, and large enough for the word; it overlaps nothing.
        // MADV_WIPEONFORK only acts on that mapping. It is unmapped again only where nobody has seen it.
        #[allow(unsafe_code)]
        unsafe {
            let flags = MapFlags::PRIVATE;
            let page = mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags);
            let wiped = page.and_then(|page| match madvise(page, len, Advice::LinuxWipeOnFork) {
                Ok(()) => Ok(page),
                Err(e) => munmap(page, len).and(Err(e)),
            });
            let fresh = wiped.map_or(unsupported, |page| page.cast());
            match MARK.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => mark = fresh,
                Err(others) => {
                    if fresh != unsupported {
                        let _ = munmap(fresh.cast(), len);
                    }
                    mark = others;
                }
            }
        }
    }
    if mark == unsupported {
        return None;
    }
    // SAFETY: set above to a mapping that holds a zeroed, aligned word and is never unmapped.
    #[allow(unsafe_code)]
    unsafe {
        Some(&*mark)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn mark() -> Option<&'static AtomicU64> {
    None
}
