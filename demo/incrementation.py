#!/usr/bin/env python3
"""The incrementation application (Algorithm 1 of the Sea paper): a stand-in for multi-step image processing.

    for each block:                         in parallel processes
        chunk = read the block
        for i in 1..n:
            chunk = chunk + 1
            save the chunk as iteration i
            chunk = read iteration i        what the next iteration starts from

Every iteration of every block is a NIfTI file of its own, as the steps of an imaging pipeline leave them; only the last is
wanted afterwards. It reads and writes ordinary files in ordinary directories with nibabel.
"""

import argparse
import multiprocessing
from pathlib import Path

import nibabel
import numpy as np


def read(path: Path) -> nibabel.Nifti1Image:
    """The image at `path`, with its voxels in memory in the type that they have in the file."""
    image = nibabel.load(path)
    voxels = np.asanyarray(image.dataobj)
    return nibabel.Nifti1Image(voxels, image.affine, image.header)


def process_block(block: Path, output: Path, iterations: int) -> None:
    """Increments one block `iterations` times and saves each iteration in `output`."""
    chunk = read(block)
    for iteration in range(1, iterations + 1):
        voxels = np.asanyarray(chunk.dataobj) + chunk.get_data_dtype().type(1)
        saved = output / f"{block.stem}_iteration-{iteration:02d}.nii"
        nibabel.save(nibabel.Nifti1Image(voxels, chunk.affine, chunk.header), saved)
        if iteration < iterations:
            chunk = read(saved)


def main() -> None:
    parser = argparse.ArgumentParser(description="Adds 1 to each voxel of each block, several times.")
    parser.add_argument("blocks", type=Path, help="directory of the input blocks (*.nii)")
    parser.add_argument("output", type=Path, help="directory for the iterations; it is made")
    parser.add_argument("--iterations", type=int, default=10, metavar="N")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count(), metavar="P")
    arguments = parser.parse_args()

    blocks = sorted(arguments.blocks.glob("*.nii"))
    if not blocks:
        parser.error(f"{arguments.blocks} has no *.nii files")
    arguments.output.mkdir(parents=True, exist_ok=True)
    work = [(block, arguments.output, arguments.iterations) for block in blocks]
    with multiprocessing.Pool(arguments.processes) as pool:
        pool.starmap(process_block, work, chunksize=1)


if __name__ == "__main__":
    main()
