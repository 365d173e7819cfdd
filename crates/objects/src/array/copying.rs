//! Copying cells: plain, past the caches, and by runs of two regions.

use terrace_core::objects::Overlap;

/// From here on a copy goes past the caches: it would not stay in them anyway. Smaller ones are faster by them, and so is who reads
/// them next.
const STREAM_MIN: usize = 16 << 20;

/// Copies `count` bytes. The source may be changed by others meanwhile; whoever copies from shared memory looks afterwards
/// whether it was.
///
/// # Safety
/// Both ranges are mapped, and do not overlap.
pub unsafe fn copy(from: *const u8, to: *mut u8, count: usize, streams: bool) {
    if streams && count >= STREAM_MIN {
        // SAFETY: as the caller promised.
        unsafe { stream(from, to, count) }
    } else {
        // SAFETY: as the caller promised.
        unsafe { std::ptr::copy_nonoverlapping(from, to, count) }
    }
}

/// With stores that leave the caches alone: the target's lines need not be read first.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx")]
    unsafe fn lines(from: *const u8, to: *mut u8, count: usize) {
        // SAFETY: `count` is a multiple of 128 and `to` is aligned to 32; both ranges are the caller's.
        unsafe {
            let mut at = 0;
            while at < count {
                let source = from.add(at) as *const __m256i;
                let target = to.add(at) as *mut __m256i;
                _mm_prefetch::<_MM_HINT_T0>(from.add(at).wrapping_add(1024) as *const i8);
                _mm_prefetch::<_MM_HINT_T0>(from.add(at).wrapping_add(1088) as *const i8);
                let a = _mm256_loadu_si256(source);
                let b = _mm256_loadu_si256(source.add(1));
                let c = _mm256_loadu_si256(source.add(2));
                let d = _mm256_loadu_si256(source.add(3));
                _mm256_stream_si256(target, a);
                _mm256_stream_si256(target.add(1), b);
                _mm256_stream_si256(target.add(2), c);
                _mm256_stream_si256(target.add(3), d);
                at += 128;
            }
            _mm_sfence();
        }
    }
    // SAFETY: the parts are those of the caller's ranges; AVX is there when it is used.
    unsafe {
        if !std::arch::is_x86_feature_detected!("avx") {
            return std::ptr::copy_nonoverlapping(from, to, count);
        }
        let head = to.align_offset(64).min(count);
        std::ptr::copy_nonoverlapping(from, to, head);
        let body = (count - head) / 128 * 128;
        lines(from.add(head), to.add(head), body);
        let rest = head + body;
        std::ptr::copy_nonoverlapping(from.add(rest), to.add(rest), count - rest);
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: as the caller promised.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) }
}

/// Copies the common cells of two regions between their packed buffers.
///
/// # Safety
/// The buffers have all cells of their regions, and do not overlap.
pub unsafe fn copy_overlap(overlap: &Overlap, size: usize, from: *const u8, to: *mut u8) {
    overlap.for_each_run(|run| {
        // SAFETY: a run's cells are cells of both regions.
        unsafe {
            let source = from.add(run.from as usize * size);
            let target = to.add(run.to as usize * size);
            if run.from_step == 1 && run.to_step == 1 {
                return std::ptr::copy_nonoverlapping(source, target, run.cells as usize * size);
            }
            let (from_step, to_step) = (run.from_step as usize * size, run.to_step as usize * size);
            match size {
                1 => scatter::<u8>(source, from_step, target, to_step, run.cells as usize),
                2 => scatter::<u16>(source, from_step, target, to_step, run.cells as usize),
                4 => scatter::<u32>(source, from_step, target, to_step, run.cells as usize),
                8 => scatter::<u64>(source, from_step, target, to_step, run.cells as usize),
                16 => scatter::<u128>(source, from_step, target, to_step, run.cells as usize),
                _ => {
                    for i in 0..run.cells as usize {
                        std::ptr::copy_nonoverlapping(source.add(i * from_step), target.add(i * to_step), size);
                    }
                }
            }
        }
    });
}

/// # Safety
/// `count` cells of `T`'s size lie at these steps of bytes.
unsafe fn scatter<T: Copy>(from: *const u8, from_step: usize, to: *mut u8, to_step: usize, count: usize) {
    for i in 0..count {
        // SAFETY: as the caller promised; nothing is known of alignment.
        unsafe {
            let value = std::ptr::read_unaligned(from.add(i * from_step) as *const T);
            std::ptr::write_unaligned(to.add(i * to_step) as *mut T, value);
        }
    }
}

/// Fills a buffer with copies of one cell.
pub fn fill(buffer: &mut [u8], cell: &[u8]) {
    match cell {
        [] => {}
        _ if cell.iter().all(|&byte| byte == cell[0]) => buffer.fill(cell[0]),
        _ => buffer.chunks_exact_mut(cell.len()).for_each(|place| place.copy_from_slice(cell)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_past_the_caches_copies_every_byte_wherever_it_begins() {
        let source: Vec<u8> = (0..STREAM_MIN + 4096).map(|i| (i * 7 + i / 256) as u8).collect();
        for (start, count) in [(0, STREAM_MIN), (1, STREAM_MIN + 77), (63, STREAM_MIN + 4000), (17, STREAM_MIN + 1)] {
            let mut target = vec![0xee; STREAM_MIN + 8192];
            // SAFETY: both ranges are inside their vectors.
            unsafe { copy(source.as_ptr().add(start), target.as_mut_ptr().add(start + 3), count, true) };
            assert_eq!(target[start + 3..start + 3 + count], source[start..start + count]);
            assert!(target[..start + 3].iter().chain(&target[start + 3 + count..]).all(|&byte| byte == 0xee));
        }
    }
}
