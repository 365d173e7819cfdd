"""The inputs of the demo, cut or copied from real data."""

import shutil
from pathlib import Path

import nibabel
import numpy as np


def cut_brain(template: Path, directory: Path, count: int, magnification: int) -> None:
    """Writes `count` slabs of the magnified template as block-01.nii… (16-bit integers, uncompressed).

    The template has 1 mm voxels; the images that such pipelines are made for have voxels of a fraction of that. Each
    voxel becomes `magnification`³ voxels, so that a block is as large as theirs.
    """
    image = nibabel.load(template)
    voxels = np.asanyarray(image.dataobj)
    wide = voxels.repeat(magnification, axis=0).repeat(magnification, axis=1)
    depth = voxels.shape[2] * magnification
    edges = [depth * i // count for i in range(count + 1)]
    scale = np.diag([1 / magnification] * 3 + [1])
    directory.mkdir(parents=True)
    for number, (first, last) in enumerate(zip(edges, edges[1:]), start=1):
        planes = np.arange(first, last) // magnification
        block = np.asfortranarray(wide[:, :, planes], dtype=np.int16)
        shift = np.eye(4)
        shift[2, 3] = first
        affine = image.affine @ scale @ shift
        nibabel.save(nibabel.Nifti1Image(block, affine), directory / f"block-{number:02d}.nii")


def copy_plates(plates: list[Path], directory: Path) -> None:
    """Copies the sky plates to where the mosaic expects them."""
    directory.mkdir(parents=True)
    for plate in plates:
        shutil.copyfile(plate, directory / plate.name)
